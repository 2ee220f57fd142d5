# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
# Sourced by the tests of the command: $1 is the command.
KEDGE=$1
# shellcheck disable=SC2034
FAILED=0
DIR=$(mktemp -d) || exit 1
trap 'rm -rf "$DIR"' EXIT
# A signal ends dash without what it has for its exit.
trap 'exit 1' HUP INT TERM
unset KEDGE_NOTIFIER KEDGE_VERIFY KEDGE_LOG
unset KEDGE_CHANNEL_SECRET KEDGE_CHANNEL_SECRET_FILE

# The gate runs a test for a short time, and the whole, which sets TESTS_WHOLE, for longer.
in_whole() {
	[ -n "${TESTS_WHOLE-}" ]
}

# by_circle GATE WHOLE: one of the two
by_circle() {
	if in_whole; then echo "$2"; else echo "$1"; fi
}

# pin_alone: what io_uring pins for all processes of a user counts as one against ulimit -l. Where
# that binds, tests that pin much run one at a time, and leave 2 MiB to others, as
# tests/process/alone.h has it.
pin_alone() {
	[ "$(id -u)" != 0 ] || return 0
	# shellcheck disable=SC3045 # dash has it
	kib=$(ulimit -l)
	[ "$kib" != unlimited ] || return 0
	[ "$kib" -ge 8192 ] || {
		echo "skipped: ulimit -l is $kib, and this takes 8192"
		exit 77
	}
	# shellcheck disable=SC3045
	exec 9</tmp && flock 9 && sleep 0.1 && ulimit -S -l 6144
}

# preloads FILE: skips where LD_PRELOAD, whose names end at a blank or colon, cannot name it
preloads() {
	case $1 in
	*[\ :]*)
		echo "skipped: LD_PRELOAD cannot name a folder with a blank or colon in it: $1"
		exit 77
		;;
	esac
}

fail() {
	echo "FAIL: $*"
	# shellcheck disable=SC2034
	FAILED=1
}

# expect STATUS ARGUMENT...: runs kedge; its output is in $DIR/out and $DIR/err
expect() {
	want=$1
	shift
	"$KEDGE" "$@" >"$DIR/out" 2>"$DIR/err"
	got=$?
	[ "$got" -eq "$want" ] ||
		fail "kedge $*: exit status $got, not $want: $(cat "$DIR/err")"
}

# says out|err TEXT: what the last run printed has TEXT in it
says() {
	grep -qF -- "$2" "$DIR/$1" || fail "no '$2' in: $(cat "$DIR/$1")"
}

# silent out|err: the last run printed nothing there
silent() {
	[ ! -s "$DIR/$1" ] || fail "unexpected on $1: $(cat "$DIR/$1")"
}

# json EXPRESSION...: each holds of the last run's JSON, which is d
json() {
	python3 -m json.tool "$DIR/out" >/dev/null || {
		fail "not JSON: $(cat "$DIR/out")"
		return
	}
	for e; do
		python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$DIR/out" "$e" ||
			fail "does not hold: $e"
	done
}
