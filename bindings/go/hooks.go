// SPDX-License-Identifier: BSD-2-Clause

//go:build kedge_hooks

package kedge

// With the tag kedge_hooks a program is linked to libkedge-hooks, too: what it maps and
// frees by libc is announced, so that a lookup in that memory makes no system call.

// #cgo LDFLAGS: -Wl,--no-as-needed -lkedge-hooks -Wl,--as-needed
import "C"
