#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge perf --segment: every row is there, beside what it is compared with; what it
# says where a backend is missing, and of mistakes. No time is judged. And a few seconds
# of kedge torture --segment; stress_segment is more of it.
# usage: segment.sh kedge
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
# It fills what is allocated, which is what this measures.
unset MALLOC_PERTURB_

# Mistakes, which need no segment.
expect 2 perf --segment -s 0
expect 2 perf --segment -s big
says err "'big' is no size"
expect 2 perf --segment -s 63
says err 'from 64 to 16M, as --segment takes them'
expect 2 perf --segment -s 64M
expect 2 perf --segment -r 0
expect 2 perf --segment --csv --json
expect 2 perf --segment --backend modules
says err "did you mean 'module'?: convert, module"
expect 2 perf --segment --backend ''
for o in '-W auto' '-b heap' '-t tcp' '--connect x' --listen '-p ucx' -C -u -T -m \
	'-w 3' '--seed 1' x
do
	# shellcheck disable=SC2086 # words
	expect 2 perf --segment $o
	says err 'takes --backend, --sizes, --rounds, --csv and --plot only'
done
expect 2 perf --backend convert
says err 'belongs to --segment'
expect 3 perf --segment -r 10000 --plot "$DIR/none/x.svg"
says err 'No such file or directory'
silent out
expect 2 torture --segment --channel
says err '--segment takes --seconds and --seed only'
for o in '--threads 3' '--event x' --churn '--messages 3' '--gets 3' '--route raw'
do
	# shellcheck disable=SC2086 # words
	expect 2 torture --segment $o
done
expect 2 torture --segment --seconds 0
expect 2 torture --segment --seed x

# A backend that is missing says what to do; the other one is measured.
if [ ! -e /dev/kedge-segment ]; then
	expect 3 perf --segment --backend module
	says err 'load the module kedge_segment'
	silent out
fi
"$KEDGE" perf --segment -r 1 -s 64 >"$DIR/out" 2>"$DIR/err"
if [ $? -eq 3 ]; then
	says err 'no segments by convert: '
	says err 'no segments by module: '
	silent out
	expect 3 torture --segment --seconds 1
	says err 'no segments to attach: '
	[ "$FAILED" -eq 0 ] || exit 1
	echo "skipped: $(cat "$DIR/err")"
	exit 77
fi
says out 'segments of another process on this host'

expect 0 perf --segment -s 64,5000,1M -r 2 --json
json 'd["rounds"] == 2 and d["wrong"] == 0 and d["cpus"] >= 1' \
	'{r["backend"] for r in d["rows"]} | set(d["unavailable"])
		== {"convert", "module"}' \
	'not {r["backend"] for r in d["rows"]} & set(d["unavailable"])' \
	'all({r["bench"] for r in d["rows"] if r["backend"] == b} - {"make_huge"} ==
		{"load", "valid", "attach", "touch_load", "touch_store", "exchange",
		"copy", "make", "remove"} for b in {r["backend"] for r in d["rows"]})' \
	'{r["bytes"] for r in d["rows"] if r["bench"] == "copy"} == {64, 5000, 1 << 20}' \
	'all(r["ns"] > 0 and 1 <= r["rounds"] + r["dropped"] <= 4 for r in d["rows"])' \
	'all(r["beside_ns"] > 0 and r["ratio"] > 0 for r in d["rows"]
		if r["bench"] != "copy")' \
	'all((r["gbps"] is not None) == (r["bench"] in
		("copy", "make", "make_huge", "remove")) for r in d["rows"])'
# Reading another process's memory by a call may be forbidden by Yama or a filter.
json 'all((r["ratio"] is None) == (r["beside_gbps"] is None) for r in d["rows"]
		if r["bench"] == "copy")' \
	'all(r["ratio"] is None or r["ratio"] > 0 for r in d["rows"])'
expect 0 perf --segment -s 64 -r 1 --csv
says out 'backend,bench,bytes,ns,gbps,beside,beside_ns,beside_gbps,ratio,rounds,dropped'
says out ',copy,64,'
# On one CPU both share it, and say so.
taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')" \
	"$KEDGE" perf --segment -s 64 -r 1 >"$DIR/out" 2>"$DIR/err" ||
	fail "on one CPU: $(cat "$DIR/err")"
says out 'one CPU for both'
if command -v gnuplot >/dev/null; then
	expect 0 perf --segment -s 64,64K -r 1 --plot "$DIR/copies.svg"
	for text in 'copied out of memory of another process' 'attached, ' 'GB/s'; do
		grep -qF "$text" "$DIR/copies.svg" || fail "no '$text' is drawn"
	done
fi

# The amount of work depends on the machine, the findings do not.
expect 0 torture --segment --seconds "$(by_circle 1 3)" --seed 7 --json
json 'd["seed"] == 7 and d["backend"] in ("convert", "module")' \
	'd["stale"] == d["torn"] == d["lost"] == d["crashes"] == 0' \
	'"found" not in d' \
	'all(d[n] >= 0 for n in ("rounds", "conversions", "copied", "forks",
		"attachments", "looks", "changed", "kills", "owner_kills"))'
expect 0 torture --segment --seconds 0.5
says out '0 stale, 0 torn, 0 lost, 0 crashes'
exit "$FAILED"
