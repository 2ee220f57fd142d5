#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# kedge segments: what it says of the example's segment, and of those that are not there.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
PEEK=$2
OWNER=
WATCHER=
NEVER=4194304 # no pid is that great
trap 'kill $OWNER $WATCHER 2>/dev/null; rm -rf "$DIR"' EXIT

# Of this test alone: others run beside it.
expect 0 segments --pid $$ --wait 60
says out "Process $$ has no segments."
silent err
expect 0 segments --pid $$ --wait 60 --json
json 'd["segments"] == d["silent"] == d["not_asked"] == []' 'd["processes"] == 0'

"$PEEK" >"$DIR/id" &
OWNER=$!
until [ -s "$DIR/id" ]; do
	sleep 0.1
done
expect 0 segments -p $OWNER --wait 60
says out "$OWNER peek"
says out '32.0 KiB 0600'
says out '1 segment of 1 process, 32.0 KiB; 0 grants'
silent err
grep -q "$(cut -c 7-16 "$DIR/id")" "$DIR/out" && fail 'an id is shown'

# A watcher has a grant; or the segment cannot be attached here, which is said.
"$PEEK" "$(cat "$DIR/id")" >"$DIR/sums" 2>/dev/null &
WATCHER=$!
until [ -s "$DIR/sums" ] || ! kill -0 "$WATCHER" 2>/dev/null; do
	sleep 0.1
done
grants=$([ -s "$DIR/sums" ] && echo 1 || echo 0)
expect 0 segments -p $OWNER --wait 60 --json
json 'd["processes"] == len(d["segments"]) == 1' \
	'd["bytes"] == d["segments"][0]["length"] == 32768' \
	"d['grants'] == d['segments'][0]['grants'] == $grants" \
	"d['segments'][0]['pid'] == $OWNER" \
	'd["segments"][0]["command"] == "peek"' \
	"d['segments'][0]['uid'] == $(id -u)" \
	"d['segments'][0]['user'] == '$(id -un)'" \
	'd["segments"][0]["mode"] == "0600" and not d["segments"][0]["whole"]' \
	'd["segments"][0]["backend"] in ("module", "convert", "copy")' \
	'(d["segments"][0]["backend"] == "module") ==
		(d["segments"][0]["attachments"] is not None)' \
	'(d["segments"][0]["reason"] is None) ==
		(d["segments"][0]["backend"] != "copy")' \
	'd["segments"][0]["address"] > 0 and d["segments"][0]["changes"] >= 0' \
	'd["silent"] == [] and d["not_asked"] == []'
if [ "$grants" = 1 ]; then
	json 'd["segments"][0]["attachments"] in (None, 1)'
fi

# A process that is stopped is named, and the wait for it ends. The module needs no answer.
if ! grep -q '"module"' "$DIR/out"; then
	kill -STOP "$OWNER"
	expect 3 segments -p "$OWNER" -w 1
	says err "process $OWNER (peek, user $(id -un)) is not listed: it does not answer"
	kill -CONT "$OWNER"
fi
kill "$OWNER"
wait "$OWNER" 2>/dev/null
expect 3 segments -p $NEVER
says err "there is no process $NEVER"

expect 2 segments -p 0
expect 2 segments -p -1
expect 2 segments -w 0
expect 2 segments -w 4000
expect 2 segments surplus
exit "$FAILED"
