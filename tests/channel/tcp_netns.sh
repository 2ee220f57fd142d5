#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two hosts, which are two network namespaces with a wire between them, over
# TCP: IPv4, IPv6, and a peer that dies. Needs root.
#
#	tcp_netns.sh TCP_ENDS
ENDS=$1

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"
# shellcheck source=tests/channel/ends.sh
. "$(dirname "$0")/ends.sh"

both tcp 192.0.2.1 7471 400
both tcp fd00:6b65::1 7471 100
killed tcp 192.0.2.1 7471 connect
killed tcp 192.0.2.1 7471 serve
exit "$FAILED"
