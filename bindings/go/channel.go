// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// Message is one that was sent or received.
type Message struct {
	Tag uint64
	Len int
	Way string // how it got there: "eager", "direct", and so on
}

// Channel carries messages to and from one peer: tagged, whole, in order.
//
// Any number of goroutines may use it, in turns: the lock is held for calls that do not
// wait. Messages move while some goroutine waits for one, or calls Poll. One that waits
// drives the channel for all; it has the token of drive.
type Channel struct {
	mu      sync.Mutex // of all that follows, and of each call on ch
	ch      *C.struct_kedge_channel
	pending map[uint64]*Operation
	next    uint64 // the number of an operation
	asleep  bool   // the goroutine that drives waits for the descriptor
	w       *waiter
	closing bool

	drive chan struct{}
}

func newChannel(ch *C.struct_kedge_channel) (*Channel, error) {
	fd := C.kedge_channel_fd(ch)
	if fd < 0 {
		C.kedge_channel_close(ch)
		return nil, failure("open a channel", "channel", C.int64_t(fd), nil)
	}
	w, err := newWaiter(int(fd))
	if err != nil {
		C.kedge_channel_close(ch)
		return nil, err
	}
	c := &Channel{ch: ch, w: w, pending: make(map[uint64]*Operation),
		drive: make(chan struct{}, 1)}
	runtime.SetFinalizer(c, (*Channel).Close)
	return c, nil
}

// Close ends the channel. Operations under way fail with ECANCELED.
func (c *Channel) Close() error {
	const op = "close a channel"

	c.mu.Lock()
	if c.gone() {
		c.mu.Unlock()
		return closedError(op, "channel")
	}
	c.closing = true
	c.wake()
	c.mu.Unlock()
	c.drive <- struct{}{} // a goroutine that drives has left, and none begins
	c.mu.Lock()
	C.kedge_channel_close(c.ch)
	c.w.close()
	c.allDone(syscall.ECANCELED, "the channel was closed")
	c.mu.Unlock()
	<-c.drive
	return nil
}

// wake has the goroutine that sleeps for the channel look again, as what it sleeps for
// may have come to another one. With the lock held, here and in what follows.
// gone tells a channel that is closed, or is the zero value; with c.mu held.
func (c *Channel) gone() bool {
	return c.closing || c.ch == nil
}

func (c *Channel) wake() {
	if c.asleep {
		c.w.kick()
	}
}

func (c *Channel) allDone(errno syscall.Errno, reason string) {
	for user, o := range c.pending {
		o.err = &Error{Op: o.name(), Errno: errno, Reason: reason}
		delete(c.pending, user)
		close(o.done)
	}
}

// take reads completions, of which there may be none.
func (c *Channel) take(spins uint) error {
	var out [16]C.struct_kedge_completion

	for {
		a := C.go_channel_poll(c.ch, &out[0], C.size_t(len(out)), C.uint(spins))
		n, err := counted("poll", "channel", a)
		if err != nil {
			e := err.(*Error)
			c.allDone(e.Errno, e.Reason)
			return err
		}
		for i := range out[:n] {
			c.complete(&out[i])
		}
		if n < len(out) {
			return nil
		}
		spins = 0
	}
}

func (c *Channel) complete(r *C.struct_kedge_completion) {
	o := c.pending[uint64(r.user)]
	if o == nil {
		return
	}
	delete(c.pending, uint64(r.user))
	o.m = Message{uint64(r.tag), int(r.len), C.GoString(C.kedge_way_name(r.way))}
	if r.status != 0 {
		a := C.go_channel_why(C.int(r.status))
		o.err = failure(o.name(), "channel", C.int64_t(a.rc), a.why)
	}
	close(o.done)
}

// post begins an operation; its memory is the library's until it is done.
func (c *Channel) post(recv bool, b []byte, tag, mask uint64) (*Operation, error) {
	o := &Operation{c: c, recv: recv, b: b, done: make(chan struct{})}
	kind := C.int(0)
	if recv {
		kind = 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return nil, closedError(o.name(), "channel")
	}
	c.next++
	p := C.go_channel_post(c.ch, kind, first(b), C.size_t(len(b)), C.uint64_t(tag),
		C.uint64_t(mask), C.uint64_t(c.next))
	c.wake() // this call, too, takes what has come
	if p.rc < 0 {
		return nil, failure(o.name(), "channel", C.int64_t(p.rc), p.why)
	}
	if p.rc == 1 {
		o.m = Message{tag, len(b), "eager"}
		close(o.done)
		return o, nil
	}
	o.op = uint64(p.op)
	c.pending[c.next] = o
	return o, nil
}

// StartSend begins to send b, which is not to be changed until the operation is done.
func (c *Channel) StartSend(b []byte, tag uint64) (*Operation, error) {
	return c.post(false, b, tag, 0)
}

// StartRecv begins to receive a message into b, which is the library's until the
// operation is done. Bits of the tag that are set in mask count: 0 is any message.
// Receives are matched in the order in which they were begun.
func (c *Channel) StartRecv(b []byte, tag, mask uint64) (*Operation, error) {
	return c.post(true, b, tag, mask)
}

// Send sends b and returns when b is the caller's again. If ctx is done before, the
// message is cancelled, and the error is that of ctx, unless it was received all the same.
func (c *Channel) Send(ctx context.Context, b []byte, tag uint64) error {
	o, err := c.StartSend(b, tag)
	if err != nil {
		return err
	}
	_, err = o.finish(ctx)
	return err
}

// Recv receives the next message into b. If ctx is done before, the error is that of
// ctx, unless a message has come all the same. Either way b is the caller's again.
func (c *Channel) Recv(ctx context.Context, b []byte) (Message, error) {
	return c.RecvTag(ctx, b, 0, 0)
}

// RecvTag is Recv for messages whose tag is alike in the bits of mask.
func (c *Channel) RecvTag(ctx context.Context, b []byte, tag, mask uint64) (Message, error) {
	o, err := c.StartRecv(b, tag, mask)
	if err != nil {
		return Message{}, err
	}
	return o.finish(ctx)
}

// Poll makes progress without waiting: for programs with operations under way in which
// no goroutine waits.
func (c *Channel) Poll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return closedError("poll", "channel")
	}
	err := c.take(0)
	c.wake()
	return err
}

// Probe looks at the message that a StartRecv of that tag and mask would get, if there is
// one; it makes progress as Poll does.
func (c *Channel) Probe(tag, mask uint64) (m Message, found bool, err error) {
	var e C.struct_kedge_envelope

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return Message{}, false, closedError("probe", "channel")
	}
	rc, err := counted("probe", "channel", C.go_channel_probe(c.ch, C.uint64_t(tag),
		C.uint64_t(mask), &e))
	c.wake()
	return Message{Tag: uint64(e.tag), Len: int(e.len)}, rc == 1, err
}

// ChannelInfo says what a channel is.
type ChannelInfo struct {
	Transport string // "shm", "tcp"
	PeerPid   int    // of this host's peers, or 0
	EagerMax  int    // the longest message that is sent at once
}

// Info says what the channel is.
func (c *Channel) Info() (ChannelInfo, error) {
	var i C.struct_kedge_channel_info

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return ChannelInfo{}, closedError("info", "channel")
	}
	if _, err := counted("info", "channel", C.go_channel_info(c.ch, &i)); err != nil {
		return ChannelInfo{}, err
	}
	return ChannelInfo{C.GoString(i.transport), int(i.peer_pid), int(i.eager_max)}, nil
}

// Alloc returns n bytes that both processes have, into which the peer's data land with
// neither registration nor copy. They end with the channel: not a byte of them may be
// used after Close. The peer may write to them at any time.
func (c *Channel) Alloc(n int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return nil, closedError("alloc", "channel")
	}
	if n < 1 {
		return nil, &Error{Op: "alloc", Errno: syscall.EINVAL}
	}
	p := C.kedge_channel_alloc(c.ch, C.size_t(n))
	if p == nil {
		return nil, &Error{Op: "alloc", Errno: syscall.ENOMEM,
			Reason: "HeapBytes of the channel are used up"}
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Free gives back what Alloc returned, which is in no operation.
func (c *Channel) Free(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone() && cap(b) > 0 {
		C.kedge_channel_free(c.ch, unsafe.Pointer(&b[:1][0]))
	}
}
