#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The reports of "kedge run" on registrations held while their pages go, and of "kedge run --check"
# on those served; and its settings for libraries that keep registrations by themselves.
# usage: keeps.sh kedge keeps libibverbs.so.1 libkedge-fi.so|none plugin_user.so
# shellcheck source=/dev/null
# shellcheck disable=SC2016,SC2034 # inner shells expand; lib.sh reads them
. "$(dirname "$0")/../tools/lib.sh"
KEDGE=$(readlink -f "$1")
program=$(readlink -f "$2")
plugin=$(readlink -f "$5")
LD_LIBRARY_PATH=$(dirname "$(readlink -f "$3")")
export LD_LIBRARY_PATH
unset KEDGE_PEERS KEDGE_STATS KEDGE_CHECK FI_PROVIDER_PATH FI_MR_CACHE_MONITOR
unset FI_MR_CACHE_MAX_COUNT
unset UCX_RCACHE_ENABLE UCX_IB_REG_METHODS UCX_MEM_EVENTS UCX_WARN_UNUSED_ENV_VARS
unset OMPI_MCA_mpi_leave_pinned

# told HOW TIMES: on stderr, how often
told()
{
	expect 0 run "$hooks" -- "$program" "$1" "$plugin"
	n=$(grep -c 'keeps holds a registration whose pages have gone' "$DIR/err")
	[ "$n" = "$2" ] || fail "$KEDGE_NOTIFIER, $1: told $n times, not $2: $(cat "$DIR/err")"
	[ "$2" != 0 ] || silent err
}

all_ways()
{
	told in-time 0
	told late 0
	told unloads 0
	told again 1
	told remap 1
	told remap-remote 1
	told drop 1
	told moved 1
	told at-exit 1
	told child 1
	told second 1
	told middle 1
	told cancelled 1
	told refused 1
}

KEDGE_NOTIFIER=hooks
export KEDGE_NOTIFIER
hooks=--quiet
all_ways
says err 'deregister before'
if "$KEDGE" info --json | python3 -c '
import json, sys
sys.exit(0 if any(n["name"] == "uffd" and n["level"]
                  for n in json.load(sys.stdin)["notifiers"]) else 1)'; then
	KEDGE_NOTIFIER=uffd
	all_ways
	hooks=--no-hooks
	all_ways
else
	echo 'without the notifier uffd: the kernel has it not'
fi
KEDGE_NOTIFIER=hooks

# The same, as a table.
expect 0 run --check -- "$program" in-time
says err 'no registration lost its pages'
expect 1 run --check -- "$program" remap
says err 'keeps held 1 registrations whose pages had gone'
expect 1 run --check --json -- "$program" child
json 'd["status"] == 0' 'len(d["processes"]) == 2' \
	'd["stale"] == [{"library": "keeps", "registrations": 1}]' \
	'all(p["asked"] == 1 and p["followed"] == 1 for p in d["processes"])'
expect 0 run --check --json -- "$program" late
json 'd["stale"] == []' 'd["processes"][0]["made"] == 1' 'd["processes"][0]["name"] == "keeps"'
expect 0 run --check -- true
says err 'kedge has done nothing for it'
# Where nothing can be watched nothing is followed, and that is said.
KEDGE_NOTIFIER=none expect 0 run --check -- "$program" remap
says err '1 of them in memory that cannot be watched here'

says err 'not known: 1 registrations'
# So is a process that tells no more than its beginning.
expect 0 run --check -- "$program" silent
says err 'has told no more'
says err 'not known: 0 registrations, and what 1 processes'
expect 1 run --check --json -- sh -c '"$1" silent; exec "$1" remap' x "$program"
json '[p["silent"] for p in d["processes"]] == [True, False]' 'len(d["stale"]) == 1'
# Names of programs are no lines of the report.
expect 0 run --check --json -- "$program" renamed
json 'd["stale"] == []' 'len(d["processes"]) == 1' '"evil" not in d["stale"]'

# A report does no harm where its reader has gone, or standard error is closed.
{ "$KEDGE" run -- "$program" remap 2>&1 >/dev/null; echo "$?" >"$DIR/status"; } | true
[ "$(cat "$DIR/status")" = 0 ] || fail "no reader: exit status $(cat "$DIR/status"), not 0"
expect 0 run -- sh -c '"$1" remap 2>&-' x "$program"
silent err

# A program that gains rights is given no libraries by the dynamic linker.
if [ "$(id -u)" = 0 ]; then
	cp "$program" "$DIR/gains" && chgrp 65534 "$DIR/gains" && chmod 2755 "$DIR/gains"
	expect 3 run -- "$DIR/gains" in-time
	says err 'another user or group'
fi

# The program's status and signals are its own, and no file is left.
expect 7 run --check -- sh -c 'exit 7'
expect 137 run --check -- sh -c 'kill -9 $$'
expect 127 run --check -- "$DIR/nothing"
says err 'No such file'
TMPDIR=$DIR/no-such-folder expect 3 run --check -- true
says err 'cannot make a file'
mkdir "$DIR/tmp"
TMPDIR=$DIR/tmp expect 0 run --check -- sh -c 'ls "$TMPDIR"'
says out kedge-check-
[ -z "$(ls "$DIR/tmp")" ] || fail "left behind: $(ls "$DIR/tmp")"
# Where the ends of children are ignored the status is known all the same.
(trap '' CHLD; "$KEDGE" run --check -- sh -c 'exit 7' 2>"$DIR/err")
got=$?
[ $got = 7 ] || fail "SIGCHLD ignored: exit status $got, not 7"
# A signal for it reaches the program, which ends as it likes.
mkfifo "$DIR/ready"
"$KEDGE" run --check -- sh -c 'trap "exit 9" TERM; echo >"$1"; while :; do sleep 0.1; done' \
	x "$DIR/ready" >"$DIR/out" 2>"$DIR/err" &
read -r _ <"$DIR/ready"
kill "$!"
wait "$!"
got=$?
[ $got = 9 ] || fail "a signal: exit status $got, not 9"
"$KEDGE" run --check -- sh -c 'trap "exit 9" USR1; echo >"$1"; while :; do sleep 0.1; done' \
	x "$DIR/ready" >"$DIR/out" 2>"$DIR/err" &
read -r _ <"$DIR/ready"
kill -USR1 "$!"
wait "$!"
got=$?
[ $got = 9 ] || fail "SIGUSR1: exit status $got, not 9"

# Settings for libraries above, unless the user has set them.
expect 0 run -- env
says out 'UCX_RCACHE_ENABLE=n'
says out 'UCX_IB_REG_METHODS=direct'
says out 'OMPI_MCA_mpi_leave_pinned=0'
if [ "$4" != none ]; then
	says out "FI_PROVIDER_PATH=$(dirname "$(readlink -f "$4")")"
	FI_PROVIDER_PATH=/elsewhere expect 0 run -- env
	says out ":/elsewhere"
	FI_PROVIDER_PATH=@/elsewhere expect 0 run -- env
	says out "FI_PROVIDER_PATH=@$(dirname "$(readlink -f "$4")"):/elsewhere"
	FI_MR_CACHE_MONITOR=kedge expect 0 run -- env
	says out "FI_PROVIDER_PATH=$(dirname "$(readlink -f "$4")")"
else
	says out 'FI_MR_CACHE_MAX_COUNT=0'
fi
UCX_RCACHE_ENABLE=y FI_MR_CACHE_MONITOR=memhooks expect 0 run -- env
says out 'UCX_RCACHE_ENABLE=y'
says out 'FI_MR_CACHE_MONITOR=memhooks'
says out 'FI_MR_CACHE_MAX_COUNT=0'
expect 0 run --keep-caches -- env
! grep -E '^(UCX|FI|OMPI)_' "$DIR/out" || fail 'variables with --keep-caches'
expect 0 run --ucx -- env
says out 'KEDGE_PEERS=trusted'
expect 2 run --ucx --keep-caches -- env
exit "$FAILED"
