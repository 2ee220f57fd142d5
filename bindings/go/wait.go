// SPDX-License-Identifier: BSD-2-Clause

package kedge

import (
	"context"
	"os"
	"syscall"
	"time"
)

// waiter waits for a descriptor of the library's by Go's poller, so that a goroutine
// that waits takes no thread. The poller is given an epoll that has the descriptor:
// neither its flags nor its life are the poller's then.
type waiter struct {
	f   *os.File
	raw syscall.RawConn
}

func newWaiter(fd int) (*waiter, error) {
	const op = "wait"

	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, &Error{Op: op, Errno: err.(syscall.Errno)}
	}
	ev := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
	err = syscall.EpollCtl(ep, syscall.EPOLL_CTL_ADD, fd, &ev)
	if err == nil {
		err = syscall.SetNonblock(ep, true)
	}
	if err != nil {
		syscall.Close(ep)
		return nil, &Error{Op: op, Errno: err.(syscall.Errno)}
	}
	f := os.NewFile(uintptr(ep), "kedge")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, &Error{Op: op, Errno: syscall.EBADF}
	}
	return &waiter{f, raw}, nil
}

func (w *waiter) close() { w.f.Close() }

// kick ends the wait that is under way, or the next one. Others may call it.
func (w *waiter) kick() { w.f.SetReadDeadline(time.Unix(1, 0)) }

// ready undoes a kick.
func (w *waiter) ready() { w.f.SetReadDeadline(time.Time{}) }

// wait returns when the descriptor is readable, ctx is done, the time is up (0: none),
// or by a kick: a caller looks for itself.
func (w *waiter) wait(ctx context.Context, atMost time.Duration) {
	if atMost > 0 {
		w.f.SetReadDeadline(time.Now().Add(atMost))
	}
	if ctx.Done() != nil {
		over, left := make(chan struct{}), make(chan struct{})
		go func() {
			select {
			case <-ctx.Done():
				w.kick()
			case <-over:
			}
			close(left)
		}()
		defer func() {
			close(over)
			<-left
		}()
	}
	w.raw.Read(func(ep uintptr) bool {
		var ev [1]syscall.EpollEvent

		n, err := syscall.EpollWait(int(ep), ev[:], 0)
		return n != 0 || err != nil
	})
}
