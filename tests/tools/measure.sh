#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge bench and kedge torture, for seconds: that they run, what their JSON has,
# and that the torture finds a cache that is wrong. No time is judged.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
pin_alone

# The command's answer on a machine that it can't run on.
"$KEDGE" torture --seconds 1 --event munmap --json >"$DIR/out" 2>"$DIR/err"
if [ $? -eq 3 ]; then
	echo "skipped: $(cat "$DIR/err")"
	exit 77
fi

expect 0 bench cache -e 1,100 -B 3 -t 1 -b hit,miss,unmap --json
json '{r["bench"] for r in d["rows"]} == {"hit", "miss", "unmap"}' \
	'{r["entries"] for r in d["rows"]} == {1, 100}' \
	'all(r["kedge_ns"] > 0 for r in d["rows"])' \
	'all(r["kedge_regs"] == 0 for r in d["rows"] if r["bench"] == "hit")' \
	'all(r["kedge_regs"] >= 1 for r in d["rows"] if r["bench"] == "unmap")'
expect 0 bench cache -e 1 -B 3 -t 1,2 -b hit --ask --json
json '"+ask" in d["notifier"] or d["level"] != "ordered"' \
	'{r["bench"] for r in d["rows"]} == {"hit", "call"}' \
	'all(r["x_call"] > 0 for r in d["rows"] if r["threads"] == 1)'
expect 0 bench watch -r 2 -w 1 -p 0 --json
json 'all(r["ns"] > 0 for r in d["rows"] if r["bench"] == "munmap")'

# One page of 64 chunks: one call of the device where it took 64.
expect 0 bench reg -d noop,uring -s 16K -C 64 -e 64,1e9 -r 3 -t 1,2 --json
json '{r["device"] for r in d["rows"]} == {"noop", "uring"}' \
	'all(r["ns"] > 0 for r in d["rows"])' \
	'all(r["hits"] >= 64 for r in d["rows"] if r["step"] == "cached")' \
	'all(r["calls"] == 0 for r in d["rows"] if r["step"] == "hinted")' \
	'all(r["calls"] == 1 for r in d["rows"] if r["every"] == 10**9)'
expect 0 bench reg -d noop -s 4K -C 4 -r 1 -b cached --csv
says out 'noop,,cached,4096,4,1,0,'
# A domain of libfabric's: its own call at each use, and one a buffer with the cache.
if "$KEDGE" bench reg -d ofi -m tcp -s 4K -C 4 -r 1 --json >"$DIR/out" 2>"$DIR/err"; then
	json '{r["device"] for r in d["rows"]} == {"ofi"}' \
		'all(r["calls"] == 4 for r in d["rows"] if r["step"] in ("register", "miss"))' \
		'all(r["calls"] == 0 for r in d["rows"] if r["step"] == "cached")'
else
	says err 'libfabric'
fi
expect 3 bench reg -d ofi -m nonesuch
expect 2 bench reg -s 5000
expect 2 bench reg -d nosuch
expect 3 bench reg -s 1T

expect 0 torture --seconds "$(by_circle 1 3)" --event 'm*' --json
json 'd["stale"] == 0' 'd["rounds"] > 0' 'd["hits"] > 0' \
	'sum(c["rounds"] for c in d["cases"]) == d["rounds"]'
# So many rounds, however fast the machine is.
expect 0 torture --rounds "$(by_circle 10 40)" --mode race --json
json 'all(c["rounds"] >= '"$(by_circle 10 40)"' for c in d["cases"])' 'd["stale"] == 0'
expect 1 torture --rounds 1000000000 --seconds 0.1 --mode race --event race-queue
says err 'fewer than 1000000000 rounds'
expect 2 torture --rounds 0
expect 2 torture --churn --rounds 5
# A cache keyed by pointer and length is stale wherever pages change.
expect 1 torture --naive --mode single --seconds 3 --event 'm*map*' --json
json 'all(c["stale"] for c in d["cases"] if c["changes"] and c["rounds"] > 10)' \
	'any(c["stale"] for c in d["cases"])'
expect 0 torture --churn --default --gets 300 --alloc mixed --threads 3 --json
json 'd["gets"] + d["refused"] == 300' 'd["stale"] == 0 == d["percent"]' \
	'd["notifier"] == "default"'
# Without a notifier nothing is kept, whatever the route.
expect 0 torture --churn --notifier none --gets 100 --alloc mmap --route raw \
	--per-thread --seed 1
says out '0 stale of 100 gets (0.00 %)'
expect 2 torture --churn --event munmap
expect 2 torture --churn --alloc nonesuch
expect 2 torture --churn --threads 17
expect 2 torture --churn --bytes 1k
expect 2 torture --churn --default --notifier uffd
expect 2 torture --gets 5
expect 2 torture --device nonesuch
expect 2 torture --device verbs:
expect 3 torture --device verbs:nonesuch
exit "$FAILED"
