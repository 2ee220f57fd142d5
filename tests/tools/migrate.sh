#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge migrate: each way, there and back, and no write is lost; processes that are killed; its words
# for mistakes; and the end of its namespaces. No time is judged.
# usage: migrate.sh kedge
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
unset MALLOC_PERTURB_

expect 2 migrate --way map
says err "did you mean 'mapped'?"
expect 2 migrate --kill own
says err "did you mean 'owner'?"
for o in '-s 1' '-s x' '-s 2T' '-n 0' '-n 65' '-w -1' '-w 101' '-r 0' '-r 1001' '-k 2' '-k 0' \
	'--kill owner -k 0' '--kill owner -r 1' '--kill all' '--way shm' '--seed x' x
do
	# shellcheck disable=SC2086 # words
	expect 2 migrate $o
	silent out
done

# The limit binds an ordinary user, without CAP_IPC_LOCK.
if [ "$(id -u)" -ne 0 ]; then
	prlimit --memlock=65536:65536 "$KEDGE" migrate -s 1M >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 3 ] || fail 'it has a region beyond the limit'
	says err 'cannot have the region: RLIMIT_MEMLOCK is 64 KiB'
fi

"$KEDGE" migrate -s 2M -n 1 -w 100 >"$DIR/out" 2>"$DIR/err"
if [ $? -eq 3 ]; then
	[ "$FAILED" -eq 0 ] || exit 1
	echo "skipped: $(cat "$DIR/err")"
	exit 77
fi
silent err
says out '0 lost, 0 torn, 0 errors, 0 times two owners'
says out 'a region of 2.0 MiB, 1 peer, 100 % of their accesses write; mapped'

# moved WAY NAMESPACES OWN: so says the last run's JSON
moved() {
	json 'd["lost"] == d["torn"] == d["errors"] == d["two_owners"] == d["unsure"] == 0' \
		'd["found"] is None and d["killed"] is None and d["size"] == 2097152' \
		'len(d["moves"]) == 4 and d["accesses"] > d["writes"] > 0' \
		"d['way'] == '$1' and d['namespaces'] == $2 and d['own'] == $3" \
		'all(a["from"] == b["to"] for a, b in zip(d["moves"], d["moves"][1:]))' \
		'all(m["sent"] >= m["last"] and m["rounds"] >= 1 for m in d["moves"])' \
		'all(m["sent"] >= d["size"] for m in d["moves"])' \
		'all(0 < m["pause_ns"] <= m["total_ns"] for m in d["moves"])' \
		'all(m["longest_ns"] > 0 and m["accesses"] > 0 for m in d["moves"])' \
		'all((m["track"] == "quiet") != d["own"] for m in d["moves"])' \
		'all((m["last"] == 0) == (m["socket_ns"] is None) for m in d["moves"])' \
		'all((m["last"] == 0) == (m["memcpy_ns"] is None) for m in d["moves"])'
}

ways=$(by_circle tcp 'mapped stream tcp')
for way in $ways; do
	expect 0 migrate -s 2M -n 3 -r 2 --way "$way" --json
	silent err
	moved "$way" False False
	expect 0 migrate -s 2M -r 2 --way "$way" --own --json
	moved "$way" False True
done

# Without writes the last round has no bytes.
expect 0 migrate -s 2M -w 0 --json
json 'd["writes"] == 0' 'all(m["last"] == 0 for m in d["moves"])'

# killed VICTIM: so says the last run's JSON
killed() {
	json 'd["lost"] == d["torn"] == d["errors"] == d["two_owners"] == 0' 'd["moves"] == []' \
		"d['killed']['victim'] == '$1' and d['killed']['kills'] == 4" \
		'sum(d["killed"][k] for k in ("stayed", "moved", "ended")) == 4'
}

for way in $ways; do
	expect 0 migrate -s 2M --kill owner -k 4 --way "$way" --json
	killed owner
	json 'd["killed"]["stayed"] == 0'
	expect 0 migrate -s 2M --kill target -k 4 --way "$way" --json
	killed target
	json 'd["killed"]["moved"] == 0'
	expect 0 migrate -s 2M --kill peer -k 4 --way "$way" --json
	killed peer
	json 'd["killed"]["moved"] == 4'
done
expect 0 migrate -s 2M --kill peer -k 2
says out '2 times a peer was killed'

# ---- network namespaces ----

"$KEDGE" migrate -s 2M -r 2 --namespaces --json >"$DIR/out" 2>"$DIR/err"
status=$?
if [ $status -eq 3 ]; then
	grep -q 'run it as root\|install iproute2\|needs veth' "$DIR/err" ||
		fail "no remedy in: $(cat "$DIR/err")"
	echo "# without --namespaces: $(tail -n 1 "$DIR/err")"
	exit "$FAILED"
fi
[ $status -eq 0 ] || fail "--namespaces: exit status $status: $(cat "$DIR/err")"
moved tcp True False

# The command is in one of them as soon as they are there; its processes end with it.
here=$(readlink /proc/self/ns/net)
"$KEDGE" migrate -s 2M -r 1000 --namespaces >"$DIR/out" 2>"$DIR/err" &
it=$!
there=$here
while [ "$there" = "$here" ] && kill -0 $it; do
	there=$(readlink /proc/$it/ns/net)
done
kill -TERM $it
wait $it
[ $? -eq 143 ] || fail "it does not end by its signal: $(cat "$DIR/err")"
for p in /proc/[0-9]*; do
	[ "$(readlink "$p/ns/net" 2>/dev/null)" != "$there" ] ||
		fail "$p is in its namespace still"
done
exit "$FAILED"
