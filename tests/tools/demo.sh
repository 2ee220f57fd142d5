#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# kedge demo: the copy is right with kedge, and wrong with a naive cache.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
pin_alone

"$KEDGE" info --json >"$DIR/out" 2>/dev/null
if ! python3 -c '
import json, sys
sys.exit(json.load(open(sys.argv[1]))["devices"][0]["state"] != "ok")' \
	"$DIR/out"; then
	echo 'skipped: no io_uring here'
	exit 77
fi

# So many buffers as pin_alone() leaves.
few='-b 4 -d 3'
[ "$(id -u)" = 0 ] && few=

# An odd size, so that the last chunk is a short one.
head -c 5000001 /dev/urandom >"$DIR/file"
# shellcheck disable=SC2086 # words
expect 0 demo --json $few --rounds 3 --churn 10 --seed 7 "$DIR/file"
silent err
json '[m["name"] for m in d["modes"]] == ["uncached", "naive", "kedge"]' \
	'all({"name", "gbps", "registrations", "hits", "stale", "intact"} <=
	     m.keys() for m in d["modes"])' \
	'd["bytes"] == 5000001' 'd["seed"] == 7' 'd["churn"] == 10' \
	'all(m["gbps"] > 0 and m["registrations"] > 0 for m in d["modes"])' \
	'd["modes"][0]["intact"] and d["modes"][0]["stale"] == 0' \
	'd["modes"][0]["hits"] == 0' \
	'd["modes"][2]["intact"] and d["modes"][2]["stale"] == 0' \
	'{"file", "notifier", "level"} <= d.keys()'
# A sanitizer's allocator keeps what is freed: no address comes back.
grep -qE 'libasan|libtsan' /proc/self/maps || ldd "$KEDGE" |
	grep -qE 'lib[at]san' ||
	json 'not d["modes"][1]["intact"] and d["modes"][1]["stale"] > 0'

# The text says the same, and which words go with which result.
expect 0 demo --rounds 1 --churn 0 "$DIR/file"
says out 'lucky this time'
says out 'kedge: right'

# Every notifier, a byte, and zeros, where stale zeros would look right.
# A sanitizer's allocator unmaps around libc, which "hooks" does not promise to
# see.
notifiers="uffd hooks none"
if ldd "$KEDGE" | grep -qE 'lib[at]san'; then
	notifiers="uffd none"
fi
for n in $notifiers; do
	"$KEDGE" demo --json -n "$n" -r 1 "$DIR/file" >"$DIR/out" 2>"$DIR/err"
	case $? in
	0) json "d[\"notifier\"] == \"$n\"" ;;
	3) echo "note: $(cat "$DIR/err")" ;;
	*) fail "notifier $n: $(cat "$DIR/err")" ;;
	esac
done
printf x >"$DIR/byte"
expect 0 demo --json -r 1 "$DIR/byte"
json 'd["bytes"] == 1' 'd["modes"][2]["intact"]'
truncate -s 3M "$DIR/zeros"
expect 0 demo --json -r 2 --churn 20 "$DIR/zeros"
json 'd["modes"][2]["intact"]'
expect 0 demo --json -r 1 --size 2M "$DIR/file"
json 'd["bytes"] == 2097152'
expect 0 demo --json -r 1 -b 2 -d 1 --churn 100% "$DIR/file"
json 'd["modes"][2]["intact"]'

expect 3 demo "$DIR/none"
says err 'No such file'
expect 3 demo "$DIR"
says err 'no regular file'
: >"$DIR/empty"
expect 3 demo "$DIR/empty"
says err 'empty'
expect 3 demo -n nonsense "$DIR/file"
says err 'nonsense'
for bad in --churn=101 --churn=x --seed=-1 --size=0 --size=1Q --buffers=1 \
	--depth=0 --depth=16 --rounds=0 --rounds=x; do
	expect 2 demo "$bad" "$DIR/file"
	silent out
done
expect 2 demo "$DIR/file" "$DIR/file"

# RDMA: where there is a device it is right, else it says how to get one.
"$KEDGE" demo --json --device verbs -r 1 "$DIR/file" >"$DIR/out" 2>"$DIR/err"
case $? in
0) json 'd["device"] == "verbs"' 'd["modes"][2]["intact"]' ;;
3) grep -Eq 'rdma link add|libibverbs-dev|/dev/infiniband|link up' \
	"$DIR/err" || fail "verbs: $(cat "$DIR/err")" ;;
*) fail "verbs: $(cat "$DIR/err")" ;;
esac
expect 2 demo --device nonesuch "$DIR/file"
expect 2 demo --device verbs: "$DIR/file"
exit "$FAILED"
