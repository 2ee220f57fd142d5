#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# UCX's cache of registrations: what libkedge-ucx makes of it, and what it is without.
#
#	ucx.sh KEDGE-WITHOUT-HOOKS KEDGE LIBKEDGE-UCX THE-SAME-WITHOUT-HOOKS
PLAIN=$1
HOOKED=$2
UCX=$3
ALONE=$4
unset LD_PRELOAD UCX_MEM_MMAP_HOOK_MODE UCX_MEM_EVENTS

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/../tools/lib.sh"
preloads "$UCX"
pin_alone

# torture STATUS KEDGE ARGUMENT...: with what PRELOAD names
torture()
{
	want=$1
	exe=$2
	shift 2
	LD_PRELOAD=${PRELOAD-} "$exe" torture --ucx --json "$@" >"$DIR/out" 2>"$DIR/err"
	got=$?
	[ $got -eq "$want" ] || fail "$*: exit status $got, not $want: $(cat "$DIR/err")"
}

# binds LIBRARY SYMBOL: to libkedge-ucx's, as the dynamic linker has said
binds()
{
	grep -q "/$1\.so.* to .*/libkedge-ucx\.so .*symbol .$2'" "$DIR/err" ||
		fail "$1 has $2 from another library"
}

PRELOAD=
if ! "$PLAIN" torture --ucx -s 0.1 -e mmap-over -r raw -m single >"$DIR/out" 2>&1; then
	grep -q 'io_uring\|UCX cannot be loaded\|fixed buffers' "$DIR/out" &&
		{ cat "$DIR/out"; exit 77; }
fi

# As Debian ships it: the test finds what is stale.
torture 1 "$PLAIN" -s 1 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] > 0'

# Events in all ways, and threads. Registrations are kept, or there is nothing to see.
storm()
{
	PRELOAD=$2
	torture 0 "$1" -s "$(by_circle 2 6)"
	json 'd["stale"] == 0' 'd["errors"] == 0' 'd["rounds"] > 0' 'd["hits"] > 0'
	torture 0 "$1" -s "$(by_circle 1 3)" -m race
	json 'd["stale"] == 0' 'd["rounds"] > 0'
}

storm "$PLAIN" "$UCX"
storm "$PLAIN" "$ALONE"
storm "$HOOKED" "$ALONE"
# libkedge-hooks comes along: libc's calls have no blind spot, be they promised or not.
PRELOAD=$UCX
torture 0 "$PLAIN" --strict -s "$(by_circle 1 3)" -r libc -m single
json 'd["stale"] == 0' 'd["rounds"] > 0'

# As a user without rights, where that one can reach the files.
user='setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all'
# shellcheck disable=SC2086 # a list of words
if [ "$(id -u)" = 0 ] && $user test -x "$PLAIN" -a -r "$UCX" 2>"$DIR/err"; then
	$user env LD_PRELOAD="$UCX" "$PLAIN" torture --ucx --json -s "$(by_circle 1 3)" >"$DIR/out" 2>"$DIR/err" ||
		fail "without rights: exit status $?: $(cat "$DIR/err")"
	json 'd["stale"] == 0' 'd["rounds"] > 0'
fi

# Where nothing can be watched, nothing is kept, and that is said.
KEDGE_NOTIFIER=none torture 0 "$PLAIN" -s 0.5 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] == 0' 'd["hits"] == 0'
says err 'libkedge-ucx: registrations are not kept'

# The calls of UCX's parts come here, and code of libc's is not changed.
LD_DEBUG=bindings LD_PRELOAD=$UCX "$PLAIN" torture --ucx -s 0.1 -e munmap -m single \
	>"$DIR/out" 2>"$DIR/err"
for symbol in ucs_rcache_create ucs_rcache_get ucs_rcache_destroy; do
	binds libucp $symbol
done
binds libucs ucm_set_global_opts
grep -q "/libucs\.so.* to .*/libkedge-hooks\.so.* symbol .munmap'" "$DIR/err" ||
	fail 'libkedge-hooks was not loaded, or too late'

exit $FAILED
