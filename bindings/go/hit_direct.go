// SPDX-License-Identifier: BSD-2-Clause

//go:build !go1.23 && !kedge_cgo

package kedge

// #include "shim.h"
import "C"

import "unsafe"

// asmcgocall calls C on the thread's own stack, as the runtime itself does where C
// returns soon: it does not tell the scheduler, which is most of what a call by cgo
// costs. A collection that wants the world stopped waits for it, so it is for hits and
// their puts alone: kedge_cache_tryget() and kedge_cache_tryput() take no lock and wait
// for no device, nor do they call Go.
//
// From Go 1.23 on the linker refuses such names; the tag kedge_cgo does without as well.
//
//go:linkname asmcgocall runtime.asmcgocall
//go:noescape
func asmcgocall(fn, arg unsafe.Pointer) int32

var (
	cacheHit    = unsafe.Pointer(C.go_cache_hit)
	cacheTryPut = unsafe.Pointer(C.go_cache_tryput)
)

// hit is a registration that is there already, or nil.
func (c *Cache) hit(at *C.uchar, n int, access Access) *C.struct_kedge_mr {
	h := C.struct_go_hit{cache: c.h, addr: C.uintptr_t(uintptr(unsafe.Pointer(at))),
		len: C.size_t(n), access: C.uint32_t(access)}
	if asmcgocall(cacheHit, unsafe.Pointer(&h)) != 0 {
		return nil
	}
	return h.mr
}

// tryPut ends a reference, if that is all there is to do.
func (c *Cache) tryPut(mr *C.struct_kedge_mr) bool {
	h := C.struct_go_hit{cache: c.h, mr: mr}
	return asmcgocall(cacheTryPut, unsafe.Pointer(&h)) == 0
}
