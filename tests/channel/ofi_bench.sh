#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Bandwidth between two network namespaces with a wire between them: kedge's
# channel, by kedge perf, and libfabric's own calls (sends, and RMA writes), in turns. Prints
# the medians of ROUNDS runs in Gbit/s, and kedge's against the better of the
# two. Needs root. WITH comes before the commands: "chrt -r 10" on a machine that
# has other things to do. CONGESTION is TCP's congestion control (the system's).
#
# Not "chrt -f": both ends poll without end, and now and then the kernel leaves the
# second on the processor of the first, where of one SCHED_FIFO priority it never
# runs. A run that does not end in 20 seconds is ended, told of, and left out.
#
#	[WITH=...] [CONGESTION=...] ofi_bench.sh KEDGE OFI_BENCH [ROUNDS [LEN...]]
KEDGE=$1
BENCH=$2
rounds=${3:-5}
shift 2
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 65536 262144 1048576 4194304 16777216

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"
# shellcheck disable=SC2154 # $ns is netns.sh's
# By the route: a namespace may not choose each one for all of its sockets.
for i in 1 2; do
	[ -z "${CONGESTION:-}" ] ||
		ip -n "$ns-$i" route replace 192.0.2.0/24 dev "k$$" scope link \
			src "192.0.2.$i" congctl "$CONGESTION" || exit 1
done

port=7500
# run WAY LEN COUNT WINDOW: at $port, which is another one each time
run()
{
	# shellcheck disable=SC2086 # words
	$SERVER ${WITH:-} timeout --foreground -s KILL 20 \
		"$BENCH" serve "$1" tcp 192.0.2.1 $port "$2" "$3" "$4" &
	server=$!
	# shellcheck disable=SC2086
	$CLIENT ${WITH:-} timeout --foreground -s KILL 20 \
		"$BENCH" connect "$1" tcp 192.0.2.1 $port "$2" "$3" "$4"
	wait $server || echo "$1 $2 failed" >&2
}

# perf LEN WINDOW: the same by kedge
perf()
{
	# shellcheck disable=SC2086 # words
	$SERVER ${WITH:-} timeout --foreground -s KILL 20 \
		"$KEDGE" perf --listen -q -t tcp 192.0.2.1:$port 2>/dev/null &
	server=$!
	until $SERVER ss -Hltn "sport = :$port" | grep -q . || ! kill -0 $server 2>/dev/null; do
		sleep 0.05
	done
	# shellcheck disable=SC2086
	$CLIENT ${WITH:-} timeout --foreground -s KILL 20 \
		"$KEDGE" perf --connect 192.0.2.1:$port -q -t tcp -s "$1" -w "$2" -r 3 --json |
		python3 -c 'import json, sys
print("%.3f" % (8 * json.load(sys.stdin)["rows"][0]["gbps"]))'
	wait $server || echo "kedge $1 failed" >&2
}

median()
{
	printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"
}

printf '%10s %8s %8s %8s %6s\n' bytes kedge msg rma ratio
for len; do
	count=$((536870912 / len))
	window=$((33554432 / len))
	[ $window -le 16 ] || window=16
	[ $window -ge 2 ] || window=2
	kedge='' msg='' rma=''
	i=0
	while [ $i -lt "$rounds" ]; do
		kedge="$kedge $(perf "$len" $window)"
		port=$((port + 1))
		msg="$msg $(run msg "$len" $count $window)"
		port=$((port + 1))
		rma="$rma $(run rma "$len" $count $window)"
		port=$((port + 1))
		i=$((i + 1))
	done
	# shellcheck disable=SC2086
	k=$(median $kedge) m=$(median $msg) r=$(median $rma)
	awk -v len="$len" -v k="$k" -v m="$m" -v r="$r" 'BEGIN {
		best = m > r ? m : r
		printf "%10d %8.2f %8.2f %8.2f %6.2f\n", len, k, m, r,
			best ? k / best : 0 }'
done
