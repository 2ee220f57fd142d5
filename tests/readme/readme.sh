#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# readme.sh PROGRAM README: README.md's program ends well, and prints what
# README.md says it prints where this machine's notifier is "ordered".
set -u

out=$("$1" 2>&1)
status=$?
echo "$out"
case $out in
io_uring:*)
	echo "skipped: this machine has no io_uring for us"
	exit 77
	;;
esac
[ $status = 0 ] || exit 1
case $out in
*", 0 hits"*)
	# No notifier here: right, and slow. Nothing to compare.
	case $out in "8 reads, 0 wrong, "*) exit 0 ;; esac
	exit 1
	;;
esac
if ! grep -Fqx "$out" "$2"; then
	echo "README.md promises something else"
	exit 1
fi
