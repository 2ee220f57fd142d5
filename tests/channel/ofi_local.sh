#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two processes of this host by those of libfabric's providers that are here, and
# one of them with a secret.
#
#	ofi_local.sh OFI_ENDS
ENDS=$1
SERVER=
CLIENT=
# shellcheck source=tests/channel/ends.sh
. "$(dirname "$0")/ends.sh"

port=$(free_port) || exit 1
for provider in shm 'tcp;ofi_rxm' 'udp;ofi_rxd'; do
	"$ENDS" has "$provider" || {
		echo "without $provider, which carries no channels here"
		continue
	}
	echo "$provider:"
	port=$((port + 10))
	both "$provider" 127.0.0.1 $port 200
	killed "$provider" 127.0.0.1 $port connect
	killed "$provider" 127.0.0.1 $port serve
done

secret=$(mktemp) || exit 1
trap 'rm -f "$secret"' EXIT
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$secret"
chmod 600 "$secret"
export KEDGE_CHANNEL_SECRET_FILE="$secret"
echo "with a secret:"
both shm 127.0.0.1 $((port + 10)) 50
exit "$FAILED"
