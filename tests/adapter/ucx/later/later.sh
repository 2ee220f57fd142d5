#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Lookups that UCX 1.14 and later have inlined: stale as they are, and not with libkedge-ucx.
#
#	later.sh PROGRAM LIBKEDGE-UCX CASE
#	later.sh PROGRAM PROGRAM-WITH-IT-LINKED CASE
PROGRAM=$1
WITH=$2
CASE=$3
unset LD_PRELOAD UCX_MEM_MMAP_HOOK_MODE

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/../../../tools/lib.sh"

# The runner names the folder of the other libucp as well, and first.
if [ "$CASE" = elsewhere ]; then
	LD_LIBRARY_PATH=$(dirname "$PROGRAM")/elsewhere${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
fi

"$PROGRAM" "$CASE" >"$DIR/out" 2>"$DIR/err"
status=$?
case $status in
1) ;;
*) fail "$CASE as it is: exit status $status, so the test sees nothing: $(cat "$DIR/err")" ;;
esac

# with: the program, and libkedge-ucx
with()
{
	case $WITH in
	*.so) LD_PRELOAD=$WITH "$PROGRAM" "$CASE" >"$DIR/out" 2>"$DIR/err" ;;
	*) "$WITH" "$CASE" >"$DIR/out" 2>"$DIR/err" ;;
	esac
	status=$?
}

# It makes no difference who has told UCX to change no code, nor that it may change relocations.
if [ "$CASE" = handler ]; then
	for mode in none reloc; do
		UCX_MEM_MMAP_HOOK_MODE=$mode with
		[ $status = 0 ] || fail "$CASE, mode $mode: exit status $status: $(cat "$DIR/err")"
	done
fi
with
if grep -q 'registrations are not kept' "$DIR/err"; then
	echo 'SKIP: nothing can be watched here'
	exit 77
fi
[ $status = 0 ] || fail "$CASE: exit status $status: $(cat "$DIR/err")"
case $CASE in
nomem) says err 'a lookup is refused: UCX has no memory' ;;
elsewhere) says err 'lookups are refused, as those of this libucp are not seen' ;;
handler) says err "another library is refused UCX's events of memory" ;;
refused) says err 'the cache of registrations "mlx5_0" is not made' ;;
*) [ ! -s "$DIR/err" ] || fail "$CASE: $(cat "$DIR/err")" ;;
esac
exit $FAILED
