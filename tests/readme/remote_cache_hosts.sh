#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# remote_cache_hosts.sh PROGRAM: remote_cache.py with two network namespaces as hosts, so it needs
# root.

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/../channel/netns.sh"

# shellcheck disable=SC2086 # commands of several words
"$(dirname "$0")/remote_cache.py" "$1" 192.0.2.1 $SERVER :: 192.0.2.2 $CLIENT || exit 1
# shellcheck disable=SC2086
"$(dirname "$0")/remote_cache.py" "$1" fd00:6b65::1 $SERVER :: fd00:6b65::2 $CLIENT || exit 1
