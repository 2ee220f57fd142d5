#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge perf: every option, the JSON, what --check finds, and how it ends when a
# process of it dies. No time is judged.
# usage: perf.sh kedge corrupt.so [ofi]: there is libkedge-ofi
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
CORRUPT=$(readlink -f "$2")
SAN=$(ldd "$KEDGE" | sed -n 's/.*lib[at]san[^ ]* => \([^ ]*\).*/\1/p')
# It fills what is allocated, which is what this measures.
unset MALLOC_PERTURB_
# A place of this run's own.
AT=@kedge-perf-test-$$

# Members that a row has, each way and kind of buffers.
expect 0 perf -s 1,3000,100K -r 2 -b malloc,heap,fresh -W auto,eager,copy --json
json 'd["transport"] == "shm" and d["wrong"] == 0 and not d["remote"]' \
	'd["rounds"] == 2 and d["window"] == 16 and d["peer"] is None' \
	'{r["bytes"] for r in d["rows"]} == {1, 3000, 102400}' \
	'{r["buffers"] for r in d["rows"]} == {"malloc", "heap", "fresh"}' \
	'{r["way"] for r in d["rows"]} == {"auto", "eager", "copy"}' \
	'all(r["transport"] == "shm" for r in d["rows"])' \
	'all(r["latency_us"] > 0 and r["gbps"] > 0 for r in d["rows"])' \
	'all(r["peer"] is None and r["peer_gbps"] is None for r in d["rows"])' \
	'all(sum(r["ways"].values()) > 0 for r in d["rows"])' \
	'all(r["way_taken"] in r["ways"] for r in d["rows"])' \
	'all(r["bytes"] <= 32768 for r in d["rows"] if r["way"] == "eager")' \
	'all(r["way_taken"] == "copy" for r in d["rows"]
		if r["way"] == "copy" and r["bytes"] > 1
		and r["buffers"] != "heap")' \
	'len(d["rows"]) == 9 * 3 - 3' \
	'"model" not in d or d["model"] is None'

# A fresh buffer has no pages; one that was used has.
expect 0 perf -s 1M -r 2 -b malloc,fresh -W copy --json
json 'all(r["faults"] >= 200 for r in d["rows"] if r["buffers"] == "fresh")' \
	'all(r["faults"] < 20 for r in d["rows"] if r["buffers"] == "malloc")'

# Large messages leave the window two at least.
if in_whole; then
	expect 0 perf -s 20M -r 1 -w 4 --json
	json '[r["window"] for r in d["rows"]] == [2]'
fi
expect 0 perf -s 64 -r 1 -w 1 -u --csv
says out 'transport,way,bytes,buffers,way_taken,window,latency_us,gbps,cts_us'
says out 'shm,"auto",64,malloc,eager,1,'
expect 0 perf -s 1K -r 1
says out 'both ends on this host'
says out ' 1 KiB malloc auto '
# On one CPU both ends share it, and say so.
taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')" \
	"$KEDGE" perf -s 8 -r 1 >"$DIR/out" 2>"$DIR/err" ||
	fail "on one CPU: $(cat "$DIR/err")"
says out 'one CPU for both'

# The turnaround brings what it is compared with.
expect 0 perf -T -s 64K -r 2 --json
json '{r["way"] for r in d["rows"]} == {"auto", "register"}' \
	'{r["bytes"] for r in d["rows"]} == {65536, 4 << 20}' \
	'{r["buffers"] for r in d["rows"]} == {"fresh"}' \
	'd["register_4m_us"] > 0' \
	'all(r["cts_us"] > 0 and r["cts_ratio"] > 0 for r in d["rows"]
		if r["way_taken"] != "eager")'

# The model, and its picture.
expect 0 perf --model --json
json 'd["rows"] == []' 'len(d["model"]["curves"]) > 10' \
	'all(c["ns"] > 0 for c in d["model"]["curves"])' \
	'{c["fresh"] for c in d["model"]["curves"]} == {False, True}' \
	'all(c["ns"] <= o["ns"] for c in d["model"]["curves"]
		for o in d["model"]["curves"] if c["way"] == "auto"
		and (c["bytes"], c["fresh"]) == (o["bytes"], o["fresh"]))' \
	'all(b["bytes"] >= 1024 and b["below"] != b["above"]
		for b in d["model"]["break_even"])'
expect 0 perf --model -s 4K,1M --csv
says out 'copy,1,1048576,'
if command -v gnuplot >/dev/null; then
	expect 0 perf -s 8,64K -r 1 -b malloc,fresh --plot "$DIR/it's.svg"
	for text in 'latency, used buffers (malloc)' 'kedge auto' \
		'bandwidth, new buffers (fresh)'; do
		grep -qF "$text" "$DIR/it's.svg" || fail "no '$text' is drawn"
	done
	expect 0 perf --model --plot "$DIR/model.svg"
	for text in copy 'expected, used buffers' 'expected, new buffers'; do
		grep -qF "$text" "$DIR/model.svg" || fail "no '$text' is drawn"
	done
fi
# Figures that cannot be drawn are not measured: that would take longer than this test.
expect 3 perf -s 8 -r 10000 --plot "$DIR"
for how in "perf -s 8 -r 10000 -w 1" "bench cache -s 1000" "bench swap -r 99999"
do
	# shellcheck disable=SC2086 # words
	expect 3 $how --plot "$DIR/none/x.svg"
	says err 'No such file or directory'
	silent out
	# shellcheck disable=SC2086
	PATH=$DIR/none "$KEDGE" $how --plot "$DIR/x.svg" >"$DIR/out" \
		2>"$DIR/err"
	[ $? -eq 3 ] || fail "without gnuplot: $(cat "$DIR/err")"
	says err 'cannot run gnuplot: install it'
	[ ! -e "$DIR/x.svg" ] || fail 'an empty picture is left behind'
done

# Every byte is verified: right ones are, wrong ones are found.
sizes=1,70001
! in_whole || sizes=1,2,63,4095,70001
expect 0 perf -C -s $sizes -r 1 -b malloc,heap,fresh \
	-W auto,direct,swap,copy,register --seed 5 --json
json 'd["check"] and d["wrong"] == 0 and d["seed"] == 5'
LD_PRELOAD="${SAN:+$SAN }$CORRUPT" "$KEDGE" perf -C -s 1000,70000 -r 1 \
	--json >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fail "wrong bytes are not found: $(cat "$DIR/err")"
says err 'messages came out wrong; the first: kedge, auto, malloc: message '
json 'd["wrong"] > 0 and all(r["wrong"] > 0 for r in d["rows"])'
# Wrong bytes are not told unless asked for.
LD_PRELOAD="${SAN:+$SAN }$CORRUPT" "$KEDGE" perf -s 1000 -r 1 \
	>/dev/null 2>"$DIR/err" || fail "without --check: $(cat "$DIR/err")"

# listen OPTION...: the other end, in the background, once it listens
listen()
{
	: >"$DIR/other.err"
	"$KEDGE" perf --listen "$@" >"$DIR/other" 2>"$DIR/other.err" &
	other=$!
	until grep -q listening "$DIR/other.err"; do
		kill -0 $other || {
			fail "nobody listens: $(cat "$DIR/other.err")"
			return
		}
		sleep 0.1
	done
}

# ends STATUS: how that end ended
ends()
{
	wait "$other"
	got=$?
	[ "$got" -eq "$1" ] ||
		fail "the other end: $got, not $1: $(cat "$DIR/other.err")"
}

listen "$AT"
expect 0 perf --connect "$AT" -s 8,70000 -r 1 -b malloc,heap,fresh -C \
	-W auto,copy,eager --json
json 'd["remote"] and len(d["rows"]) == 15 and d["wrong"] == 0' \
	'all(r["latency_us"] > 0 and r["gbps"] > 0 for r in d["rows"])'
ends 0
listen "$DIR/socket"
expect 0 perf --connect "$DIR/socket" --model --csv
ends 0
[ ! -e "$DIR/socket" ] || fail 'a socket is left behind'
# A wrong byte at either end is told at that end, and to who measures.
SAVED=$KEDGE
printf '#!/bin/sh\nexec env LD_PRELOAD="%s" "%s" "$@"\n' \
	"${SAN:+$SAN }$CORRUPT" "$KEDGE" >"$DIR/wrong"
chmod +x "$DIR/wrong"
KEDGE=$DIR/wrong
listen "$AT"
KEDGE=$SAVED
expect 1 perf --connect "$AT" -s 5000 -r 1 -C
ends 1
expect 3 perf --connect "$AT"
says err 'cannot connect'

# Over TCP: two processes, then two ends.
expect 0 perf -t tcp -s 8,70000 -r 1 -C -b malloc,heap,fresh \
	-W auto,direct,copy --json
json 'd["transport"] == "tcp" and not d["remote"]' \
	'd["wrong"] == 0 and len(d["rows"]) == 18' \
	'all(r["latency_us"] > 0 and r["gbps"] > 0 for r in d["rows"])' \
	'all(r["way_taken"] == "direct" for r in d["rows"]
		if r["bytes"] == 70000 and r["way"] != "copy")'
LD_PRELOAD="${SAN:+$SAN }$CORRUPT" "$KEDGE" perf -t tcp -C -s 70000 \
	-r 1 >/dev/null 2>"$DIR/err"
[ $? -eq 1 ] || fail "wrong bytes are not found: $(cat "$DIR/err")"
port=$(python3 -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
listen -t tcp "127.0.0.1:$port"
expect 0 perf -t tcp --connect "127.0.0.1:$port" -s 8,70000 -r 1 -C \
	-W auto,copy --json
json 'd["remote"] and d["wrong"] == 0 and len(d["rows"]) == 4'
ends 0
# The name is looked up, and nobody is there any more.
expect 3 perf -t tcp --connect "localhost:$port"
says err 'nobody listens'
expect 3 perf -t tcp --listen 256.1.1.1
says err 'no such address'
listen -t tcp "127.0.0.1:$port"
kill -TERM $other
ends 143
# A port alone is an address.
listen -t tcp "$port"
expect 0 perf -t tcp --connect ":$port" -s 8 -r 1 -C
ends 0
# By a provider of libfabric's, if this build has it.
if [ "${3:-}" != ofi ]; then
	expect 3 perf -t verbs -s 8 -r 1
	says err 'there are only shm and tcp here'
elif in_whole; then
	# Libfabric's shm, which knows no connections, if it is here.
	"$KEDGE" perf -t ofi:shm -s 8,70000 -r 1 -C -W auto,copy >/dev/null \
		2>"$DIR/err" || grep -q 'no provider "shm"' "$DIR/err" ||
		fail "libfabric's shm: $(cat "$DIR/err")"
fi

# alive PID: it is there, and no zombie that nobody waits for
alive()
{
	grep -q '^State:.*[RSDTt] (' "/proc/$1/status" 2>/dev/null
}

# children PID: the two processes that it starts
children()
{
	until all=$(cat "/proc/$1/task/$1/children")
		[ "${all#* ?}" != "$all" ] || ! alive "$1"
	do
		sleep 0.1
	done
	echo "$all"
}

# A process that dies ends the run, and takes all others along.
"$KEDGE" perf -s 8 -r 10000 >"$DIR/out" 2>"$DIR/err" &
main=$!
all=$(children $main)
# shellcheck disable=SC2086 # two words
set -- $all
[ $# -eq 2 ] || fail "children: '$all'"
kill -KILL "$2"
wait $main
[ $? -eq 3 ] || fail 'a receiver that died goes unnoticed'
says err 'its receiver was killed: Killed'
for pid in $all; do
	! alive "$pid" || fail 'a process is left behind'
done
"$KEDGE" perf -s 8 -r 10000 >"$DIR/out" 2>"$DIR/err" &
main=$!
all=$(children $main)
kill -TERM $main
wait $main 2>/dev/null
# They notice by themselves; those that do not outlast the time of this test.
for pid in $all; do
	while alive "$pid"; do sleep 0.1; done
done

# Mistakes.
expect 2 perf -s 0
expect 2 perf -s 2G
expect 2 perf -s ,
expect 2 perf -s 8,big
says err "'big' is no size"
expect 2 perf -W swop
says err "did you mean 'swap'?: auto, eager, direct, swap, copy, register"
expect 2 perf -W teleport
says err "there is no 'teleport': auto, eager, direct, swap, copy, register"
expect 2 perf -W ,
says err 'auto, eager, direct, swap, copy, register'
expect 2 perf -t tcp --connect localhost:
says err 'is no port'
expect 2 perf -t tcp --connect 65536
expect 2 perf -t tcp --listen localhost:0
expect 2 perf -b cold
expect 2 perf -w 0
expect 2 perf -w 1025
expect 2 perf -r 0
expect 2 perf --seed x
expect 2 perf --csv --json
expect 2 perf --listen --connect x
expect 2 perf "$AT"
says err 'which --listen takes'
expect 2 perf -t ''
expect 3 perf -t nosuchprovider -s 8 -r 1
expect 3 perf -s 1G -b malloc,fresh -W auto,swap,copy,register,direct -r 1
says err 'lower --sizes'
exit "$FAILED"
