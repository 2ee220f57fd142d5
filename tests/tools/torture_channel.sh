#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge torture --channel, for seconds: that it finds nothing, that it did all it
# says, and that it finds each kind of fault when there is one.
# usage: torture_channel.sh kedge inject.so
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
LIB=$(readlink -f "$2")
SAN=$(ldd "$KEDGE" | sed -n 's/.*lib[at]san[^ ]* => \([^ ]*\).*/\1/p')

# for_long KINDS OPTION...: a run of some seconds, or of more, on a busy machine, until it has
# done something of each kind
for_long() {
	kinds=$1
	shift
	for seconds in $(by_circle 2 6) 60; do
		expect 0 torture --channel "$@" --seconds "$seconds" --json
		python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(not all(d[k] for k in sys.argv[2].split()))' "$DIR/out" "$kinds" && return
	done
}

expect 0 torture --help
says out '--channel'
says out '--messages'
says out '--sizes'
for_long 'whole sessions stops maps'
json 'd["wrong"] == d["lost"] == d["leaks"] == d["crashes"] == d["hangs"] == 0' \
	'd["found"] == [] and d["errors"]["other"] == 0' \
	'd["messages"] >= d["whole"] > 0 and d["bytes"] > 0' \
	'sum(d["ways"].values()) == d["whole"] and d["ways"]["eager"] > 0' \
	'd["sessions"] > 0 and d["stops"] > 0 and d["maps"] > 0'
for_long 'whole sessions' --transport tcp
json 'd["wrong"] == d["lost"] == d["leaks"] == d["crashes"] == d["hangs"] == 0' \
	'd["found"] == [] and d["errors"]["other"] == 0' \
	'sum(d["ways"].values()) == d["whole"] > 0 and d["sessions"] > 0'
# A number of messages, whatever time that takes, and the same by its seed.
expect 0 torture --channel --messages 1001 --sizes small --seed 0x11
says out '0 wrong, 0 lost, 0 leaks, 0 crashes, 0 hangs'
says out 'sizes small, seed 17'
expect 0 torture --channel --messages 300 --sizes large --json
json 'd["messages"] >= 1 and d["sizes"] == "large"'

# finds WHAT TEXT [OPTION...]: what is injected so is found, and named so
finds() {
	what=$1 text=$2
	shift 2
	[ $# -gt 0 ] || set -- --messages 60000 --seconds 15
	INJECT=$what LD_PRELOAD="${SAN:+$SAN:}$LIB" "$KEDGE" torture --channel \
		"$@" --sizes small --seed 3 --json >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] || fail "--channel does not see '$what': $(cat "$DIR/out")"
	says out "$text"
}
finds flip 'is wrong'
finds short 'bytes, not'
finds before 'a byte before its buffer has changed'
finds behind 'a byte behind its'
finds tag 'to a receive for another'
finds overtake 'came'
finds twice 'of a receive that there is not'
if in_whole; then
	finds lose '"wrong": '
	json 'd["lost"] > 0'
fi
finds fail 'its sender says failed, its receiver whole'
finds end 'and the peer lives'
! in_whole || finds leak 'descriptors, not'
# Forks come by time.
finds child 'a forked child ended with status 1' --seconds "$(by_circle 2 5)"
finds crash 'died by signal'

# A provider that is not there is no fault of the channels'.
expect 3 torture --channel --transport nowhere --seconds 60
says err 'nowhere'
expect 2 torture --channel --naive
says err '--channel takes'
expect 2 torture --messages 5
says err 'belong to --channel'
expect 2 torture --channel --messages 0
says err '--messages takes'
expect 2 torture --channel --sizes huge
says err 'small, mixed or large'
expect 2 torture --channel --seconds 0
says err '--seconds takes'
exit "$FAILED"
