// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"context"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// ChannelOptions are limits of a channel; 0 is the default of each. See
// kedge_channel_open_shm(3).
type ChannelOptions struct {
	// Timeout ends each operation that takes longer, with ETIMEDOUT.
	Timeout time.Duration
	// PeerTimeout and HostTimeout end a channel whose peer, or its host, says nothing.
	PeerTimeout, HostTimeout time.Duration
	// EagerMax is the longest message that is sent at once.
	EagerMax uint32
	// UnexpectedBytes, HeapBytes, PoolBytes and EnvelopeBytes are memory of its own.
	UnexpectedBytes, HeapBytes, PoolBytes, EnvelopeBytes uint64
	// Secret is what both ends prove that they know (TCP).
	Secret []byte
	// AnyUser lets in peers of other users; NoCMA keeps data from going by
	// process_vm_readv(2); NoWait refuses sends with ENOBUFS that had to wait.
	AnyUser, NoCMA, NoWait bool
}

// C's options, whose secret is memory of C's; free ends it.
func (o *ChannelOptions) c() (opts *C.struct_kedge_channel_opts, free func()) {
	opts = &C.struct_kedge_channel_opts{size: C.sizeof_struct_kedge_channel_opts}
	if o == nil {
		return opts, func() {}
	}
	ms := func(d time.Duration) C.uint32_t {
		return C.uint32_t((d + time.Millisecond - 1) / time.Millisecond)
	}
	opts.timeout_ms = ms(o.Timeout)
	opts.peer_timeout_ms = ms(o.PeerTimeout)
	opts.host_timeout_ms = ms(o.HostTimeout)
	opts.eager_max = C.uint32_t(o.EagerMax)
	opts.unexpected_bytes = C.uint64_t(o.UnexpectedBytes)
	opts.heap_bytes = C.uint64_t(o.HeapBytes)
	opts.pool_bytes = C.uint64_t(o.PoolBytes)
	opts.envelope_bytes = C.uint64_t(o.EnvelopeBytes)
	if o.AnyUser {
		opts.flags |= C.KEDGE_CHANNEL_ANY_USER
	}
	if o.NoCMA {
		opts.flags |= C.KEDGE_CHANNEL_NO_CMA
	}
	if o.NoWait {
		opts.flags |= C.KEDGE_CHANNEL_NO_WAIT
	}
	if o.Secret == nil {
		return opts, func() {}
	}
	opts.secret = C.CBytes(o.Secret)
	opts.secret_len = C.uint64_t(len(o.Secret))
	secret := opts.secret
	return opts, func() { C.free(secret) }
}

// place is a network and an address in strings of C's.
type place struct {
	tcp            C.int
	where, service *C.char
}

func placeOf(op, network, address string) (place, error) {
	switch network {
	case "shm":
		return place{where: C.CString(address)}, nil
	case "tcp":
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return place{}, &Error{Op: op, Errno: syscall.EINVAL,
				Reason: err.Error()}
		}
		p := place{tcp: 1, service: C.CString(port)}
		if host != "" {
			p.where = C.CString(host)
		}
		return p, nil
	}
	return place{}, &Error{Op: op, Errno: syscall.EINVAL,
		Reason: "the network is neither \"shm\" nor \"tcp\""}
}

func (p *place) free() {
	C.free(unsafe.Pointer(p.where))
	C.free(unsafe.Pointer(p.service))
}

// Dial connects to a Listener. The network is "shm" or "tcp"; the address is the path of
// a socket, "@name" in the abstract namespace, or "host:port". nil are the default
// options.
func Dial(ctx context.Context, network, address string, options *ChannelOptions) (*Channel,
	error) {
	const op = "connect"

	p, err := placeOf(op, network, address)
	if err != nil {
		return nil, err
	}
	defer p.free()
	opts, free := options.c()
	defer free()
	o := C.go_connector_open(p.tcp, p.where, p.service, opts)
	if o.rc != 0 {
		return nil, failure(op, "connector", C.int64_t(o.rc), o.why)
	}
	defer C.kedge_connector_close(o.k)
	w, err := newWaiter(int(C.kedge_connector_fd(o.k)))
	if err != nil {
		return nil, err
	}
	defer w.close()
	for {
		f := C.go_connector_finish(o.k)
		if f.rc == 0 {
			return newChannel(f.ch)
		}
		err := failure(op, "connector", C.int64_t(f.rc), f.why)
		if f.rc != -C.EINPROGRESS {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		w.wait(ctx, 0)
	}
}

// Listener waits for peers. Goroutines may share it.
type Listener struct {
	mu      sync.Mutex
	l       *C.struct_kedge_listener // nil: closed
	w       *waiter
	address string
}

// Listen waits for peers at a network and an address, as Dial has them; "host:0" is a
// free port, and ":port" is any address of this host.
func Listen(network, address string, options *ChannelOptions) (*Listener, error) {
	const op = "listen"

	p, err := placeOf(op, network, address)
	if err != nil {
		return nil, err
	}
	defer p.free()
	opts, free := options.c()
	defer free()
	o := C.go_listener_open(p.tcp, p.where, p.service, opts)
	if o.rc != 0 {
		return nil, failure(op, "listener", C.int64_t(o.rc), o.why)
	}
	var buf [C.KEDGE_ADDRESS_MAX]C.char
	_, err = counted(op, "listener", C.go_listener_address(o.l, &buf[0], C.size_t(len(buf))))
	l := &Listener{l: o.l, address: C.GoString(&buf[0])}
	if err == nil {
		l.w, err = newWaiter(int(C.kedge_listener_fd(o.l)))
	}
	if err != nil {
		C.kedge_listener_close(o.l)
		return nil, err
	}
	runtime.SetFinalizer(l, (*Listener).Close)
	return l, nil
}

// Addr is what Dial takes as the address.
func (l *Listener) Addr() string { return l.address }

// Handshakes have times of their own, which the descriptor does not tell.
const acceptAtLeast = 200 * time.Millisecond

// Accept takes the next peer.
func (l *Listener) Accept(ctx context.Context) (*Channel, error) {
	const op = "accept"

	for {
		l.mu.Lock()
		if l.l == nil {
			l.mu.Unlock()
			return nil, closedError(op, "listener")
		}
		o := C.go_listener_accept(l.l)
		w := l.w
		l.mu.Unlock()
		if o.rc == 0 {
			return newChannel(o.ch)
		}
		err := failure(op, "listener", C.int64_t(o.rc), o.why)
		if o.rc != -C.ETIMEDOUT && o.rc != -C.EINTR {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		w.wait(ctx, acceptAtLeast)
	}
}

// Close listens no more. Channels live on; an Accept under way fails.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.l == nil {
		return closedError("close a listener", "listener")
	}
	C.kedge_listener_close(l.l)
	l.l = nil
	l.w.close() // a waiter looks again
	return nil
}
