// SPDX-License-Identifier: BSD-2-Clause

package kedge

// The libraries are named here, not by pkg-config: kedge.pc links libkedge-hooks by an
// argument of the linker's that cgo does not let through. Headers and libraries that
// are where no compiler looks are named by CGO_CFLAGS and CGO_LDFLAGS.

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -lkedge
// #include "shim.h"
import "C"
