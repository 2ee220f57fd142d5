#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh [DIR]: let spin look at every interleaving of channel.pml, in some
# configurations, then at its mutants, each of which breaks one rule of the
# protocol and must be found out. DIR is where to build.
#
# Exit status 0; 1: a rule is broken, or a mutant is not found, or a part of the
# model was never reached; 77: spin is not installed.
set -u

src=$(cd "$(dirname "$0")" && pwd)
if ! command -v spin >/dev/null; then
	echo "skipped: spin is not installed"
	exit 77
fi
if [ $# -gt 0 ]; then
	dir=$1
	mkdir -p "$dir"
else
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
fi
cd "$dir" || exit 1
failed=0

# The verifier is compiled once; the environment tells it the rest.
spin -a "$src/channel.pml" >spin.out || { cat spin.out; exit 1; }
${CC:-cc} -O1 -w -DSAFETY -DVECTORSZ=2048 -DCOLLAPSE -DMEMLIM=1900 \
	-o pan pan.c || exit 1
: >marks

# verify VARIABLES: the verifier's words in out; 0 if it ended by itself
verify()
{
	# shellcheck disable=SC2086 # words
	env $1 timeout 300 ./pan -m400000 >out 2>&1 &&
		! grep -Eq 'out of memory|max search depth too small|VECTORSZ' out
}

holds()
{
	name=$1
	shift
	if ! verify "$*" || ! grep -q 'errors: 0$' out &&
	   ! grep -q 'errors: 0 ' out; then
		printf 'FAILED  %s (%s)\n' "$name" "$*"
		grep -E '^(pan|error)' out
		failed=1
		return
	fi
	grep '^mark ' out >>marks
	printf '%10s states  %s\n' \
		"$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)" "$name"
}

mutant()
{
	number=$1
	name=$2
	shift 2
	if ! verify "MUTANT=$number $*" || grep -q 'errors: 0' out; then
		printf 'FAILED  mutant %s is not found: %s (%s)\n' "$number" \
			"$name" "$*"
		failed=1
		return
	fi
	printf '     found         mutant %s: %s\n' "$number" "$name"
}

holds "one message, given up at both ends" CANCEL=3
holds "two, one operation at a time" SEND0=2 CANCEL=3
holds "two, in a ring for one packet" SEND0=2 CANCEL=3 ROOM=1
holds "two, and two operations at a time" \
	SEND0=2 CANCEL=3 TABLE=2 CHUNKS=1 WAYS=4
holds "three, names used again and again" SEND0=3 CANCEL=2 WAYS=6
holds "two short and a long one" \
	SEND0=3 LARGE=4 CANCEL=3 CREDITS=2 TABLE=2 CHUNKS=1
holds "short and long, of two tags" \
	SEND0=3 LARGE=2 CANCEL=2 TAGS=5 TABLE=2 CHUNKS=1
holds "short ones, announced" \
	SEND0=2 LARGE=0 ANNOUNCE=1 CANCEL=3 CREDITS=2 TABLE=2
holds "the same, in a ring for one packet" \
	SEND0=2 LARGE=0 ANNOUNCE=1 CANCEL=3 ROOM=1
holds "short ones, announced, and a long one" \
	SEND0=3 LARGE=2 ANNOUNCE=1 CANCEL=2 TABLE=2 CHUNKS=1 WAYS=6
holds "short ones, announced, too short a receive, an end that dies" \
	SEND0=2 LARGE=0 ANNOUNCE=1 SHORT=1 DEATH=3 CREDITS=2 TABLE=2
holds "one each way" SEND1=1 CANCEL=1 TABLE=2 CHUNKS=1
holds "a receive that is too short" SEND0=2 CANCEL=3 SHORT=1 CHUNKS=1
holds "what the system can refuse, it refuses" SEND0=2 CANCEL=1 FAIL=1
holds "an end that dies" SEND0=2 CANCEL=2 DEATH=3
holds "an end that dies, short messages" \
	SEND0=3 LARGE=0 CANCEL=3 CREDITS=2 TABLE=2 DEATH=3
holds "ends that are closed" SEND0=2 CANCEL=1 CLOSE=3 TABLE=2 CHUNKS=1
holds "the last of the data is the FIN" SEND0=2 CANCEL=3 TELLS=1 WAYS=6
holds "the same, and two operations at a time" \
	SEND0=2 CANCEL=3 TABLE=2 CHUNKS=1 TELLS=1 WAYS=6
holds "the same, and an end that dies" \
	SEND0=2 CANCEL=2 DEATH=3 TELLS=1 WAYS=6
holds "the same, and ends that are closed" \
	SEND0=2 CANCEL=1 CLOSE=3 TABLE=2 CHUNKS=1 TELLS=1 WAYS=6

# Every transition that is marked in the model has been made by one of these.
grep -Hn 'MARK([0-9]' "$src/"*.pml >want
while IFS= read -r line; do
	n=${line#*MARK(}
	grep -qx "mark ${n%%)*}" marks && continue
	echo "FAILED  never reached: $line"
	failed=1
done <want

# There is no mutant 1: that names have a generation matters only to ends that lie,
# as an end waits for the other's last word of an operation.
mutant 2 "the caller is told before the peer has let go" CANCEL=3 WAYS=2
mutant 3 "a CTS is heeded after the ABORT" CANCEL=1
mutant 4 "an operation ends when its ABORT is sent" SEND0=2 CANCEL=3
mutant 5 "an ABORT for nobody is not answered" CANCEL=3
mutant 6 "the ABORT of an RTS finds no receive" CANCEL=1
mutant 7 "the ABORT of an RTS finds no unexpected message" CANCEL=1
mutant 8 "ABORTs that cross are no answers" CANCEL=3
mutant 9 "an ABORT is not heeded by who gives up, too" CANCEL=3 ROOM=1
mutant 10 "what a peer had sent before it died is not read" DEATH=1
mutant 11 "a REFUSE is not heeded" SHORT=1
mutant 12 "what has landed is lost when the peer dies" DEATH=1
mutant 13 "a short message overtakes those that wait" SEND0=3 LARGE=0 \
	TABLE=2
mutant 14 "credit is given twice" SEND0=3 LARGE=0
mutant 15 "the FIN is sent before all has landed" DEATH=1
mutant 16 "credit that found no room is forgotten" SEND0=3 LARGE=4 SEND1=1 \
	ROOM=1
mutant 17 "a chunk that failed is waited for" FAIL=1
mutant 18 "a close stops what was stopped" SEND0=2 CANCEL=3 CLOSE=1 TABLE=2
mutant 19 "a message is given up of which the peer has all" \
	SEND0=2 CANCEL=3 TELLS=1 WAYS=6
mutant 20 "what the peer has received fails when the peer leaves" CANCEL=1 \
	CLOSE=2 TELLS=1 WAYS=2
mutant 21 "a short message that finds no room is forgotten" SEND0=2 LARGE=0 \
	ANNOUNCE=1 ROOM=1 TABLE=2
mutant 22 "a short message is complete before it is received" SEND0=2 \
	LARGE=0 ANNOUNCE=1 CANCEL=3 CREDITS=2 TABLE=2
mutant 23 "a message is complete when its FIN is sent" CANCEL=3
mutant 24 "a message that has landed is given up by its sender" CANCEL=3
mutant 25 "a receiver that is sooner is not heard" SEND0=2 CANCEL=2 DEATH=3 \
	TELLS=1 WAYS=6

mutant 26 "what was sent counts as received when the peer leaves" CLOSE=2 WAYS=2
mutant 27 "what was sent counts as received when it is cancelled" CANCEL=3
mutant 28 "what was moved, and not said, counts as received" CANCEL=3 ROOM=1 \
	SEND0=2
mutant 29 "a close does not say what was received" CLOSE=2 ROOM=1 SEND0=2 \
	SEND1=1 TABLE=2 CHUNKS=1
mutant 30 "a receiver that is sooner is not heard by who gives up" \
	SEND0=2 CANCEL=3 TELLS=1 WAYS=6

[ "$failed" = 0 ] && echo "the model holds"
exit "$failed"
