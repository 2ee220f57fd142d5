#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, as root: run a test of a module of ours, then remove the module and
# see that nothing of it is left.
#
#	left.sh ummunot|kedge_segment PROGRAM [ARGUMENT...]
set -u
slab=/sys/kernel/slab
name=$1
mod=/sys/module/$name
shift
# Address spaces: a few more live than before where a daemon of the kernel's started a
# helper. With segments the count goes by slabs of some 20, of which each CPU may have one
# more than before.
case $name in
ummunot) node=/dev/ummunot more=8 ;;
*) node=/dev/kedge-segment more=64 ;;
esac

die()
{
	echo "left.sh: $name: $*" >&2
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
until [ "$(cat "$mod/refcnt")" = 0 ]; do
	n=$((n + 1))
	[ $n -lt 50 ] || die "refcnt $(cat "$mod/refcnt")"
	sleep 0.2
done
watches=$(objects ummunot_watch)
[ "$watches" = 0 ] || [ "$name" != ummunot ] || die "$watches watches are left"
rmmod "$name" || die "cannot remove the module"
[ ! -e $node ] || die "the node is left"
[ ! -e $slab/ummunot_watch ] || [ "$name" != ummunot ] || die "the slab cache is left"

# An address space is freed a moment after its last process.
n=0
until mm_after=$(objects mm_struct); [ "$mm_after" -le $((mm_before + more)) ]; do
	n=$((n + 1))
	[ $n -lt 50 ] || die "mm_struct: $mm_before before, $mm_after after"
	sleep 0.2
done
echo "left: mm_struct $mm_before before and $mm_after after"
exit $status
