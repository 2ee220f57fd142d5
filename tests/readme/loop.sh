#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# loop.sh PROGRAM: kedge(7)'s message loop answers, ends when its peer is gone, and
# says what is wrong where nobody listens.
set -u

DIR=$(mktemp -d) || exit 1
trap 'rm -rf "$DIR"' EXIT
trap 'exit 1' HUP INT TERM
name=@kedge-man-loop-$$
mkfifo "$DIR/out"

"$1" "$name" listen >"$DIR/out" &
server=$!
read -r line <"$DIR/out"
[ "$line" = listening ] || exit 1
out=$("$1" "$name") || exit 1
echo "$out"
[ "$out" = 'hello, tag 7' ] || exit 1
wait $server || exit 1

! "$1" "$name" 2>"$DIR/err" || exit 1
cat "$DIR/err"
grep -q '^loop: .*listens' "$DIR/err"
