#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A region is reached from another host by the address that its handle names. A peer hears that the
# owner's host is gone, in time; one whose owner only suspends the region waits, for longer than
# that. Two network namespaces, so it needs root.
#
#	hosts.sh HOSTS
HOSTS=$1

# shellcheck source=tests/channel/netns.sh
. "$(dirname "$0")/../../channel/netns.sh"

out=$(mktemp -d) || exit 1
owner=
peer=
# By the number alone, and only those that were started here.
end()
{
	for p in $owner $peer; do
		kill "$p" 2>/dev/null
	done
	gone
	rm -rf "$out"
}
trap end EXIT
mkfifo "$out/owner" "$out/peer"

# wait_for WORD FILE PID: what has been said, by a process that has not ended
wait_for()
{
	until grep -q "$1" "$2"; do
		kill -0 "$3" 2>/dev/null || {
			echo "FAIL: no \"$1\" before the end"
			exit 1
		}
		sleep 0.1
	done
}

# begin NODE
begin()
{
	: >"$out/1"
	$SERVER "$HOSTS" own "$1" <"$out/owner" >"$out/1" &
	owner=$!
	exec 7>"$out/owner"
	wait_for kedge1: "$out/1" $owner
	handle=$(head -n 1 "$out/1")
}

# start WHAT
start()
{
	: >"$out/2"
	$CLIENT "$HOSTS" "$1" "$handle" <"$out/peer" >"$out/2" &
	peer=$!
	exec 8>"$out/peer"
	wait_for ready "$out/2" $peer
}

finish()
{
	exec 7>&-
	wait $owner || { echo "FAIL: the owner"; exit 1; }
	owner=
}

for node in 192.0.2.1 fd00:6b65::1; do
	begin $node
	$CLIENT "$HOSTS" put "$handle" || { echo "FAIL: put, $node"; exit 1; }
	finish
done

begin 192.0.2.1
echo >&7
wait_for suspended "$out/1" $owner
start wait
# The host's time, and some: what has to be shown is that nothing happens in it. It is TCP's, which
# counts in real time.
sleep 2.5
kill -0 $peer || { echo "FAIL: an owner that is there is taken for gone"; exit 1; }
echo >&7
wait $peer || { echo "FAIL: a peer that waited"; exit 1; }
exec 8>&-
# The owner's host is heard, and its answer is lost, up to where the question is asked again.
ip -n "$ns-1" route add blackhole 192.0.2.2/32
start late
until ip netns exec "$ns-2" ss -tno state syn-sent | grep -q 'timer:(on,[^,]*,[1-9]'; do
	kill -0 $peer 2>/dev/null || { echo "FAIL: a peer gives up at once"; exit 1; }
	sleep 0.05
done
ip -n "$ns-1" route del blackhole 192.0.2.2/32
# Of one that is not there soon: it has failed a few times, and it is not known why.
n=0
while kill -0 $peer 2>/dev/null && [ $n -lt 200 ]; do
	sleep 0.1
	n=$((n + 1))
done
if kill -0 $peer 2>/dev/null; then
	for i in 1 2; do
		ip netns exec "$ns-$i" ss -tnoi state all
		ip -n "$ns-$i" neigh
		ip -n "$ns-$i" route
	done
	ps -o stat,wchan:30,args -p $owner -p $peer
fi >&2
wait $peer || { echo "FAIL: a peer whose first packets were lost"; exit 1; }
exec 8>&-
start cut
ip -n "$ns-1" link set "k$$" down
echo >&8
wait $peer || { echo "FAIL: a peer of a host that is gone"; exit 1; }
exec 8>&-
peer=
finish
