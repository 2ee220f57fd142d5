#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two processes of this host over TCP: random messages, peers that are killed, and
# the same with a secret.
#
#	tcp_local.sh TCP_ENDS
ENDS=$1
SERVER=
CLIENT=
# shellcheck source=tests/channel/ends.sh
. "$(dirname "$0")/ends.sh"

port=$(free_port) || exit 1
both tcp 127.0.0.1 "$port" 400
both tcp ::1 "$port" 50
killed tcp 127.0.0.1 "$port" connect
killed tcp 127.0.0.1 "$port" serve

secret=$(mktemp) || exit 1
trap 'rm -f "$secret"' EXIT
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$secret"
chmod 600 "$secret"
export KEDGE_CHANNEL_SECRET_FILE="$secret"
both tcp 127.0.0.1 "$port" 100
exit "$FAILED"
