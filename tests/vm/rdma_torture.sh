#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: a peer reads and writes by rkey while mappings
# change. A naive cache must show stale data, so that the test is known to see
# it; kedge's must show none.
#
#	rdma_torture.sh KEDGE NOTIFIER SECONDS
set -eu
kedge=$1
notifier=$2
seconds=$3
device=verbs:$RDMA_CLIENT_DEV

die()
{
	echo "rdma_torture.sh: $*" >&2
	exit 1
}

# Longer where the machine has little time for it.
naive()
{
	for s in 5 20 60; do
		status=0
		"$kedge" torture -q --device "$device" --naive --event 'm*' \
			--seconds $s >"${TMPDIR:-/tmp}/naive" || status=$?
		tail -n 2 "${TMPDIR:-/tmp}/naive"
		[ $status = 1 ] || die "--naive ended with $status"
		grep -q '^stale: munmap by ' "${TMPDIR:-/tmp}/naive" && return
	done
	die "a naive cache survives munmap"
}

naive
strict=
[ "$notifier" != ummunot ] || strict=--strict
exec "$kedge" torture -q --device "$device" --notifier "$notifier" $strict \
	--seconds "$seconds"
