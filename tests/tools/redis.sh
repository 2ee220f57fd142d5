#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# CPU time of a redis-server for a fixed number of requests, as it is, with
# libkedge-hooks preloaded, and with a preload that keeps the server's large
# allocations registered besides. The three take turns; printed are the medians of
# ROUNDS rounds, user and system time of the server, and the median of the ratios
# of each round. Needs redis-server and redis-benchmark; the server listens on a
# socket in a folder of its own.
#
#	redis.sh BUILD [ROUNDS [REQUESTS [LEN]]]
set -u
build=$(readlink -f "$1")
rounds=${2:-7} requests=${3:-100000} len=${4:-16384}

for tool in redis-server redis-benchmark; do
	command -v $tool >/dev/null && continue
	echo "skipped: there is no $tool"
	exit 77
done
hooks=$build/src/hooks/libkedge-hooks.so
watch=$build/tests/tools/libwatch_all.so
dir=$(mktemp -d) server=
trap '[ -z "$server" ] || kill $server; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
tick=$(getconf CLK_TCK)

# cpu PID: its user and system time in ms
cpu()
{
	sed 's/.*) //' "/proc/$1/stat" |
		awk -v tick="$tick" '{ print ($12 + $13) * 1000 / tick }'
}

# run PRELOAD: prints the server's CPU time for the requests, in ms
run()
{
	LD_LIBRARY_PATH=$build/src LD_PRELOAD=$1 redis-server --port 0 \
		--unixsocket "$dir/s" --save '' --appendonly no \
		--daemonize no >"$dir/log" 2>&1 &
	server=$!
	until redis-cli -s "$dir/s" ping >/dev/null 2>&1; do
		kill -0 $server 2>/dev/null || { cat "$dir/log" >&2; exit 3; }
	done
	before=$(cpu $server)
	# SETs of new values of LEN bytes, which replace each other; GETs; and
	# lists, whose nodes are reallocated.
	redis-benchmark -s "$dir/s" -q -n "$requests" -r 2000 -d "$len" -P 4 \
		-t set,get,lpush,lpop >/dev/null
	redis-benchmark -s "$dir/s" -q -n $((requests / 20)) -r 200 \
		-d 262144 -t set,get >/dev/null
	after=$(cpu $server)
	kill $server
	wait $server 2>/dev/null
	server=
	[ -z "${WATCH_ALL_SAY:-}" ] || grep watch_all "$dir/log" >&2
	echo "$before $after" | awk '{ print $2 - $1 }'
}

i=0
while [ $i -lt "$rounds" ]; do
	a=$(run "") || exit
	b=$(run "$hooks") || exit
	c=$(run "$hooks $watch") || exit
	echo "$a $b $c"
	i=$((i + 1))
done >"$dir/times"

# column EXPRESSION: the median over the rounds
column()
{
	awk "{ print $1 }" "$dir/times" | sort -n |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# shellcheck disable=SC2016 # awk's dollars
print_all()
{
	printf '%-9s %8s %6s\n' '' 'CPU ms' ratio
	printf '%-9s %8.0f %6.3f\n' plain "$(column '$1')" 1
	printf '%-9s %8.0f %6.3f\n' hooks "$(column '$2')" \
		"$(column '$2 / $1')"
	printf '%-9s %8.0f %6.3f\n' watching "$(column '$3')" \
		"$(column '$3 / $1')"
}

print_all
