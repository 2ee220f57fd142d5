#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, by rdma.sh: all that is promised of a region's peers, where they reach it by
# adapters.
#
#	rdma_regions.sh BUILD
set -eu

for suite in region_adapter remote remote_peers remote_load migrate migrate_kills; do
	TEST_REGION_BY=rdma "$1/tests/unit/region/test_region_suites" $suite
done
"$1/kedge" migrate --way rdma --node "$RDMA_SERVER_ADDR" -s 64M | tee /dev/stderr |
	grep -q '^2 of 2 were copied by the adapters'
for who in owner target peer; do
	"$1/kedge" migrate --way rdma --node "$RDMA_SERVER_ADDR" -s 4M -n 3 --kill $who \
		-k "${KEDGE_TEST_ROUNDS:-12}"
done
