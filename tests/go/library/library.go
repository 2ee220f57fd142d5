// SPDX-License-Identifier: BSD-2-Clause

// A C shared library written in Go, for a C program to open.
package main

import "C"

//export KedgeGoLibrary
func KedgeGoLibrary() int { return 1 }

func main() {}
