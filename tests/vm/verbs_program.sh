#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: a plain verbs program by itself, under "kedge
# run" and under "kedge run --trusted-peers". Each run passes, the stack's
# answers to odd requests are the same in all, and kedge did cache.
#
#	verbs_program.sh KEDGE PROGRAM
set -u
kedge=$1
program=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=

fail()
{
	echo "verbs_program.sh: $*" >&2
	failed="$failed
failed: $*"
}

# run NAME WORD COMMAND...: the command is put before the program, the word
# after it.
run()
{
	name=$1 word=$2
	shift 2
	echo "== $name"
	# shellcheck disable=SC2086 # no word, or one
	"$@" "$program" "$tmp/$name" $word >"$tmp/out" 2>&1 ||
		fail "$name: exit status $?
$(grep -E '^\[ *(FAILED|ERROR|LINE) *\]' "$tmp/out")"
	cat "$tmp/out"
	diff "$tmp/plain" "$tmp/$name" >"$tmp/diff" || {
		fail "$name: other answers than plain"
		head -n 20 "$tmp/diff" >&2
	}
	[ -s "$tmp/$name" ] || fail "$name: no answers"
}

# cached LEAST: the program's own line, its children have others.
cached()
{
	n=$(sed -n 's/^kedge: .* asked for: \([0-9]*\) cached.*/\1/p' \
		"$tmp/out" | tail -n 1)
	[ "${n:-0}" -ge "$1" ] || fail "$name: ${n:-nothing} cached, not $1"
	! grep -q 'no registration cache' "$tmp/out" || fail "$name: no cache"
}

run plain '' env
run default '' "$kedge" run --stats --
cached 150
run trusted trusted "$kedge" run --stats --trusted-peers --
cached 300
run bare '' "$kedge" run --stats --no-hooks --
cached 150
wc -l <"$tmp/plain"
# Once more, where it is read first.
[ -z "$failed" ] || {
	echo "$failed" >&2
	exit 1
}
