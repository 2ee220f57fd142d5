#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, by rdma.sh: all that is promised of a region's peers, where they reach it by
# adapters.
#
#	rdma_regions.sh BUILD
set -eu

"$1/tests/vm/rdma_region"
"$1/tests/vm/rdma_remote"
"$1/tests/vm/rdma_remote_peers"
"$1/tests/vm/rdma_migrate"
"$1/tests/vm/rdma_migrate_kills"
"$1/kedge" migrate --way rdma --node "$RDMA_SERVER_ADDR" -s 64M | tee /dev/stderr |
	grep -q '^2 of 2 were copied by the adapters'
for who in owner target peer; do
	"$1/kedge" migrate --way rdma --node "$RDMA_SERVER_ADDR" -s 4M -n 3 --kill $who \
		-k "${KEDGE_TEST_ROUNDS:-12}"
done
