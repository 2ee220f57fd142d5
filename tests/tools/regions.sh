#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# kedge regions: what it says of owners that tell, of those without a handle, and of others.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
OWNER=$2
NEVER=4194304 # no pid is that great
PIDS=
mkfifo "$DIR/end"
# Owners end when that is closed; kept open for both.
exec 9<>"$DIR/end"
trap 'kill -9 $PIDS 2>/dev/null; rm -rf "$DIR"' EXIT

# start HOW [REGIONS]: an owner, whose pid is $PID
start() {
	: >"$DIR/ready"
	"$OWNER" "$@" <"$DIR/end" >>"$DIR/ready" &
	PID=$!
	PIDS="$PIDS $PID"
	until grep -q ready "$DIR/ready"; do
		kill -0 "$PID" || exit 1
		sleep 0.1
	done
}

# Of this test alone: others run beside it.
expect 0 regions --pid $$ --wait 60
says out "Process $$ has no regions."
silent err
expect 0 regions --pid $$ --wait 60 --json
json 'd["processes"] == d["silent"] == d["not_asked"] == []' 'd["searched"]' \
	'd["regions"] == d["bytes"] == d["handles"] == d["peers"] == 0'

start advertised 3
TELLS=$PID
expect 0 regions -p "$TELLS" --wait 60
says out "process $TELLS (evil?[31m, user $(id -un)) 12.0 KiB of a budget of 64.0 MiB"
says out '4.0 KiB   64.0 KiB  4.0 KiB suspended         1      0     0     0         0     1'
says out '4.0 KiB   64.0 KiB  4.0 KiB here              0'
says out '3 regions of 1 process, 12.0 KiB; 1 handle, 0 peers'
silent err
grep -q "$(printf '\033')" "$DIR/out" && fail 'a control character is printed'
expect 0 regions -p "$TELLS" --wait 60 --json
json 'len(d["processes"]) == 1 and d["regions"] == len(d["processes"][0]["regions"]) == 3' \
	"d['processes'][0]['pid'] == $TELLS and d['processes'][0]['uid'] == $(id -u)" \
	"d['processes'][0]['user'] == '$(id -un)' and d['processes'][0]['told']" \
	'd["processes"][0]["budget"] == 64 << 20 and d["processes"][0]["used"] == 12288' \
	'sum(r["handles"] for r in d["processes"][0]["regions"]) == d["handles"] == 1' \
	'sorted(r["suspended"] for r in d["processes"][0]["regions"]) == [0, 0, 1]' \
	'all(r["length"] == 4096 and r["max_length"] == 65536 and r["page_size"] == 4096
		and r["state"] == "here" and r["address"] and r["left_to"] is None
		and r["served"] == 0 and r["peers"]["mapped"] == 0
		for r in d["processes"][0]["regions"])' \
	'd["silent"] == [] and d["not_asked"] == [] and d["bytes"] == 12288'

# One without a handle is found in /proc, which says where its regions are (Linux 5.14).
start regions 2
expect 0 regions -p "$PID" --wait 60 --json
if grep -q '^ino:' "/proc/self/fdinfo/0"; then
	json 'd["regions"] == 2 and not d["processes"][0]["told"]' \
		'd["processes"][0]["reason"] == "has no handle yet, and cannot be asked"' \
		'all(r["length"] == 4096 and r["address"] for r in d["processes"][0]["regions"])' \
		'd["processes"][0]["budget"] is None'
	expect 0 regions -p "$PID" --wait 60
	says out "process $PID (evil?[31m, user $(id -un)) has no handle yet"
	says out '2 regions of 1 process, 8.0 KiB'
fi

# Others are listed whatever one says, or does not.
start old
OLD=$PID
start nonsense
NONSENSE=$PID
expect 3 regions -p "$OLD" -w 60
says err "process $OLD (evil?[31m, user $(id -un)) does not tell its regions: it does not answer that question"
expect 3 regions -p "$NONSENSE" -w 60
says err "what it says has no meaning"
start silent
expect 3 regions -p "$PID" -w 1
says err 'it does not answer: it is stopped, or busy'
expect 3 regions -p "$PID" -w 1 --json
json "d['silent'][0]['pid'] == $PID and 'does not answer' in d['silent'][0]['reason']"
for wait in 1 2 4 8 16 32; do # as long as this machine takes
	expect 3 regions -w $wait
	grep -q "^.*process $TELLS " "$DIR/out" && break
done
says out "process $TELLS "
says err "process $OLD "
says err "process $NONSENSE "
says err "process $PID "

# A process that is stopped is named, and what /proc says of it is listed.
kill -STOP "$TELLS"
expect 3 regions -p "$TELLS" -w 1
says err "it does not answer: it is stopped, or busy"
kill -CONT "$TELLS"

# Again and again, until the process is gone.
"$KEDGE" regions -p "$TELLS" --wait 60 --watch 1 --json >"$DIR/out" &
WATCH=$!
PIDS="$PIDS $WATCH"
until [ "$(grep -c '"searched": true' "$DIR/out")" -ge 2 ]; do
	kill -0 $WATCH || exit 1
	sleep 0.1
done
kill "$TELLS"
wait "$TELLS" 2>/dev/null
wait $WATCH

expect 3 regions -p $NEVER
says err "there is no process $NEVER"
expect 2 regions -p 0
expect 2 regions -p -1
expect 2 regions -w 0
expect 2 regions -w 4000
expect 2 regions --watch 0
expect 2 regions surplus
exit "$FAILED"
