// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"syscall"
	"unsafe"
)

// Looks at the channel before a goroutine sleeps: the peer's answer takes about a
// microsecond where it runs, and to be woken takes ten.
const spins = 64

// Operation is a send or a receive under way. It keeps its memory from the garbage
// collector; the channel keeps it until it is done.
type Operation struct {
	c    *Channel
	recv bool
	b    []byte
	op   uint64
	done chan struct{}
	// Written before done is closed.
	m   Message
	err error
}

func (o *Operation) name() string {
	if o.recv {
		return "receive"
	}
	return "send"
}

// Done is closed when the operation is done. It is done only while a goroutine waits for
// an operation of the channel, or calls Poll.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Result is what Wait returns, once Done is closed; before, its error is EINPROGRESS.
func (o *Operation) Result() (Message, error) {
	select {
	case <-o.done:
		return o.m, o.err
	default:
		return Message{}, &Error{Op: o.name(), Errno: syscall.EINPROGRESS}
	}
}

// Wait waits until the operation is done. If ctx is done before, it returns the error of
// ctx, and the operation is under way still, its memory in use.
func (o *Operation) Wait(ctx context.Context) (Message, error) {
	for {
		select {
		case <-o.done:
			return o.m, o.err
		default:
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return Message{}, ctx.Err()
		case o.c.drive <- struct{}{}:
			o.c.step(ctx, o)
			<-o.c.drive
		}
		if err := ctx.Err(); err != nil {
			select {
			case <-o.done:
			default:
				return Message{}, err
			}
		}
	}
}

// step drives the channel until something has happened, or ctx is done. The caller has
// the token.
func (c *Channel) step(ctx context.Context, o *Operation) {
	c.mu.Lock()
	if c.gone() || c.take(spins) != nil {
		c.mu.Unlock()
		return
	}
	select {
	case <-o.done:
		c.mu.Unlock()
		return
	default:
	}
	if a := C.go_channel_arm(c.ch); a.rc != 0 {
		C.free(unsafe.Pointer(a.why))
		c.mu.Unlock() // there is more; an error comes again by the next poll
		return
	}
	c.asleep = true
	c.w.ready()
	c.mu.Unlock()
	c.w.wait(ctx, 0)
	c.mu.Lock()
	c.asleep = false
	c.mu.Unlock()
}

// Cancel ends the operation early. It is done as ever, with ECANCELED, or as it was about
// to be done anyway.
func (o *Operation) Cancel() error {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-o.done:
		return nil
	default:
	}
	if c.gone() {
		return closedError("cancel", "channel")
	}
	_, err := counted("cancel", "channel", C.go_channel_cancel(c.ch, C.uint64_t(o.op)))
	c.wake()
	if errors.Is(err, syscall.ENOENT) {
		return nil // its completion is on the way
	}
	return err
}

// finish waits until the operation is done, whatever becomes of ctx: the caller gets its
// memory back.
func (o *Operation) finish(ctx context.Context) (Message, error) {
	m, err := o.Wait(ctx)
	if err == nil || ctx.Err() == nil || err != ctx.Err() {
		return m, err
	}
	o.Cancel()
	m, failed := o.Wait(context.Background())
	if errors.Is(failed, syscall.ECANCELED) {
		return Message{}, err
	}
	return m, failed
}
