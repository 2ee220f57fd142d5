#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# libfabric's cache of registrations, over an adapter that is a stand-in: what libkedge-fi makes of
# it, and what it is without.
#
#	libfabric.sh KEDGE-WITHOUT-HOOKS KEDGE LIBKEDGE-FI STAND-IN
PLAIN=$1
HOOKED=$2
STANDIN=$4
FI_PROVIDER_PATH=$(dirname "$3")
export FI_PROVIDER_PATH
unset FI_MR_CACHE_MONITOR FI_LOG_LEVEL

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/../tools/lib.sh"
preloads "$STANDIN"
pin_alone

# torture STATUS KEDGE ARGUMENT...
torture()
{
	want=$1
	exe=$2
	shift 2
	LD_PRELOAD=$STANDIN "$exe" torture --libfabric --json "$@" >"$DIR/out" 2>"$DIR/err"
	got=$?
	[ $got -eq "$want" ] || fail "$*: exit status $got, not $want: $(cat "$DIR/err")"
}

# told WHAT: what libfabric logs
told()
{
	FI_LOG_LEVEL=warn torture 0 "$PLAIN" -s 0.1 -e munmap -r raw -m single
	grep -q "$1" "$DIR/err" || fail "no '$1' in: $(cat "$DIR/err")"
}

if ! LD_PRELOAD=$STANDIN "$PLAIN" torture --libfabric -s 0.1 -e munmap >"$DIR/out" 2>&1; then
	grep -q 'io_uring\|no "verbs"' "$DIR/out" && { cat "$DIR/out"; exit 77; }
fi

# Events in all ways, and threads. Registrations are kept, or there is nothing to see.
rounds=$(by_circle 50 300)
for exe in "$PLAIN" "$HOOKED"; do
	torture 0 "$exe" -s "$(by_circle 2 8)"
	json 'd["stale"] == 0' 'd["errors"] == 0' 'd["rounds"] > 0' 'd["hits"] > 0'
	torture 0 "$exe" --rounds "$rounds" -m race
	json 'd["stale"] == 0' "all(c['rounds'] >= $rounds for c in d['cases'])"
done

# The test finds what is stale, and the user's choice of a monitor is respected.
FI_MR_CACHE_MONITOR=memhooks
export FI_MR_CACHE_MONITOR
torture 1 "$PLAIN" -s 1 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] > 0'
FI_MR_CACHE_MONITOR=disabled
torture 0 "$PLAIN" -s 1 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] == 0' 'd["hits"] == 0'
FI_MR_CACHE_MONITOR=kedge
torture 0 "$PLAIN" -s 1 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] == 0' 'd["hits"] > 0'
unset FI_MR_CACHE_MONITOR

# A domain as a device of kedge's cache. One of which libfabric keeps stale registrations is refused.
FI_MR_CACHE_MONITOR=memhooks LD_PRELOAD=$STANDIN "$PLAIN" torture -D ofi -s 1 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 3 ] || fail "a stale cache below is not refused: $(cat "$DIR/out" "$DIR/err")"
says err FI_MR_CACHE_MONITOR=disabled
for FI_MR_CACHE_MONITOR in disabled kedge; do
	LD_PRELOAD=$STANDIN "$PLAIN" torture -D ofi --json -s "$(by_circle 1 4)" >"$DIR/out" 2>"$DIR/err" ||
		fail "-D ofi, $FI_MR_CACHE_MONITOR: $(cat "$DIR/err")"
	json 'd["stale"] == 0' 'd["errors"] == 0' 'd["hits"] > 0'
done
unset FI_MR_CACHE_MONITOR

# The demo copies a file by it: right with kedge's cache, and wrong by one that follows nothing.
LD_PRELOAD=$STANDIN "$PLAIN" demo -D ofi --size 8M -r 2 -c 10 --json "$PLAIN" >"$DIR/out" 2>"$DIR/err" ||
	fail "demo -D ofi: $(cat "$DIR/err")"
json '{m["name"]: m["stale"] for m in d["modes"]}["kedge"] == 0' \
	'{m["name"]: m["stale"] for m in d["modes"]}["naive"] > 0'
"$PLAIN" demo -D ofi --size 8M -r 2 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 3 ] || fail 'demo -D ofi runs without the stand-in'

# Without the plug-in, as Debian ships libfabric.
FI_PROVIDER_PATH=$DIR torture 1 "$PLAIN" -s 1 -r raw -m single -e 'm[um]*map*'
json 'd["stale"] > 0'

# Where nothing can be watched, nothing is kept, and that is said.
KEDGE_NOTIFIER=none
export KEDGE_NOTIFIER
told 'registrations are not kept'
json 'd["stale"] == 0' 'd["hits"] == 0'
unset KEDGE_NOTIFIER

exit $FAILED
