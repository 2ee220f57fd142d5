// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime/cgo"
	"sync"
	"syscall"
	"unsafe"
)

// Device is what registers memory for caches: kedge/uring.Ring, Memory, what NewDevice
// returns, or a type of the program's over a struct kedge_device * of other C code.
type Device interface {
	// Acquire returns the struct kedge_device *, which stays open until Release.
	// It is called once for each cache.
	Acquire() (unsafe.Pointer, error)
	Release()
}

// Memory is a device that registers nothing and numbers what it is given: to test and
// to measure by.
var Memory Device = &memory{}

type memory struct {
	once sync.Once
	dev  unsafe.Pointer
	err  error
}

func (m *memory) Acquire() (unsafe.Pointer, error) {
	m.once.Do(func() {
		o := C.go_device_memory()
		if o.rc != 0 {
			m.err = failure("open a device", "device", C.int64_t(o.rc), o.why)
		}
		m.dev = unsafe.Pointer(o.dev)
	})
	return m.dev, m.err
}

func (m *memory) Release() {}

// Registrar is a device that is written in Go.
//
// Its methods are called on any goroutine, several at once, with no lock of the library
// held, and do not use a cache of the device. A syscall.Errno in an error of Register
// is that of the Get, and its text the reason; -ENOSPC has the cache let go of something
// and try again. Else it is EIO. A panic in Register is an error of the Get; one in
// Deregister is printed.
type Registrar interface {
	// Register lets the device use length bytes at addr, whole pages, and returns
	// its handle, and its own position of the first byte, which often is addr.
	Register(addr uintptr, length int, access Access) (handle, offset uint64, err error)
	// Deregister ends it.
	Deregister(handle uint64)
}

// NewDevice makes a Device of r, which registers at most maxLen bytes at once (0: any
// number). Close ends it.
func NewDevice(r Registrar, maxLen uint64) (*GoDevice, error) {
	d := &GoDevice{handle: cgo.NewHandle(r)}
	o := C.go_device_open(C.uintptr_t(d.handle), C.uint64_t(maxLen))
	if o.rc != 0 {
		d.handle.Delete()
		return nil, failure("open a device", "device", C.int64_t(o.rc), o.why)
	}
	d.dev = o.dev
	return d, nil
}

// GoDevice is a Device over a Registrar.
type GoDevice struct {
	mu     sync.Mutex
	dev    *C.struct_kedge_device // nil: closed
	users  int
	handle cgo.Handle
}

// Acquire is for caches.
func (d *GoDevice) Acquire() (unsafe.Pointer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dev == nil {
		return nil, closedError("open a cache", "device")
	}
	d.users++
	return unsafe.Pointer(d.dev), nil
}

// Release is for caches.
func (d *GoDevice) Release() {
	d.mu.Lock()
	d.users--
	d.mu.Unlock()
}

// Close ends the device. It fails with EBUSY while a cache uses it.
func (d *GoDevice) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dev == nil {
		return closedError("close a device", "device")
	}
	if d.users > 0 {
		return inUse("close a device", "a cache uses the device")
	}
	C.kedge_device_close(d.dev)
	d.dev = nil
	d.handle.Delete()
	return nil
}

// register has a panic of the program's as an error: C's frames are between it and the
// program's own, and a cache whose call did not return is in use for ever.
func register(r Registrar, addr uintptr, n int, access Access) (h, o uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Register panics: %v", p)
		}
	}()
	return r.Register(addr, n, access)
}

//export goDeviceReg
func goDeviceReg(id C.uintptr_t, addr C.uintptr_t, length C.size_t, access C.uint32_t,
	handle, offset *C.uint64_t) C.int {
	r := cgo.Handle(id).Value().(Registrar)
	h, o, err := register(r, uintptr(addr), int(length), Access(access))
	if err == nil {
		*handle, *offset = C.uint64_t(h), C.uint64_t(o)
		return 0
	}
	errno := syscall.EIO
	if !errors.As(err, &errno) || errno == 0 {
		errno = syscall.EIO
	}
	why := C.CString(err.Error())
	C.go_device_why(-C.int(errno), why)
	C.free(unsafe.Pointer(why))
	return -C.int(errno)
}

//export goDeviceDereg
func goDeviceDereg(id C.uintptr_t, handle C.uint64_t) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, "kedge: Deregister panics:", p)
		}
	}()
	cgo.Handle(id).Value().(Registrar).Deregister(uint64(handle))
}
