#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, as root: run a test of /dev/kedge-segment, then remove the module
# and see that nothing of it is left.
#
#	kseg.sh PROGRAM [ARGUMENT...]
set -u
slab=/sys/kernel/slab
mod=/sys/module/kedge_segment

die()
{
	echo "kseg.sh: $*" >&2
	exit 1
}

# Objects of a slab cache, after what is free was given back.
objects()
{
	echo 1 >"$slab/$1/shrink" 2>/dev/null
	awk '{ print $1 }' "$slab/$1/objects" 2>/dev/null || echo 0
}

mm_before=$(objects mm_struct)
"$(dirname "$0")/swap_space.sh" "$@"
status=$?

# The last descriptors are closed by exiting processes a moment later.
n=0
until [ "$(cat $mod/refcnt)" = 0 ]; do
	n=$((n + 1))
	[ $n -lt 50 ] || die "refcnt $(cat $mod/refcnt)"
	sleep 0.2
done
rmmod kedge_segment || die "cannot remove the module"
[ ! -e /dev/kedge-segment ] || die "the node is left"

# An address space is freed a moment after its last process. The count goes by
# slabs of some 20, of which each CPU may have one more than before.
n=0
until mm_after=$(objects mm_struct); [ "$mm_after" -le $((mm_before + 64)) ]; do
	n=$((n + 1))
	[ $n -lt 50 ] || die "mm_struct: $mm_before before, $mm_after after"
	sleep 0.2
done
echo "left: mm_struct $mm_before before and $mm_after after"
exit $status
