#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A host that is gone is noticed, with something under way to it or nothing; a
# peer that does not read for longer than that is not taken for gone. Two network
# namespaces, so it needs root.
#
#	tcp_gone.sh GONE
GONE=$1

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"

out=$(mktemp -d) || exit 1
trap 'gone; rm -rf "$out"' EXIT
mkfifo "$out/server" "$out/client"
FAILED=0

# until_ready FILE PID: a peer has said so; one that ends first is a failure
until_ready()
{
	until grep -q ready "$1"; do
		kill -0 "$2" 2>/dev/null || {
			echo "FAIL: a peer ended before it was ready"
			exit 1
		}
		sleep 0.1
	done
}

# begin WHAT: both ends are connected; 7 is the server's input, 8 the client's
begin()
{
	: >"$out/1"
	: >"$out/2"
	$SERVER "$GONE" serve 192.0.2.1 7480 <"$out/server" >"$out/1" &
	server=$!
	exec 7>"$out/server"
	$CLIENT "$GONE" "$1" 192.0.2.1 7480 <"$out/client" >"$out/2" &
	client=$!
	exec 8>"$out/client"
	until_ready "$out/1" $server
	until_ready "$out/2" $client
}

# finish STATUS WHAT
finish()
{
	status=0
	wait $client || status=$?
	[ $status -eq "$1" ] || {
		echo "FAIL: $2: $status"
		FAILED=1
	}
	exec 7>&- 8>&-
	kill $server 2>/dev/null
	wait $server 2>/dev/null
}

for what in idle send; do
	begin $what
	ip -n "$ns-1" link set "k$$" down
	echo >&8
	finish 0 "a host that is gone ($what)"
	ip -n "$ns-1" link set "k$$" up
done

# Three times the deadline, with a full window.
begin full
sleep 6
kill -0 $client || { echo "FAIL: a busy peer is taken for gone"; FAILED=1; }
echo >&7
finish 2 "a peer that was busy"
exit $FAILED
