#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# archive.sh OUT OBJECT...: a static library that exports what the shared one
# does. The objects become one, in which hidden symbols are local: a program may
# have a pool_get() of its own.
set -eu
out=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
name=$(basename "$out" .a)
${LD:-ld} -r -o "$tmp/$name.o" "$@"
${OBJCOPY:-objcopy} --localize-hidden "$tmp/$name.o"
rm -f "$out"
${AR:-ar} rcsD "$out" "$tmp/$name.o"
