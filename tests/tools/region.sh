#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge perf --region: every row is there, and no access failed beside what the owner did;
# what it says of mistakes, and where there is no memory for a region. No time is judged.
# And a few seconds of kedge torture --region.
# usage: region.sh kedge
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
unset MALLOC_PERTURB_

expect 2 perf --region --segment
says err 'not both'
expect 2 perf --region --csv --json
for o in '-W rdma' '--node 192.0.2.1' '-W auto --node 192.0.2.1' '-W auto' '-b heap' '-t tcp' '--connect x' --listen '-p ucx' -C -u -T -m \
	'-w 3' '--seed 1' '--plot x.svg' x
do
	# shellcheck disable=SC2086 # words
	expect 2 perf --region $o
done
for s in 63 1 17M 128M; do
	expect 2 perf --region -s "64,$s"
	says err "'$s' is no size from 64 to 16M, as --region takes them"
done
expect 2 perf --region -s 0
expect 2 perf --region --backend convert
expect 2 perf --node 192.0.2.1
says err 'belongs to --region'
expect 2 perf --segment --node 192.0.2.1
expect 3 perf --region --way rdma --node 192.0.2.256
says err 'rdma'
for o in '--threads 3' '--event x' --churn --channel --segment '--messages 3' '--gets 3'
do
	# shellcheck disable=SC2086 # words
	expect 2 torture --region $o
done
expect 2 torture --region --seconds 0

# The limit binds a process without CAP_IPC_LOCK.
if [ "$(id -u)" -ne 0 ]; then
	prlimit --memlock=65536:65536 "$KEDGE" perf --region -r 1 -s 64 >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 3 ] || fail 'it has a region beyond the limit'
	says err 'the owner has no region: RLIMIT_MEMLOCK is 64 KiB'
	prlimit --memlock=65536:65536 "$KEDGE" torture -q --region --seconds 1 >"$DIR/out" \
		2>"$DIR/err"
	[ $? -eq 3 ] || fail 'it tortures a region beyond the limit'
	says err 'no region: RLIMIT_MEMLOCK is 64 KiB'
fi

"$KEDGE" perf --region -r 1 -s 64,4K --csv >"$DIR/out" 2>"$DIR/err"
if [ $? -eq 3 ]; then
	[ "$FAILED" -eq 0 ] || exit 1
	echo "skipped: $(cat "$DIR/err")"
	exit 77
fi
silent err
for row in get,64 put,64 get,4096 put,4096 add,8 served_get,64 served_put,4096 submit,64 \
	served_submit,64 move,67108864 \
	advertise,0 open,0 revoke,0
do
	says out "$row,"
done
if in_whole; then
	expect 0 perf --region -r 1 -s 64 --json
	says out '"failed": 0'
fi
expect 0 torture -q --region --seconds "$(by_circle 1 3)"
says out '0 lost, 0 torn, 0 errors, 0 crashes'
expect 0 torture -q --region --seconds 1 --json
says out '"lost": 0'
says out '"migrations": '
exit "$FAILED"
