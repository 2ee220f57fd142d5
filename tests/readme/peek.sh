#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The example: one program watches another one's array, and learns of its end.
set -eu
peek=$1
out=$(mktemp -d)
owner=
trap '[ -z "$owner" ] || kill "$owner" 2>/dev/null; rm -rf "$out"' EXIT
trap 'exit 1' HUP INT TERM

"$peek" >"$out/id" &
owner=$!
until [ -s "$out/id" ]; do
	sleep 0.1
done
"$peek" "$(cat "$out/id")" >"$out/sums" 2>"$out/err" &
watcher=$!
# It changes, or it cannot be attached here.
until [ "$(wc -l <"$out/sums")" -ge 2 ] || ! kill -0 "$watcher" 2>/dev/null; do
	sleep 0.1
done
kill "$owner"
wait "$owner" 2>/dev/null || true
owner=
if ! wait "$watcher"; then
	grep -q 'can only be copied' "$out/err" || { cat "$out/err"; exit 1; }
	echo "skipped: $(cat "$out/err")"
	exit 77
fi
first=$(sed -n 1p "$out/sums")
second=$(sed -n 2p "$out/sums")
[ "$second" -gt "$first" ] || { echo "the sum went from $first to $second"; exit 1; }
[ "$(tail -n 1 "$out/sums")" = "the program has ended" ]
