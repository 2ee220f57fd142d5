// SPDX-License-Identifier: BSD-2-Clause

// Package kedge keeps memory registrations, and serves none whose pages have gone; it
// tells of changes of memory, and carries messages between processes. It is a binding
// of the C library libkedge.
//
// # The cache
//
// A program that hands memory to hardware registers it first: the kernel pins the pages, and
// the device keeps where they are. A Cache keeps registrations, so that the second Get of
// the same memory costs little. When the memory is unmapped, or its pages are dropped, as
// Go's runtime does with the free part of its heap, the registration is served no more.
//
//	ring, err := uring.Open(nil)
//	cache, err := kedge.OpenCache(ring, nil)
//	r, err := cache.Get(buf)
//	defer r.Put()
//	n, err := ring.ReadAt(file.Fd(), &r, 0)
//
// # Memory
//
// Any []byte will do. Go's heap does not move objects, a Registration keeps its memory
// from the garbage collector, and a slice of an array that might be on a goroutine's
// stack has the compiler place that array on the heap. The runtime drops pages of its
// heap that are free, so that memory which is allocated anew is registered anew; Alloc
// has memory outside of the heap, of which a registration lasts.
//
// # Errors, goroutines, processes
//
// A call that fails returns an *Error, which says in words what is wrong and what to do;
// errors.Is() compares it with values of syscall.Errno and with os.ErrClosed.
//
// Goroutines share all objects, and may put what others got. Programs in Go do not fork
// without executing another program, which has none of these objects.
package kedge
