#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-headers.sh SOURCE: each public header compiles alone, as C11 and as
# C++17, strictly and without a warning.
set -eu

src=${1:?usage: check-headers.sh SOURCE}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
warn="-Wall -Wextra -Wpedantic -Wundef -Werror"
bad=0

try()
{
	# shellcheck disable=SC2086 # lists of words
	if ! $1 $2 $warn -I "$src/include" -fsyntax-only "$3"; then
		echo "$4: does not compile alone with $1 $2" >&2
		bad=1
	fi
}

for h in "$src"/include/kedge/*.h; do
	name=kedge/$(basename "$h")
	# Twice, so that a missing guard shows.
	printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$tmp/one.c"
	echo 'int kedge_header_alone; ' >>"$tmp/one.c"
	cp "$tmp/one.c" "$tmp/one.cc"
	for cc in gcc clang; do
		command -v $cc >/dev/null || continue
		try $cc "-std=c11 -Wshadow -Wstrict-prototypes" "$tmp/one.c" "$name"
	done
	for cxx in g++ clang++; do
		command -v $cxx >/dev/null || continue
		try $cxx -std=c++17 "$tmp/one.cc" "$name"
	done
done
exit $bad
