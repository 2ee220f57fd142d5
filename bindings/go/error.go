// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"os"
	"syscall"
	"unsafe"
)

// Error is what a call of the library failed with.
//
// errors.Is(err, syscall.EBUSY) and the like tell which it is, and
// errors.Is(err, os.ErrClosed) whether the object was closed.
type Error struct {
	Op     string        // the call, "get"
	Errno  syscall.Errno // which error it is
	Reason string        // what is wrong, and what to do about it

	closed bool
}

func (e *Error) Error() string {
	reason := e.Reason
	if reason == "" {
		reason = e.Errno.Error()
	}
	return "kedge: " + e.Op + ": " + reason
}

// Unwrap returns e.Errno.
func (e *Error) Unwrap() error { return e.Errno }

// Is tells errors.Is() that the error of a closed object is os.ErrClosed.
func (e *Error) Is(target error) bool {
	return e.closed && target == os.ErrClosed
}

func closedError(op, what string) *Error {
	return &Error{Op: op, Errno: syscall.EBADF, Reason: "the " + what + " is closed",
		closed: true}
}

// failure makes an Error of what a call answered, and frees the reason. The object is
// named where it may be closed.
func failure(op, what string, rc C.int64_t, why *C.char) error {
	if rc == C.GO_CLOSED {
		return closedError(op, what)
	}
	e := &Error{Op: op, Errno: syscall.Errno(-rc)}
	if why != nil {
		e.Reason = C.GoString(why)
		C.free(unsafe.Pointer(why))
	}
	return e
}

// counted is the answer of a call that returns a count.
func counted(op, what string, a C.struct_go_rc) (int, error) {
	if a.rc < 0 {
		return 0, failure(op, what, a.rc, a.why)
	}
	return int(a.rc), nil
}

func inUse(op, what string) error {
	return &Error{Op: op, Errno: syscall.EBUSY, Reason: what}
}

// Version is that of the library that is loaded.
func Version() string { return C.GoString(C.kedge_version()) }
