#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, by rdma.sh: kedge perf --region --way rdma has a row for each size and guarantee,
# and says so where an address is no adapter's. No time is judged.
#
#	rdma_region_perf.sh KEDGE
set -eu

out=$("$1" perf --region --way rdma --node "$RDMA_SERVER_ADDR" -s 64,4K,1M,3M -r 1 --csv)
for size in 64 4096 1048576 3145728; do
	for row in get put_acked put; do
		echo "$out" | grep -q "^rdma_$row,$size,[0-9]"
	done
done
"$1" perf --region --way rdma --node "$RDMA_SERVER_ADDR" -s 4K -r 1 --json |
	grep -q '"way": "rdma"'
if "$1" perf --region --way rdma --node 192.0.2.200 -s 64 -r 1; then
	exit 1
fi
