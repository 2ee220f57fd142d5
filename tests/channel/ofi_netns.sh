#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two hosts, which are two network namespaces with a wire between them, by
# libfabric's tcp: IPv4, IPv6, and a peer that dies. Needs root.
#
#	ofi_netns.sh OFI_ENDS
ENDS=$1

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"
# shellcheck source=tests/channel/ofi_lib.sh
. "$(dirname "$0")/ofi_lib.sh"

both tcp 192.0.2.1 7471 400
both tcp fd00:6b65::1 7471 100
killed tcp 192.0.2.1 7471 connect
killed tcp 192.0.2.1 7471 serve
exit "$FAILED"
