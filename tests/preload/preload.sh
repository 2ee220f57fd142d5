#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# "kedge run", around a program on the tests' own libibverbs.
# usage: preload.sh kedge test_preload libibverbs.so.1 libkedge.so
#                   libkedge-preload-verbs.so [static program]
# shellcheck source=/dev/null
# shellcheck disable=SC2016,SC2034 # inner shells expand; lib.sh reads them
. "$(dirname "$0")/../tools/lib.sh"
kedge=$(readlink -f "$1")
program=$(readlink -f "$2")
fake=$(dirname "$(readlink -f "$3")")
libkedge=$(readlink -f "$4")
preload=$(readlink -f "$5")
static=${6:+$(readlink -f "$6")}
unset KEDGE_PEERS KEDGE_STATS
KEDGE=$kedge

# cases NAME COMMAND...: the program's cases all pass
cases()
{
	name=$1
	shift
	if ! LD_LIBRARY_PATH=$fake "$@" >"$DIR/out" 2>"$DIR/err"; then
		fail "$name: $(cat "$DIR/out" "$DIR/err")"
	fi
	tests=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$DIR/out" \
		"$DIR/err")
	echo "$name: ${tests:-no} cases"
}

# with NOTIFIER: under kedge, in each way
with()
{
	export KEDGE_NOTIFIER="$1"
	cases "$1, default" "$kedge" run -- "$program" default
	# One of its cases changes memory that another thread has registered.
	! grep kedge: "$DIR/err" | grep -qv 'test_preload holds a registration' ||
		fail "words: $(cat "$DIR/err")"
	cases "$1, trusted" "$kedge" run --trusted-peers -- "$program" trusted
	cases "$1, KEDGE_PEERS" env KEDGE_PEERS=trusted "$kedge" run \
		"$program" trusted
	unset KEDGE_NOTIFIER
}

cases plain "$program" plain
with hooks
# The kernel decides if there is another.
"$kedge" info --json >"$DIR/info"
if python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if any(n["name"] == "uffd" and n["level"]
                  for n in d["notifiers"]) else 1)' "$DIR/info"; then
	with uffd
else
	echo 'without the notifier uffd: the kernel has it not'
fi
# Without any the program is served by libibverbs, and says so if asked.
cases 'no notifier' env KEDGE_NOTIFIER=nonesuch KEDGE_LOG=warn \
	"$kedge" run -- "$program" plain
says err 'no registration cache on fake0: '
says err 'registered as without kedge'

# Statistics.
cases stats env KEDGE_NOTIFIER=hooks "$kedge" run --stats -- "$program" default
tail -n 1 "$DIR/err" | grep -Eq '^kedge: [1-9][0-9]* registrations asked for: [1-9][0-9]* cached, [1-9][0-9]* made \([1-9][0-9]* of them with access that ended with them, [0-9]+ not kept\), [1-9][0-9]* refused; [1-9][0-9]* invalidated$' ||
	fail "odd statistics: $(tail -n 1 "$DIR/err")"
expect 0 run --stats -- true
silent err

# The program's status, words and surroundings are its own.
expect 7 run -- sh -c 'exit 7'
expect 0 run sh -c 'echo "$# $1 $2"' x --stats --help
says out '2 --stats --help'
expect 0 run -t --no-hooks -- sh -c 'echo "$KEDGE_PEERS $LD_PRELOAD"'
says out "trusted $preload"
expect 0 run -- sh -c 'echo "$KEDGE_PEERS+$KEDGE_STATS+$LD_PRELOAD"'
says out "++"
says out libkedge-hooks.so
says out "$preload"
LD_PRELOAD=libm.so.6 expect 0 run -- sh -c 'echo "$LD_PRELOAD"'
says out ":libm.so.6"
expect 0 run -- grep -c libkedge-preload-verbs /proc/self/maps
expect 137 run -- sh -c 'kill -9 $$'

# Programs that cannot be run.
expect 127 run -- "$DIR/nothing"
says err 'No such file'
expect 127 run -- no-such-program-in-path
expect 126 run -- "$DIR"
says err 'Permission denied'
echo : >"$DIR/script"
expect 126 run -- "$DIR/script"
expect 2 run
says err 'which program?'
expect 2 run --
expect 2 run --no-such-option -- true
expect 0 run --help
says out '--trusted-peers'
if [ -n "$static" ]; then
	expect 3 run -- "$static"
	says err 'linked statically'
	PATH=$(dirname "$static"):$PATH expect 3 run -- "$(basename "$static")"
	says err 'linked statically'
fi

# Beside libkedge there is nothing to preload, or in a folder that LD_PRELOAD
# cannot name.
mkdir "$DIR/lib" "$DIR/a blank" "$DIR/a blank/preload"
cp "$libkedge" "$DIR/lib/libkedge.so.0"
LD_LIBRARY_PATH=$DIR/lib expect 3 run -- true
says err 'there is no kedge/preload/libkedge-preload-verbs.so beside'
cp "$libkedge" "$DIR/a blank/libkedge.so.0"
cp "$preload" "$DIR/a blank/preload/"
LD_LIBRARY_PATH="$DIR/a blank" expect 3 run --no-hooks -- true
says err 'LD_PRELOAD cannot name'
LD_LIBRARY_PATH="$DIR/a blank" expect 3 run -- true
says err 'there is no libkedge-hooks.so.0 beside'
exit "$FAILED"
