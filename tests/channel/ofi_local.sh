#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two processes of this host by libfabric's tcp, and by providers without
# connections, as far as they are here.
#
#	ofi_local.sh OFI_ENDS
ENDS=$1
SERVER=
CLIENT=
# shellcheck source=tests/channel/ofi_lib.sh
. "$(dirname "$0")/ofi_lib.sh"

port=$(python3 -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])') || exit 1

both tcp 127.0.0.1 "$port" 400
killed tcp 127.0.0.1 "$port" connect
killed tcp 127.0.0.1 "$port" serve
for provider in shm 'tcp;ofi_rxm' 'udp;ofi_rxd'; do
	"$ENDS" has "$provider" || {
		echo "without $provider, which libfabric does not have here"
		continue
	}
	echo "$provider:"
	port=$((port + 10))
	both "$provider" 127.0.0.1 $port 200
	killed "$provider" 127.0.0.1 $port connect
	killed "$provider" 127.0.0.1 $port serve
done
exit "$FAILED"
