# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
# Sourced: makes two hosts, and ends them with the script. $SERVER is at
# 192.0.2.1 and fd00:6b65::1, $CLIENT at ...2; skips where that is not allowed.
ns=kedge-$$
SERVER="ip netns exec $ns-1"
# shellcheck disable=SC2034
CLIENT="ip netns exec $ns-2"

gone()
{
	ip netns del "$ns-1" 2>/dev/null
	ip netns del "$ns-2" 2>/dev/null
}

skip()
{
	echo "skipped: $*"
	exit 77
}

command -v ip >/dev/null || skip "there is no ip (iproute2)"
trap gone EXIT
trap 'exit 1' HUP INT TERM
ip netns add "$ns-1" 2>/dev/null || skip "making a network namespace needs root"
ip netns add "$ns-2" || exit 1
ip link add "k$$" netns "$ns-1" type veth peer name "k$$" netns "$ns-2" ||
	skip "this kernel has no veth"
for i in 1 2; do
	ip -n "$ns-$i" addr add "192.0.2.$i/24" dev "k$$" || exit 1
	ip -n "$ns-$i" addr add "fd00:6b65::$i/64" dev "k$$" nodad || exit 1
	ip -n "$ns-$i" link set lo up
	ip -n "$ns-$i" link set "k$$" up || exit 1
done
