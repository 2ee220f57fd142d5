#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The frame: help, versions, mistakes and their exit statuses.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

expect 0 --help
says out 'Usage: kedge'
silent err
for sub in info demo torture bench run migrate segments; do
	expect 0 --help
	says out "  $sub"
	expect 0 "$sub" --help
	says out "Usage: kedge $sub"
	[ $sub = bench ] || says out '--json'
	silent err
	expect 2 "$sub" --no-such-option
	says err "Try 'kedge $sub"
	silent out
done

expect 0 --version
grep -qE '^kedge [0-9]+\.[0-9]+\.[0-9]+$' "$DIR/out" || fail 'odd --version'

expect 2
says err "Try 'kedge --help'"
silent out
expect 2 tortur
says err "did you mean 'torture'?"
expect 2 inof
says err "did you mean 'info'?"
expect 2 zzzzzzzz
says err "there is no subcommand 'zzzzzzzz'"
expect 2 --no-such-option
says err 'unknown option'

expect 2 info surplus
says err 'one argument too many'

# Nothing written must not look like success.
"$KEDGE" --version >/dev/full 2>"$DIR/err"
[ $? -eq 3 ] || fail 'a full disk goes unnoticed'
says err 'cannot write'
exit "$FAILED"
