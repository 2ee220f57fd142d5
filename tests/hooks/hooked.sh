#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# When libkedge may say that libc's calls are announced: preloaded before and
# behind an allocator, opened late, not at all; beside a sanitizer.
# usage: hooked.sh libkedge-hooks.so hooked allocator.so RUNTIME.so...
set -u
hooks=$(readlink -f "$1") hooked=$(readlink -f "$2") alloc=$(readlink -f "$3")
fail=0
shift 3

# try WHAT PRELOAD ARGUMENT...
try()
{
	what=$1 preload=$2
	shift 2
	LD_PRELOAD=$preload timeout --foreground 60 "$hooked" "$@" && return
	echo "failed: $what" >&2
	fail=1
}

try "not there" "" 0
try "preloaded" "$hooks" 1
try "before an allocator" "$hooks $alloc" 1
try "behind an allocator" "$alloc $hooks" 0
try "opened late, for itself" "" 0 local "$hooks"
try "opened late, for all that come later" "" 0 global "$hooks"
try "opened late, searched first by itself" "" 0 deep "$hooks"
for runtime; do
	runtime=$(readlink -f "$runtime")
	try "beside $runtime" "$hooks $runtime" 0
	try "only $runtime" "$runtime" 0
done
try "another plug-in opened for itself" "$hooks" 1 local "$alloc"
exit $fail
