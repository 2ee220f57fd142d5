#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: two ranks of Open MPI over libfabric's verbs, whose buffer changes
# its pages between messages. Without libkedge-fi some arrive wrong, which shows that the test can
# see it; with it none.
#
#	mpi.sh FOLDER-OF-LIBKEDGE-FI
set -u
folder=$1
here=$(dirname "$0")
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
program=$tmp/mpi_pages
passed=0
failed=0

command -v mpicc.openmpi >/dev/null || {
	echo "skipped: there is no Open MPI (Debian's libopenmpi-dev)"
	exit 77
}
mpicc.openmpi -D_GNU_SOURCE -I"$here/../.." -o "$program" "$here/mpi_pages.c" || exit 1

# The launcher asks for the host's name, and its daemon for an address.
hostname kedge
ip link set lo up

# What soft-RoCE has room for.
export FI_UNIVERSE_SIZE=2 FI_OFI_RXM_MSG_TX_SIZE=64 FI_OFI_RXM_MSG_RX_SIZE=64
export FI_OFI_RXM_USE_SRX=0 FI_LOG_LEVEL=warn
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# wrong HOW: how many messages, on stdout
wrong()
{
	timeout 250 mpirun.openmpi --oversubscribe -np 2 --mca pml cm --mca mtl ofi \
		--mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca btl self \
		--mca oob_tcp_if_include lo "$program" "$1" >"$tmp/out" 2>"$tmp/err" || {
		sed 's/^/    /' "$tmp/out" "$tmp/err" >&2
		return
	}
	sed -n 's/.*: \([0-9]*\) of .*/\1/p' "$tmp/out"
}

# expect WHAT HOW none|some: of the messages are wrong
expect()
{
	n=$(wrong "$2")
	case $3-${n:-x} in
	none-0 | some-[1-9]*)
		echo "ok   $1: $2: $n wrong"
		passed=$((passed + 1))
		;;
	*)
		echo "FAIL $1: $2: ${n:-no answer}"
		failed=$((failed + 1))
		;;
	esac
}

unset FI_PROVIDER_PATH
expect 'as Debian ships it' kept none
expect 'as Debian ships it' munmap none
expect 'as Debian ships it' raw-munmap some
expect 'as Debian ships it' raw-dontneed some
export FI_PROVIDER_PATH="$folder"
for how in kept munmap raw-munmap raw-dontneed; do
	expect 'with libkedge-fi' $how none
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
