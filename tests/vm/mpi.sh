#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: two ranks of Open MPI over libfabric's verbs, and over UCX, whose
# buffer changes its pages between messages. Without kedge some arrive wrong, which shows that the
# test can see it; with libkedge-fi or libkedge-ucx, and under "kedge run", none.
#
#	mpi.sh BUILD [PREFIX...]
#
# With folders that other versions of UCX are installed in, those alone, under the same MPI.
set -u
folder=$1/src/adapter/libfabric
watching=$1/src/adapter/ucx/libkedge-ucx.so
kedge=$1/kedge
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
# Its address of IPv4 is not answered by UCX's connections.
export UCX_IB_GID_INDEX=0 UCX_TLS=rc_v,ud_v:aux,self
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ofi='--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm'
ucx='--mca pml ucx'

# wrong TRANSPORT HOW [COMMAND...]: how many messages, on stdout; of $threads in each rank
threads=
wrong()
{
	over=$1
	how=$2
	shift 2
	# shellcheck disable=SC2086 # a list of words
	timeout 250 "$@" mpirun.openmpi --oversubscribe -np 2 $over --mca btl self \
		--mca oob_tcp_if_include lo "$program" "$how" $threads \
		>"$tmp/out" 2>"$tmp/err" || {
		sed 's/^/    /' "$tmp/out" "$tmp/err" >&2
		return
	}
	sed -n 's/.*: \([0-9]*\) of .*/\1/p' "$tmp/out"
}

# result NAME: of the last command
result()
{
	if [ $? = 0 ]; then
		echo "ok   $1"
		passed=$((passed + 1))
	else
		echo "FAIL $1"
		failed=$((failed + 1))
	fi
}

# expect WHAT none|some TRANSPORT HOW [COMMAND...]: of the messages are wrong
expect()
{
	what=$1
	want=$2
	shift 2
	n=$(wrong "$@")
	case $want-${n:-x} in
	none-0 | some-[1-9]*) true ;;
	*) false ;;
	esac
	result "$what: $2: ${n:-no answer} wrong"
}

says()
{
	grep -q "$1" "$tmp/err"
	result "says '$1'"
}

says_not()
{
	! grep "$1" "$tmp/err"
	result "does not say '$1'"
}

# examine STATUS SAYS TRANSPORT HOW [OPTION...]: by the doctor
examine()
{
	want=$1
	text=$2
	over=$3
	how=$4
	shift 4
	# shellcheck disable=SC2086 # a list of words
	timeout 250 "$kedge" doctor "$@" -- mpirun.openmpi --oversubscribe -np 2 $over \
		--mca btl self --mca oob_tcp_if_include lo "$program" "$how" \
		>"$tmp/out" 2>"$tmp/err"
	status=$?
	[ $status = "$want" ] && grep -q "$text" "$tmp/err"
	result "kedge doctor $* ($how): $text: exit status $status: $(grep '^kedge' "$tmp/err")"
}

unset FI_PROVIDER_PATH
finish()
{
	echo "$passed passed, $failed failed, 0 skipped"
	[ $failed = 0 ]
	exit
}

# other PREFIX: the UCX there
other()
{
	LD_LIBRARY_PATH=$1/lib
	export LD_LIBRARY_PATH
	version=$("$1/bin/ucx_info" -v | sed -n 's/.*version: *//p; s/.*Library version: *//p' | head -n 1)
	for how in kept munmap; do
		expect "UCX $version" none "$ucx" $how
	done
	for how in raw-munmap raw-dontneed; do
		expect "UCX $version" some "$ucx" $how
	done
	for how in kept munmap raw-munmap raw-dontneed; do
		LD_PRELOAD=$watching expect "UCX $version with libkedge-ucx" none "$ucx" $how
		says_not 'libkedge-ucx'
	done
	LD_PRELOAD=$watching examine 0 'nothing stale' "$ucx" raw-munmap
	# Changes that leave no hole, in which another thread might map its own.
	threads=4
	expect "UCX $version, $threads threads" some "$ucx" raw-dontneed
	LD_PRELOAD=$watching expect "UCX $version with libkedge-ucx, $threads threads" none "$ucx" \
		raw-dontneed
	threads=
	LD_PRELOAD=$watching expect "UCX $version with libkedge-ucx under kedge run --keep-caches" \
		none "$ucx" raw-munmap "$kedge" run -t --keep-caches --check --
	LD_PRELOAD=$watching expect "UCX $version with libkedge-ucx under kedge run" none "$ucx" \
		raw-munmap "$kedge" run --ucx --check --
	says 'libkedge-ucx is preloaded'
	unset LD_LIBRARY_PATH
}

if [ $# -gt 1 ]; then
	shift
	for prefix; do
		other "$prefix"
	done
	finish
fi

for how in kept munmap; do
	expect 'libfabric, as Debian ships it' none "$ofi" $how
	expect 'UCX, as Debian ships it' none "$ucx" $how
done
for how in raw-munmap raw-dontneed; do
	expect 'libfabric, as Debian ships it' some "$ofi" $how
	expect 'UCX, as Debian ships it' some "$ucx" $how
done
for how in kept munmap raw-munmap raw-dontneed; do
	FI_PROVIDER_PATH=$folder expect 'libfabric with libkedge-fi' none "$ofi" $how
	LD_PRELOAD=$watching expect 'UCX with libkedge-ucx' none "$ucx" $how
	says_not 'libkedge-ucx'
	expect 'UCX under kedge run' none "$ucx" $how "$kedge" run --ucx --check --
	says 'no registration lost its pages'
	expect 'libfabric under kedge run' none "$ofi" $how "$kedge" run -t --check --
	says 'no registration lost its pages'
done

# What keeps registrations by itself, above kedge's cache, is found.
expect 'UCX under kedge run --keep-caches' some "$ucx" raw-munmap "$kedge" run -t --keep-caches --
says 'libuc[a-z_]*\.so[.0-9]* holds a registration whose pages have gone'
expect 'libfabric under kedge run --keep-caches' some "$ofi" raw-dontneed \
	"$kedge" run -t --keep-caches --
says 'libfabric.so.1 holds a registration whose pages have gone'

# One of the two serves, and says so.
LD_PRELOAD=$watching expect 'UCX with libkedge-ucx under kedge run --keep-caches' none "$ucx" \
	raw-munmap "$kedge" run -t --keep-caches --check --
LD_PRELOAD=$watching expect 'UCX with libkedge-ucx under kedge run' none "$ucx" raw-munmap \
	"$kedge" run --ucx --check --
says 'libkedge-ucx is preloaded'

# The doctor finds which library misses what, and the call; and that kedge misses none.
examine 1 'STALE: work requests .* that libfabric.so.1' "$ofi" raw-munmap
says '#[0-9]* .* change+.*(mpi_pages)'
examine 1 'STALE: work requests .* that libuc[a-z_]*\.so' "$ucx" raw-munmap
says '#[0-9]* .* change+.*(mpi_pages)'
examine 0 'nothing stale' "$ofi" munmap
examine 0 'nothing stale' "$ucx" munmap
examine 0 'nothing stale' "$ofi" raw-munmap --with-kedge
examine 0 'nothing stale' "$ucx" raw-munmap --with-kedge
FI_PROVIDER_PATH=$folder examine 0 'nothing stale' "$ofi" raw-munmap
LD_PRELOAD=$watching examine 0 'nothing stale' "$ucx" raw-munmap
finish
