#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge perf between two hosts, which are two network namespaces with a wire
# between them: every byte is verified, by IPv4 and IPv6, at a port that is
# named and at the default one; and an end that is killed is told. Needs root.
#
#	perf_netns.sh KEDGE
KEDGE=$1

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"

out=$(mktemp -d) || exit 1
trap 'gone; rm -rf "$out"' EXIT
FAILED=0

# measure LISTEN CONNECT OPTION...: the addresses as each end names them
measure()
{
	where=$1 to=$2
	shift 2
	# Not what the one before said.
	: >"$out/listen"
	# shellcheck disable=SC2086 # words
	$SERVER "$KEDGE" perf --listen -t tcp $where 2>"$out/listen" &
	server=$!
	until grep -q listening "$out/listen" || ! kill -0 $server; do
		sleep 0.1
	done
	$CLIENT "$KEDGE" perf --connect "$to" -t tcp -C -r 1 --json "$@" \
		>"$out/json" || {
		echo "FAIL: perf --connect $to"
		FAILED=1
		# It would wait for another client.
		kill $server 2>/dev/null
	}
	wait $server || {
		echo "FAIL: perf --listen $where: $(cat "$out/listen")"
		FAILED=1
	}
	python3 - "$out/json" <<'END' || FAILED=1
import json
import sys

d = json.load(open(sys.argv[1]))
rows = d["rows"]
if d["wrong"] or not d["check"] or not d["remote"] or not rows:
    sys.exit("FAIL: %r" % d)
if any(r["gbps"] <= 0 or not sum(r["ways"].values()) for r in rows):
    sys.exit("FAIL: %r" % rows)
print("%d rows, every byte is right" % len(rows))
END
}

# The other end is killed in the middle, which is told.
$SERVER "$KEDGE" perf --listen -t tcp 2>"$out/listen" &
server=$!
until grep -q listening "$out/listen"; do sleep 0.1; done
$CLIENT timeout --foreground 60 "$KEDGE" perf --connect 192.0.2.1 -t tcp -s 8 -r 10000 \
	>"$out/json" 2>"$out/connect" &
client=$!
until $CLIENT ss -Htn state established | grep -q . || ! kill -0 $client; do sleep 0.1; done
sleep 0.2
kill -KILL $server
wait $client
status=$?
[ $status -eq 3 ] || {
	echo "FAIL: the other end was killed: $status, $(cat "$out/connect")"
	FAILED=1
}

measure '' 192.0.2.1 -s 1,8K,64K,1M,16M -b malloc,heap,fresh
measure 192.0.2.1:7500 192.0.2.1:7500 -s 64K,4M -W auto,direct,swap,copy,register
measure '[fd00:6b65::1]:7501' '[fd00:6b65::1]:7501' -s 8,1M
exit "$FAILED"
