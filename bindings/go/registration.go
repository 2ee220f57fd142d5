// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"math"
	"runtime"
	"syscall"
	"unsafe"
)

// first is the address of a slice's first byte, for C. As an argument of a call of C it
// lets the compiler place what the slice points to on the heap: memory on a goroutine's
// stack moves when the stack grows.
func first(b []byte) *C.uchar {
	if len(b) == 0 {
		return nil
	}
	return (*C.uchar)(unsafe.Pointer(&b[0]))
}

// noCopy has "go vet" report that a Registration is copied.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Registration is a reference to a registration. The pages that the device touches by it
// are those that the program sees, until Put. It keeps the memory from the garbage
// collector as long.
//
// It is not to be copied: each one that Get returned is put once. Goroutines may hand it
// to each other by a pointer.
type Registration struct {
	_     noCopy
	cache *Cache
	mr    *C.struct_kedge_mr // nil: it was put
	at    *C.uchar
	len   int
}

// Get returns a registration of all of b, which the device may read and write.
//
// b is memory of Go's heap, of Alloc, or of anything else; a slice of an array that
// would be on a goroutine's stack is on the heap instead. An empty slice is EINVAL.
func (c *Cache) Get(b []byte) (Registration, error) {
	return c.get(first(b), len(b), LocalWrite)
}

// GetAccess is Get for any access.
func (c *Cache) GetAccess(b []byte, access Access) (Registration, error) {
	return c.get(first(b), len(b), access)
}

// GetPointer is GetAccess for n bytes at p, which are not on a goroutine's stack.
func (c *Cache) GetPointer(p unsafe.Pointer, n int, access Access) (Registration, error) {
	if n < 0 {
		n = 0 // refused, with the library's own words
	}
	return c.get((*C.uchar)(p), n, access)
}

func (c *Cache) get(at *C.uchar, n int, access Access) (Registration, error) {
	if mr := c.hit(at, n, access); mr != nil {
		return Registration{cache: c, mr: mr, at: at, len: n}, nil
	}
	g := C.go_cache_get(c.h, at, C.size_t(n), C.uint32_t(access))
	runtime.KeepAlive(c)
	if g.rc != 0 {
		return Registration{}, failure("get", "cache", C.int64_t(g.rc), g.why)
	}
	return Registration{cache: c, mr: g.mr, at: at, len: n}, nil
}

// Put gives the reference back; a second one does nothing. The cache keeps the
// registration for the next Get.
func (r *Registration) Put() {
	mr, c, at := r.mr, r.cache, r.at

	if mr == nil {
		return
	}
	r.mr = nil
	if !c.tryPut(mr) {
		C.go_cache_put(c.h, mr)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(at)
}

// Held tells whether it has not been put.
func (r *Registration) Held() bool { return r.mr != nil }

func (r *Registration) held() *C.struct_kedge_mr {
	if r.mr == nil {
		panic("kedge: a Registration is used after its Put")
	}
	return r.mr
}

// Handle is the device's handle. It, and what follows, panics after Put.
func (r *Registration) Handle() uint64 { return uint64(r.held().device_handle) }

// Index is the handle as a buffer index of io_uring.
func (r *Registration) Index() uint32 { return uint32(r.held().device_handle) }

// LKey is the handle as the key for local access by RDMA.
func (r *Registration) LKey() uint32 { return uint32(r.held().device_handle) }

// RKey is the handle as the key for a peer's access by RDMA.
func (r *Registration) RKey() uint32 { return uint32(r.held().device_handle >> 32) }

// Offset is the device's position of the first byte that was asked for: the address
// (iova) that goes with LKey and RKey.
func (r *Registration) Offset() uint64 {
	mr := r.held()
	return uint64(mr.offset) + uint64(r.Addr()) - uint64(mr.addr)
}

// Addr is the address of the first byte that was asked for.
func (r *Registration) Addr() uintptr { return uintptr(unsafe.Pointer(r.at)) }

// Len is the number of bytes that were asked for.
func (r *Registration) Len() int { return r.len }

// Access is what it allows, at least what was asked for.
func (r *Registration) Access() Access { return Access(r.held().access) }

const piecesMax = 1 << 20

// GetV returns registrations that cover b together, in the order of their addresses: for
// memory that was registered in chunks (Hint), and for more than the device registers at
// once. PutV puts them, or each is put by itself.
func (c *Cache) GetV(b []byte, access Access) ([]Registration, error) {
	for max := 16; ; max *= 8 {
		pieces := make([]C.struct_kedge_piece, max)
		a := C.go_cache_getv(c.c, first(b), C.size_t(len(b)), C.uint32_t(access),
			&pieces[0], C.size_t(max))
		runtime.KeepAlive(c)
		if a.rc == -C.ENOBUFS && max < piecesMax {
			C.free(unsafe.Pointer(a.why))
			continue
		}
		n, err := counted("get", "cache", a)
		if err != nil {
			return nil, err
		}
		regs := make([]Registration, n)
		at := 0
		for i := range regs {
			regs[i].cache, regs[i].mr = c, pieces[i].mr
			regs[i].at, regs[i].len = first(b[at:]), int(pieces[i].len)
			at += regs[i].len
		}
		return regs, nil
	}
}

// PutV puts what GetV returned.
func PutV(regs []Registration) {
	for i := range regs {
		regs[i].Put()
	}
}

// Buffer is memory outside of Go's heap: private, anonymous, by mmap(2). The runtime
// never drops or reuses its pages behind the program's back, so a registration of it
// lasts until Free.
type Buffer struct {
	b []byte
}

// Alloc maps n bytes of zeros, from a page's first byte on.
func Alloc(n int) (*Buffer, error) {
	const op = "alloc"

	if n < 1 || n > math.MaxInt-(1<<16) {
		return nil, &Error{Op: op, Errno: syscall.EINVAL,
			Reason: "a buffer has at least one byte"}
	}
	a := C.go_buffer_map(C.size_t(n))
	if a.rc != 0 {
		return nil, failure(op, "buffer", C.int64_t(a.rc), nil)
	}
	return &Buffer{unsafe.Slice((*byte)(a.at), n)}, nil
}

// Bytes is the memory, and nil after Free.
func (b *Buffer) Bytes() []byte { return b.b }

// Free unmaps the memory. No slice of it may be used any more, nor may a device still
// be using it. A second Free does nothing. Without Free it stays until the process ends.
func (b *Buffer) Free() {
	if b.b != nil {
		C.go_buffer_unmap(unsafe.Pointer(&b.b[0]), C.size_t(len(b.b)))
		b.b = nil
	}
}
