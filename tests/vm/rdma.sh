#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, as root: bring soft-RoCE up, run a command, and see that it left
# nothing behind in the RDMA stack.
#
#	rdma.sh one|two COMMAND [ARGUMENT...]
#
# one: a device, rxe0, on a dummy interface; a peer is reached by loopback.
# two: rxe0 and rxe1 on the ends of a veth wire, and every packet between them
# goes over it. Linux 6.12's soft-RoCE still listens in the first network
# namespace alone and cannot be moved, so both ends stay there and the routes
# make two hosts of them.
#
# The command's environment says where the ends are: RDMA_SERVER_DEV, _ADDR and
# _GID (the index of its RoCE v2 address), RDMA_CLIENT_DEV, _ADDR and _GID.
set -eu

die()
{
	echo "rdma.sh: $*" >&2
	exit 1
}

# link INTERFACE DEVICE ADDRESS
link()
{
	ip addr add "$3/24" dev "$1" noprefixroute
	# Room for RDMA packets of 4 KiB: four times fewer than of 1 KiB.
	ip link set "$1" mtu 9000 up
	rdma link add "$2" type rxe netdev "$1"
}

# The index of a device's address: RoCE v2 has the IPv4 address mapped.
gid()
{
	n=0
	while [ $n -lt 600 ]; do
		for f in /sys/class/infiniband/"$1"/ports/1/gids/?; do
			case $(cat "$f") in
			0000:0000:0000:0000:0000:ffff:*)
				basename "$f"
				return
			esac
		done
		n=$((n + 1))
		sleep 0.1
	done
	die "$1 has no RoCE v2 address"
}

one()
{
	# Anew: the module makes one, and another command may have used it.
	ip link del dummy0 2>/dev/null || :
	ip link add dummy0 type dummy
	link dummy0 rxe0 192.0.2.1
	RDMA_SERVER_DEV=rxe0 RDMA_SERVER_ADDR=192.0.2.1
	RDMA_CLIENT_DEV=rxe0 RDMA_CLIENT_ADDR=192.0.2.1
}

# Packets of one end to the other's address, which is this machine's own too,
# shall leave by the wire: "local" is looked up only for those that came in by it.
wire()
{
	for end in left right; do
		sysctl -q -w net.ipv4.conf.$end.accept_local=1 \
			net.ipv4.conf.$end.rp_filter=0
		ip rule add pref 10 iif $end lookup local
	done
	sysctl -q -w net.ipv4.conf.all.rp_filter=0
	ip rule add pref 10 to 127.0.0.0/8 lookup local
	ip rule add pref 32000 lookup local
	ip rule del pref 0
	ip route add 192.0.2.2 dev left src 192.0.2.1
	ip route add 192.0.2.1 dev right src 192.0.2.2
}

two()
{
	ip link add left type veth peer name right
	link left rxe0 192.0.2.1
	link right rxe1 192.0.2.2
	wire
	RDMA_SERVER_DEV=rxe0 RDMA_SERVER_ADDR=192.0.2.1
	RDMA_CLIENT_DEV=rxe1 RDMA_CLIENT_ADDR=192.0.2.2
}

# Objects of processes; the kernel's own connection manager has a few more.
left_over()
{
	for what in mr cq qp pd cm_id; do
		rdma -d resource show $what 2>/dev/null | grep ' pid ' || :
	done
}

case ${1-} in
one) one ;;
two) two ;;
*) die "usage: rdma.sh one|two COMMAND [ARGUMENT...]" ;;
esac
shift
RDMA_SERVER_GID=$(gid "$RDMA_SERVER_DEV")
RDMA_CLIENT_GID=$(gid "$RDMA_CLIENT_DEV")
export RDMA_SERVER_DEV RDMA_SERVER_ADDR RDMA_SERVER_GID
export RDMA_CLIENT_DEV RDMA_CLIENT_ADDR RDMA_CLIENT_GID
# Pinned memory is counted, and root is not bound by it: the command may be.
# shellcheck disable=SC3045 # dash has it
ulimit -l unlimited
status=0
"$@" || status=$?

# Objects of a process are given back a moment after its end.
n=0
until [ -z "$(left_over)" ]; do
	n=$((n + 1))
	[ $n -lt 300 ] || { left_over >&2; die "the command left these"; }
	sleep 0.1
done
# A command may have begun to remove one, which ends with its last user.
for dev in /sys/class/infiniband/rxe*; do
	rdma link delete "$(basename "$dev")" 2>/dev/null || :
	n=0
	while [ -e "$dev" ]; do
		n=$((n + 1))
		[ $n -lt 300 ] || die "$dev cannot be removed"
		sleep 0.1
	done
done
exit $status
