#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The findings of "kedge doctor" in programs that transfer from memory whose pages have gone.
# usage: doctor.sh kedge transfers libibverbs.so.1 libat_fork.so
# shellcheck source=/dev/null
# shellcheck disable=SC2016,SC2034 # inner shells expand; lib.sh reads them
. "$(dirname "$0")/../tools/lib.sh"
KEDGE=$(readlink -f "$1")
program=$(readlink -f "$2")
LD_LIBRARY_PATH=$(dirname "$(readlink -f "$3")")
export LD_LIBRARY_PATH
at_fork=$(readlink -f "$4")
unset KEDGE_PEERS KEDGE_STATS KEDGE_CHECK KEDGE_DOCTOR KEDGE_SERVE KEDGE_NOTIFIER
mkdir "$DIR/tmp"
TMPDIR=$DIR/tmp
export TMPDIR

expect 0 doctor --json -- "$program" fresh
if json '"traced" in d' && grep -q '"traced": *false' "$DIR/out"; then
	echo 'SKIP: ptrace() or seccomp() is not allowed here'
	exit 77
fi
"$KEDGE" doctor -- true 2>&1 | grep -q 'without libdw' && stacks=False || stacks=True

# sound WAY [HELD]: nothing stale; how many libraries held what had gone
sound()
{
	expect 0 doctor --json -- "$program" "$1"
	json "not d['stale'] and d['used'] == [] and len(d['held']) == ${2:-0}"
}

# stale WAY REQUESTS REGISTRATIONS KIND CALL FUNCTION
stale()
{
	expect 1 doctor --json -- "$program" "$1"
	json "d['stale'] and d['traced'] and [(u['library'], u['requests'], u['registrations'], u['kind'])
	      for u in d['used']] == [('transfers', $2, $3, '$4')]"
	json "not $stacks or (lambda s: '$5' in s[0] and '$6' in s)(
	      [f['function'] for f in d['used'][0]['stack']])"
}

for KEDGE_NOTIFIER in '' none; do
	if [ -n "$KEDGE_NOTIFIER" ]; then export KEDGE_NOTIFIER; else unset KEDGE_NOTIFIER; fi
	sound fresh
	stale send 2 1 unmapped munmap change_pages
	stale receive 1 1 dropped madvise receive_stale
	stale thread 1 1 unmapped munmap change_in_thread
	stale peer 1 1 unmapped munmap change_pages
	stale exec 2 1 unmapped munmap send_stale
	stale many 100 100 unmapped munmap many
	sound shared
done
unset KEDGE_NOTIFIER
stale fixed 1 1 unmapped mmap fixed
stale second 1 1 dropped madvise second
stale again 1 1 unmapped munmap change_again
stale gone 1 1 unmapped munmap change_pages
stale iova 1 1 unmapped munmap iova
sound fails 1
TRANSFERS_CHANGE=1 stale fails 1 1 unmapped munmap change_pages
sound zero 1
sound part 1
sound lazy 1
sound inline 1

# A process that tells nothing at its end.
expect 137 doctor --json -- "$program" killed
json "d['stale'] and d['processes'][0]['silent'] and d['used'][0]['requests'] == 2" \
	"not $stacks or len(d['used'][0]['stack']) > 2"

# For people.
expect 1 doctor -- "$program" send
says err 'STALE: work requests named pages that had gone (2), by registrations that transfers holds'
[ "$stacks" = False ] || says err 'change_pages+'
expect 0 doctor -- "$program" lazy
says err 'note: transfers holds'
says err 'nothing stale'
expect 3 doctor -- true
says err 'there is nothing to tell'

# The program keeps its output, its input, its status and its signals.
echo text | "$KEDGE" doctor -- cat >"$DIR/out" 2>/dev/null
says out text
expect 7 doctor -- sh -c 'exit 7'
expect 143 doctor -- sh -c 'kill -15 $$'
expect 127 doctor -- "$DIR/nothing"
expect 126 doctor -- "$DIR"
expect 2 doctor
expect 3 doctor --json -- sh -c 'exit 3'
mkfifo "$DIR/ready"
"$KEDGE" doctor -- sh -c 'trap "exit 9" TERM; echo >"$1"; while :; do sleep 0.1; done' \
	x "$DIR/ready" >"$DIR/out" 2>"$DIR/err" &
read -r _ <"$DIR/ready"
kill "$!"
wait "$!"
got=$?
[ $got = 9 ] || fail "a signal: exit status $got, not 9"

# One that is stopped goes on when it is told to.
"$KEDGE" doctor -- sh -c 'echo $$ >"$1"; kill -STOP $$; exit 5' x "$DIR/ready" 2>"$DIR/err" &
doctor=$!
read -r stopped <"$DIR/ready"
until grep -q '^State:.[Tt]' "/proc/$stopped/status"; do sleep 0.05; done
kill -CONT "$stopped"
wait "$doctor"
got=$?
[ $got = 5 ] || fail "stopped: exit status $got, not 5"

# Where it is killed no process of the program stays behind.
"$KEDGE" doctor -- sh -c 'echo $$ >"$1"; while :; do sleep 0.1; done' x "$DIR/ready" 2>"$DIR/err" &
doctor=$!
read -r left <"$DIR/ready"
kill -9 "$doctor"
wait "$doctor"
until [ ! -e "/proc/$left" ] || grep -q '^State:.*Z' "/proc/$left/status"; do sleep 0.05; done
rm -f "$DIR/tmp"/kedge-*

# A table that cannot be had is told, and the program goes on.
: >"$DIR/short"
KEDGE_DOCTOR=$DIR/short expect 0 run -- "$program" fresh
says err 'cannot map'
says err 'too short'
KEDGE_DOCTOR=$DIR/nothing expect 0 run -- "$program" fresh
says err 'No such file'
TMPDIR=$DIR/no-such-folder expect 3 doctor -- true
says err 'cannot make a file'
# A doctor cannot follow what another one does, and kedge info knows.
"$KEDGE" info >"$DIR/out" 2>&1
[ "$stacks" = False ] || says out 'kedge doctor can follow programs'
# A thread that a library starts in the new process stops it if it is traced already.
LD_PRELOAD=$at_fork "$KEDGE" info >"$DIR/out" 2>&1
[ "$stacks" = False ] || says out 'kedge doctor can follow programs'
"$KEDGE" doctor -- "$KEDGE" info >"$DIR/out" 2>&1
says out 'kedge doctor cannot follow programs'
expect 3 doctor --quiet -- "$KEDGE" doctor --json -- "$program" fresh
json 'not d["traced"]' 'not d["stale"]' 'not d["known"]'
expect 1 doctor --quiet -- "$KEDGE" doctor -- "$program" send
says err 'its system calls being followed'
[ -z "$(ls "$DIR/tmp")" ] || fail "left behind: $(ls "$DIR/tmp")"
exit "$FAILED"
