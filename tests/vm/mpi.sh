#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: two ranks of Open MPI over libfabric's verbs, and over UCX, and of
# MPICH over UCX, whose buffer changes its pages between messages. Without kedge some arrive wrong,
# which shows that the test can see it; with libkedge-fi or libkedge-ucx, and under "kedge run",
# none.
#
#	mpi.sh BUILD [PREFIX...]
#
# With folders that other versions of UCX are installed in, those alone, under Open MPI.
set -u
folder=$1/src/adapter/libfabric
watching=$1/src/adapter/ucx/libkedge-ucx.so
# As on a machine without libkedge-hooks, which comes along with that one.
alone=$1/tests/adapter/alone/libkedge-ucx.so
kedge=$1/kedge
here=$(dirname "$0")
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/openmpi" "$tmp/mpich"
passed=0
failed=0

if ! command -v mpicc.openmpi >/dev/null || ! command -v mpicc.mpich >/dev/null; then
	echo "skipped: it takes Open MPI and MPICH (Debian's libopenmpi-dev and libmpich-dev)"
	exit 77
fi
for mpi in openmpi mpich; do
	mpicc.$mpi -g -D_GNU_SOURCE -I"$here/../.." -o "$tmp/$mpi/mpi_pages" \
		"$here/../../tools/demo/mpi/pages.c" || exit 1
done
mpicc.openmpi -g -D_GNU_SOURCE -I"$here/../.." -o "$tmp/openmpi/mpi_threads" \
	"$here/mpi_threads.c" -pthread || exit 1

# The launcher asks for the host's name, and its daemon for an address.
hostname kedge
ip link set lo up

# wrong RANKS HOW [COMMAND...]: how many messages, on stdout
wrong()
{
	over=$1
	how=$2
	shift 2
	# shellcheck disable=SC2086 # a list of words
	timeout 250 "$@" $over "$how" >"$tmp/out" 2>"$tmp/err" || {
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

# expect WHAT none|some RANKS HOW [COMMAND...]: of the messages are wrong
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

# examine STATUS SAYS RANKS HOW [OPTION...]: by the doctor
examine()
{
	want=$1
	text=$2
	over=$3
	how=$4
	shift 4
	# shellcheck disable=SC2086 # a list of words
	timeout 250 "$kedge" doctor "$@" -- $over "$how" >"$tmp/out" 2>"$tmp/err"
	status=$?
	[ $status = "$want" ] && grep -q "$text" "$tmp/err"
	result "kedge doctor $* ($how): $text: exit status $status: $(grep '^kedge' "$tmp/err")"
}

# rows MPI CHECK...: the demo's table; each CHECK is an expression of Python over w(LIBRARY, WAY),
# a row's figures, and r(LIBRARY, WAY), the row
rows()
{
	mpi=$1
	shift
	timeout 600 "$kedge" demo -q --json "--mpi=$mpi" >"$tmp/out" 2>"$tmp/err"
	status=$?
	said=$(cat "$tmp/err")
	[ $status = 0 ]
	result "kedge demo --mpi=$mpi: exit status $status $said"
	for check; do
		python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
r = lambda library, way: next(r for r in d["rows"] if (r["library"], r["way"]) == (library, way))
w = lambda *of: list((r(*of)["wrong"] or {}).values())
right, stale = [0, 0, 0, 0], lambda w: w[:2] == [0, 0] and all(n > 0 for n in w[2:])
sys.exit(not eval(sys.argv[2]))' "$tmp/out" "$check"
		result "kedge demo --mpi=$mpi: $check"
	done
}

# Those of the table that people are shown: what is wrong as it is shipped, and right with kedge.
unset FI_PROVIDER_PATH
if [ $# = 1 ]; then
	kept='no registration lost its pages'
	rows openmpi 'd["stage"] == "openmpi" and d["device"] == "rxe0"' \
		'stale(w("libfabric", "shipped"))' 'stale(w("UCX", "shipped"))' \
		'w("libfabric", "preloaded") == right' 'w("UCX", "preloaded") == right' \
		'w("libfabric", "run") == right' 'w("UCX", "run") == right' \
		"all('$kept' in r(l, 'run')['check'] for l in ('libfabric', 'UCX'))"
	# Debian's speaks UCX alone.
	rows mpich 'd["stage"] == "mpich"' 'stale(w("UCX", "shipped"))' \
		'w("UCX", "preloaded") == right' 'w("UCX", "run") == right' \
		"'$kept' in r('UCX', 'run')['check']" '"ch4:ofi" in r("libfabric", "shipped")["why"]'
fi

# For ranks that are started here, as the demo sets it by itself: what soft-RoCE has room for.
export FI_UNIVERSE_SIZE=2 FI_OFI_RXM_MSG_TX_SIZE=64 FI_OFI_RXM_MSG_RX_SIZE=64
export FI_OFI_RXM_USE_SRX=0 FI_LOG_LEVEL=warn
# Its address of IPv4 is not answered by UCX's connections.
export UCX_IB_GID_INDEX=0 UCX_TLS=rc_v,ud_v:aux,self
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# By MPICH, a message of this length is copied otherwise; and memory that ranks share is not asked.
export UCX_RNDV_THRESH=64k MPIR_CVAR_NOLOCAL=1
openmpi='mpirun.openmpi --oversubscribe -np 2 --mca btl self --mca oob_tcp_if_include lo'
ofi="$openmpi --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm
	$tmp/openmpi/mpi_pages"
ucx="$openmpi --mca pml ucx $tmp/openmpi/mpi_pages"
mpich="mpirun.mpich -np 2 $tmp/mpich/mpi_pages"

finish()
{
	echo "$passed passed, $failed failed, 0 skipped"
	[ $failed = 0 ]
	exit
}

# other PREFIX: the UCX there
other()
{
	threads="$openmpi --mca pml ucx $tmp/openmpi/mpi_threads"
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
	expect "UCX $version, threads" some "$threads" raw-dontneed
	LD_PRELOAD=$watching expect "UCX $version with libkedge-ucx, threads" none "$threads" \
		raw-dontneed
	LD_PRELOAD=$alone expect "UCX $version with libkedge-ucx without hooks, threads" none \
		"$threads" raw-dontneed
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

# A library that keeps registrations by itself, above kedge's cache, is found.
expect 'UCX under kedge run --keep-caches' some "$ucx" raw-munmap "$kedge" run -t --keep-caches --
says 'libuc[a-z_]*\.so[.0-9]* holds a registration whose pages have gone'
expect 'libfabric under kedge run --keep-caches' some "$ofi" raw-dontneed \
	"$kedge" run -t --keep-caches --
says 'libfabric.so.1 holds a registration whose pages have gone'
expect 'UCX by MPICH under kedge run --keep-caches' some "$mpich" raw-munmap \
	"$kedge" run -t --keep-caches --
says 'libuc[a-z_]*\.so[.0-9]* holds a registration whose pages have gone'

for how in munmap raw-munmap raw-dontneed; do
	LD_PRELOAD=$alone expect 'UCX with libkedge-ucx without hooks' none "$ucx" $how
done

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
says_not 'kedge: libkedge-ucx:'
examine 1 'STALE: work requests .* that libuc[a-z_]*\.so' "$mpich" raw-dontneed
says '#[0-9]* .* change+.*(mpi_pages)'
examine 0 'nothing stale' "$mpich" raw-munmap --with-kedge
finish
