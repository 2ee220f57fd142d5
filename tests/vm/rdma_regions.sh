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
