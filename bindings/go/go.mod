// SPDX-License-Identifier: BSD-2-Clause

// The path names no host: a path that begins with one is looked for there, and the
// project has none. Programs add "replace kedge => FOLDER", as docs/go.md shows.
module kedge

go 1.19
