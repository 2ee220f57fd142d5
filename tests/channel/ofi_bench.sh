#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Bandwidth between two network namespaces with a wire between them: kedge's
# channel and libfabric's own calls (sends, and RMA writes), in turns. Prints
# the medians of ROUNDS runs in Gbit/s, and kedge's against the better of the
# two. Needs root. WITH comes before the commands: "chrt -f 10" on a machine that
# has other things to do. CONGESTION is TCP's congestion control (the system's).
#
#	[WITH=...] [CONGESTION=...] ofi_bench.sh OFI_BENCH [ROUNDS [LEN...]]
BENCH=$1
rounds=${2:-5}
shift
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 65536 262144 1048576 4194304 16777216

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/netns.sh"
# shellcheck disable=SC2154 # $ns is netns.sh's
for i in 1 2; do
	[ -z "${CONGESTION:-}" ] || ip netns exec "$ns-$i" sh -c \
		"echo $CONGESTION >/proc/sys/net/ipv4/tcp_congestion_control"
done

port=7500
# run WAY LEN COUNT WINDOW
run()
{
	port=$((port + 1))
	# shellcheck disable=SC2086 # words
	$SERVER ${WITH:-} "$BENCH" serve "$1" tcp 192.0.2.1 $port "$2" "$3" "$4" &
	server=$!
	# shellcheck disable=SC2086
	$CLIENT ${WITH:-} "$BENCH" connect "$1" tcp 192.0.2.1 $port "$2" "$3" "$4"
	wait $server || echo failed
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
		kedge="$kedge $(run kedge "$len" $count $window)"
		msg="$msg $(run msg "$len" $count $window)"
		rma="$rma $(run rma "$len" $count $window)"
		i=$((i + 1))
	done
	# shellcheck disable=SC2086
	k=$(median $kedge) m=$(median $msg) r=$(median $rma)
	awk -v len="$len" -v k="$k" -v m="$m" -v r="$r" 'BEGIN {
		best = m > r ? m : r
		printf "%10d %8.2f %8.2f %8.2f %6.2f\n", len, k, m, r,
			best ? k / best : 0 }'
done
