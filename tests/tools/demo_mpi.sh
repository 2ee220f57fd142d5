#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge demo --mpi: the table over a stand-in for an adapter, with libfabric and UCX as they are
# installed; and what becomes of ranks of an MPI, where both the MPI and the device are made up. The
# real thing is tests/vm/mpi.sh.
#
#	demo_mpi.sh KEDGE STAND-IN LIBRARY...
#
# LIBRARY: libfabric and UCX, of which kedge's own parts are built
STANDIN=$2
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
preloads "$STANDIN"
pin_alone
shift 2
LIBRARIES=$*
mkdir "$DIR/tmp" "$DIR/bin"
# For fail() where PATH has nothing else.
ln -s "$(command -v cat)" "$DIR/bin"
export TMPDIR="$DIR/tmp"
unset LD_PRELOAD FI_PROVIDER_PATH

# gone: the last run left no file behind
gone() {
	[ -z "$(ls -A "$DIR/tmp")" ] || fail "left behind: $(ls -AR "$DIR/tmp")"
}

# holds EXPRESSION...: of the last run's JSON, which is d; r(LIBRARY, WAY) is a row of it, and
# w(LIBRARY, WAY) its figures, by columns
holds() {
	python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
r = lambda *of: next(r for r in d["rows"] if (r["library"], r["way"]) == of)
w = lambda *of: list((r(*of)["wrong"] or {}).values())
wrong = [e for e in sys.argv[2:] if not eval(e)]
sys.exit("does not hold: %s" % "; ".join(wrong) if wrong else 0)' "$DIR/out" "$@" 2>"$DIR/says" ||
		fail "$(cat "$DIR/says") in: $(cat "$DIR/out")"
}

# ---- the stand-in ----

"$KEDGE" demo --mpi=standin -q >"$DIR/out" 2>"$DIR/err"
if [ $? = 3 ] && grep -q "io_uring's fixed buffers:" "$DIR/out"; then
	echo 'skipped: no fixed buffers of io_uring here'
	exit 77
fi
says out 'over a stand-in device'

# Variables that the user has set for others are of no matter to the rows as shipped.
UCX_RCACHE_ENABLE=n FI_MR_CACHE_MAX_COUNT=0 UCX_MEM_EVENTS=n FI_MR_CACHE_MONITOR=disabled \
	expect 0 demo --mpi=standin --json
silent err
gone
holds 'd["stage"] == "standin"' 'd["messages"] == 20' 'd["bytes"] == 262144' \
	'len(d["rows"]) == 6' 'not any(r["failed"] or r["held"] for r in d["rows"])' \
	'list(d["rows"][0]["wrong"]) == ["kept", "munmap", "raw-munmap", "raw-dontneed"]'
for library in libfabric UCX; do
	case " $LIBRARIES " in
	*" $library "*)
		holds "w('$library', 'shipped') == [0, 0, 19, 19]" \
			"w('$library', 'preloaded') == [0, 0, 0, 0]" \
			"w('$library', 'run') == [0, 0, 0, 0]" \
			"'no registration lost its pages' in r('$library', 'run')['check']"
		;;
	# Without the library's headers kedge may have its part of it all the same.
	*) holds "w('$library', 'preloaded') in ([], [0, 0, 0, 0])" ;;
	esac
done

# As a user without rights, where that one can reach the files: with the memory it takes, and less.
chmod 711 "$DIR" && chmod 1777 "$DIR/tmp"
# pinning KIB STATUS: the most that the user may pin
pinning() {
	# shellcheck disable=SC3045 # dash has it
	(ulimit -l "$1" && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
		--inh-caps=-all "$KEDGE" demo --mpi=standin) >"$DIR/out" 2>"$DIR/err"
	got=$?
	[ $got = "$2" ] || fail "pinning $1 KiB: exit status $got: $(cat "$DIR/out" "$DIR/err")"
}
if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups \
	test -x "$KEDGE" -a -r "$STANDIN" 2>"$DIR/err"; then
	pinning 4096 0
	says out 'with kedge: every message'
	pinning 1024 3
	says err 'ulimit -l'
	gone
fi

# A machine without MPI, and perhaps without a device, is told what to install.
PATH=$DIR/bin expect 0 demo --mpi
says out 'stand-in device'
says out 'Two ranks of an MPI cannot be shown here'
says out 'openmpi-bin and libopenmpi-dev'
says out 'with kedge: every message'
PATH=$DIR/bin expect 3 demo --mpi=mpich
silent out
says err 'libmpich-dev'
gone

# ---- an MPI that is made up: $FAKE says what it does ----

cat >"$DIR/bin/mpicc" <<'END'
#!/bin/sh
[ "$FAKE" != uncompiled ] || { echo 'cc: not found' >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
grep -q MPI_Ssend "$3" || exit 1
printf '#!/bin/sh\nprintf "%%b" "$FAKE_VERSION"\n' >"$2"
chmod +x "$2"
END
cat >"$DIR/bin/mpirun" <<'END'
#!/bin/sh
case ${LD_PRELOAD-},${FI_PROVIDER_PATH-} in
*libkedge-preload-verbs*) way=run ;;
*libkedge-ucx* | *src/adapter/libfabric* | */libfabric) way=preloaded ;;
*) way=shipped ;;
esac
case $* in
*"pml ucx"*) library=ucx ;;
*) library=libfabric ;;
esac
echo "$library $way $*" >>"$FAKE_LOG"
n=0
case $FAKE,$way in
clean,* | *,preloaded | *,run) ;;
*) n=19 ;;
esac
case $FAKE,$library,$way in
wrong,ucx,run) n=1 ;;
fails,ucx,run) echo 'there are no slots' >&2; exit 5 ;;
short,ucx,run) echo 'kept: 0 of 20 wrong'; exit 0 ;;
other,ucx,run) echo 'munmap: 0 of 10 wrong'; n=0 ;;
hangs,libfabric,shipped) echo $$ >"$FAKE_LOG.pid"; exec sleep 1000 ;;
leaves,libfabric,shipped)
	sleep 1000 &
	echo $! >"$FAKE_LOG.pid"
	wait
	;;
deaf,ucx,run)
	trap '' TERM
	echo $$ >"$FAKE_LOG.pid"
	n=0
	while [ $n -lt 600 ]; do sleep 1; n=$((n + 1)); done
	;;
waits,libfabric,shipped)
	echo $$ >"$FAKE_LOG.pid"
	until [ -e "$FAKE_LOG.go" ] || [ $n = 600 ]; do sleep 0.1; n=$((n + 1)); done
	n=19
	;;
held,ucx,run) printf 'process 1 rank\nstale 1 1000 2000 unmapped 0 libx.so\n' >>"$KEDGE_CHECK" ;;
esac
echo 'kept: 0 of 20 wrong'
[ "$FAKE" = other ] || echo 'munmap: 0 of 20 wrong'
echo "raw-munmap: $n of 20 wrong"
echo "raw-dontneed: $n of 20 wrong"
case $FAKE,$library,$way in
aborts,ucx,run) echo 'a rank has aborted' >&2; exit 1 ;;
esac
END
chmod +x "$DIR/bin/mpicc" "$DIR/bin/mpirun"
FAKE_LOG=$DIR/log
FAKE_VERSION='Open MPI v9.8.7rc1, package: none\n'
export FAKE FAKE_LOG FAKE_VERSION

# fake WHAT STATUS ARGUMENT...: the device is the stand-in, and its MPI does WHAT
fake() {
	FAKE=$1
	shift
	: >"$FAKE_LOG"
	want=$1
	shift
	LD_PRELOAD=$STANDIN PATH=$DIR/bin:/usr/bin:/bin "$KEDGE" demo -q "$@" >"$DIR/out" 2>"$DIR/err"
	got=$?
	[ $got -eq "$want" ] ||
		fail "$FAKE: demo $*: exit status $got, not $want: $(cat "$DIR/out" "$DIR/err")"
	gone
}

# Debian's own names are asked for, too: a machine that has them shall not be found.
for c in mpicc mpirun; do
	ln -s $c "$DIR/bin/$c.openmpi"
	ln -s $c "$DIR/bin/$c.mpich"
done

expect 2 demo --mpi --notifier uffd
expect 2 demo --mpi --rounds 3
fake good 0 --mpi --json
holds 'd["stage"] == "openmpi"' 'd["mpi"] == "9.8.7rc1"' 'd["device"] == "standin0"' \
	'd["not_shown"] == []'
for library in $LIBRARIES; do
	holds "w('$library', 'shipped') == [0, 0, 19, 19]" "w('$library', 'run') == [0, 0, 0, 0]" \
		"w('$library', 'preloaded') == [0, 0, 0, 0]"
done
grep -q -- 'libfabric shipped .*pml cm --mca mtl ofi .*kept munmap raw-munmap raw-dontneed$' \
	"$FAKE_LOG" || fail "not so many ways: $(cat "$FAKE_LOG")"
# The same with SIGCHLD ignored, as the status of a child is lost then.
(trap '' CHLD; fake clean 0 --mpi; exit "$FAILED") || FAILED=1
says out 'shows nothing here'
says out 'wo ranks of Open MPI 9.8.7rc1 over the RDMA device standin0'

# Rows that are wrong with kedge, and rows that did not come to their end.
fake wrong 1 --mpi
says out 'WRONG DATA'
fake held 1 --mpi --json
holds "r('UCX', 'run')['held']" "w('UCX', 'run') == [0, 0, 0, 0]"
fake fails 3 --mpi --json
holds "r('UCX', 'run')['failed']" "'exit status 5: ' in r('UCX', 'run')['why']"
fake fails 3 --mpi
says out 'FAILED'
# The status of kedge run that has found something is a program's own, too.
fake aborts 3 --mpi --json
holds "r('UCX', 'run')['failed']" "not r('UCX', 'run')['held']"
for what in short other; do
	fake $what 3 --mpi --json
	holds "r('UCX', 'run')['failed']" "not w('UCX', 'run')"
done
for what in hangs leaves deaf; do
	fake $what 3 --mpi --json --timeout 1
	holds "any('--timeout' in (r['why'] or '') and r['failed'] for r in d['rows'])"
	# A machine may be too slow for it to come that far.
	[ ! -s "$FAKE_LOG.pid" ] || [ ! -e "/proc/$(cat "$FAKE_LOG.pid")" ] ||
		fail "$what: it runs on"
	rm -f "$FAKE_LOG.pid"
done

# A signal ends the ranks, takes the files away, and is how the demo ends.
FAKE=hangs
LD_PRELOAD=$STANDIN PATH=$DIR/bin:/usr/bin:/bin "$KEDGE" demo --mpi >"$DIR/out" 2>"$DIR/err" &
demo=$!
n=0
until [ -s "$FAKE_LOG.pid" ] || [ $n = 600 ]; do
	sleep 0.1
	n=$((n + 1))
done
kill "$demo"
wait "$demo"
[ $? = 143 ] || fail 'a signal was not how it ended'
silent out
[ ! -e "/proc/$(cat "$FAKE_LOG.pid")" ] || fail 'the ranks run on after a signal'
gone

# One that is ignored, as under nohup, does not.
FAKE=good
rm -f "$FAKE_LOG.pid"
(
	trap '' HUP
	LD_PRELOAD=$STANDIN PATH=$DIR/bin:/usr/bin:/bin FAKE=waits
	export LD_PRELOAD PATH FAKE
	exec "$KEDGE" demo --mpi --json
) >"$DIR/out" 2>"$DIR/err" &
demo=$!
n=0
until [ -s "$FAKE_LOG.pid" ] || [ $n = 600 ]; do
	sleep 0.1
	n=$((n + 1))
done
kill -HUP "$demo"
: >"$FAKE_LOG.go"
wait "$demo" || fail "an ignored signal ended it: $?"
holds 'd["stage"] == "openmpi"'
gone

# The program tells the MPI's kind; one without a compiler, or of another kind, is named.
fake uncompiled 3 --mpi=openmpi
says err 'cc: not found'
fake uncompiled 0 --mpi --json
holds 'd["stage"] == "standin"' 'len(d["not_shown"]) == 2' '"cc: not found" in d["not_shown"][0]'
fake good 3 --mpi=mpich
says err "is not MPICH's"
FAKE_VERSION='MPICH Version:\t9.9\nMPICH Device:\tch4:ofi\n'
fake good 0 --mpi --json
holds 'd["stage"] == "mpich"' 'd["mpi"] == "9.9"' 'len(d["not_shown"]) == 1'
holds "'ch4:ucx' in r('UCX', 'run')['why']" "r('libfabric', 'run')['wrong'] is not None"
FAKE_VERSION='MPICH Version:\t9.9\nMPICH Device:\tch3:sock\n'
fake good 3 --mpi=mpich
says out 'with kedge: no row could be run'
says out 'UCX: not run: this MPICH is not built for UCX'

# ---- the command line ----

expect 2 demo --mpi=nonesuch
expect 2 demo --mpi=standin "$KEDGE"
expect 2 demo --mpi=standin --device uring
expect 2 demo --mpi=standin --timeout 0
TMPDIR=$DIR/none expect 3 demo --mpi=standin
says err 'temporary files'
exit "$FAILED"
