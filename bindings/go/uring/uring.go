// SPDX-License-Identifier: BSD-2-Clause

// Package uring makes the fixed buffers of an io_uring a device of kedge.Cache: pages
// that are really pinned, on any Linux with io_uring.
package uring

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -lkedge-uring -lkedge -luring
// #include "ring.h"
import "C"

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"kedge"
)

// Options say how to open a Ring; 0 is the default of each.
type Options struct {
	// Entries is how many requests fit in.
	Entries uint32
	// Slots is how many registrations there are at one time.
	Slots uint32
	// NoMadvFree promises that the program never calls madvise(MADV_FREE) on
	// registered memory, which saves marking pages. Go's runtime does not, unless
	// GODEBUG has madvdontneed=0; C code may.
	NoMadvFree bool
}

// Ring is an io_uring, and a kedge.Device.
type Ring struct {
	transfers sync.Mutex // the ring's queues are one goroutine's at a time

	mu    sync.Mutex
	r     *C.struct_go_ring // nil: closed
	users int               // caches, and transfers under way
}

// Open makes a ring; nil are the default options.
func Open(options *Options) (*Ring, error) {
	if options == nil {
		options = &Options{}
	}
	entries, flags := options.Entries, C.uint32_t(0)
	if entries == 0 {
		entries = 8
	}
	if options.NoMadvFree {
		flags = C.KEDGE_URING_NO_MADV_FREE
	}
	o := C.go_ring_open(C.uint(entries), C.uint32_t(options.Slots), flags)
	if o.rc != 0 {
		e := &kedge.Error{Op: "open a ring", Errno: syscall.Errno(-o.rc)}
		if o.why != nil {
			e.Reason = C.GoString(o.why)
			C.free(unsafe.Pointer(o.why))
		}
		return nil, e
	}
	return &Ring{r: o.r}, nil
}

func (r *Ring) use() (*C.struct_go_ring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.r == nil {
		return nil, os.ErrClosed
	}
	r.users++
	return r.r, nil
}

// Acquire is for caches.
func (r *Ring) Acquire() (unsafe.Pointer, error) {
	ring, err := r.use()
	if err != nil {
		return nil, err
	}
	return unsafe.Pointer(ring.dev), nil
}

// Release is for caches.
func (r *Ring) Release() {
	r.mu.Lock()
	r.users--
	r.mu.Unlock()
}

// Close ends the ring. It fails with EBUSY while a cache uses it, or a transfer is under
// way.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.r == nil {
		return os.ErrClosed
	}
	if r.users > 0 {
		return &kedge.Error{Op: "close a ring", Errno: syscall.EBUSY,
			Reason: "a cache or a transfer uses the ring"}
	}
	C.go_ring_close(r.r)
	r.r = nil
	return nil
}

// ReadAt reads from a file into registered memory, and returns the bytes. It waits for
// the transfer, and so do those behind it.
func (r *Ring) ReadAt(fd uintptr, reg *kedge.Registration, offset int64) (int, error) {
	return r.transfer(0, fd, reg, offset)
}

// WriteAt writes registered memory to a file, and returns the bytes.
func (r *Ring) WriteAt(fd uintptr, reg *kedge.Registration, offset int64) (int, error) {
	return r.transfer(1, fd, reg, offset)
}

func (r *Ring) transfer(write C.int, fd uintptr, reg *kedge.Registration, offset int64) (int,
	error) {
	ring, err := r.use()
	if err != nil {
		return 0, err
	}
	defer r.Release()
	r.transfers.Lock()
	defer r.transfers.Unlock()
	n := C.go_ring_transfer(ring, write, C.int(fd), C.uintptr_t(reg.Addr()),
		C.size_t(reg.Len()), C.int64_t(offset), C.int(reg.Index()))
	runtime.KeepAlive(reg) // and with it the memory
	if n < 0 {
		return 0, &kedge.Error{Op: "transfer", Errno: syscall.Errno(-n)}
	}
	return int(n), nil
}
