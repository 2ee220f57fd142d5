#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run.sh [DIR]: let spin look at every interleaving of channel.pml and migrate.pml,
# each in some configurations, then at its mutants, each of which breaks one rule of
# the protocol and must be found out. DIR is where to build.
#
# Exit status 0; 1: a rule is broken, or a mutant is not found, or a part of a
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
	trap 'exit 1' HUP INT TERM
fi
cd "$dir" || exit 1
failed=0

# model NAME: its verifier, which is compiled once; the environment tells it the rest
model()
{
	spin -a "$src/$1.pml" >spin.out || { cat spin.out; exit 1; }
	${CC:-cc} -O1 -w -DSAFETY -DVECTORSZ=2048 -DCOLLAPSE -DMEMLIM=1900 \
		-o pan pan.c || exit 1
	: >marks
}

# verify VARIABLES: the verifier's words in out; 0 if it ended by itself
verify()
{
	# shellcheck disable=SC2086 # words
	env $1 timeout --foreground 300 ./pan -m400000 >out 2>&1 &&
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

# reached FILE...: every transition that is marked there has been made by one of the
# configurations
reached()
{
	grep -Hn 'MARK([0-9]' "$@" >want
	while IFS= read -r line; do
		n=${line#*MARK(}
		grep -qx "mark ${n%%)*}" marks && continue
		echo "FAILED  never reached: $line"
		failed=1
	done <want
}

model channel
holds "one message, given up at both ends" CANCEL=3
holds "two, one operation at a time" SEND0=2 CANCEL=3
holds "two, in a ring for one packet" SEND0=2 CANCEL=3 ROOM=1
holds "two, and two operations at a time" SEND0=2 CANCEL=3 TABLE=2 CHUNKS=1 WAYS=4
holds "three, names used again and again" SEND0=3 CANCEL=2 WAYS=6
holds "two short and a long one" SEND0=3 LARGE=4 CANCEL=3 CREDITS=2 TABLE=2 CHUNKS=1
holds "short and long, of two tags" SEND0=3 LARGE=2 CANCEL=2 TAGS=5 TABLE=2 CHUNKS=1
holds "short ones, announced" SEND0=2 LARGE=0 ANNOUNCE=1 CANCEL=3 CREDITS=2 TABLE=2
holds "the same, in a ring for one packet" SEND0=2 LARGE=0 ANNOUNCE=1 CANCEL=3 ROOM=1
holds "short ones, announced, and a long one" \
	SEND0=3 LARGE=2 ANNOUNCE=1 CANCEL=2 TABLE=2 CHUNKS=1 WAYS=6
holds "short ones, announced, too short a receive, an end that dies" \
	SEND0=2 LARGE=0 ANNOUNCE=1 SHORT=1 DEATH=3 CREDITS=2 TABLE=2
holds "one each way" SEND1=1 CANCEL=1 TABLE=2 CHUNKS=1
holds "a receive that is too short" SEND0=2 CANCEL=3 SHORT=1 CHUNKS=1
holds "what the system can refuse, it refuses" SEND0=2 CANCEL=1 FAIL=1
holds "an end that dies" SEND0=2 CANCEL=2 DEATH=3
holds "an end that dies, short messages" SEND0=3 LARGE=0 CANCEL=3 CREDITS=2 TABLE=2 DEATH=3
holds "ends that are closed" SEND0=2 CANCEL=1 CLOSE=3 TABLE=2 CHUNKS=1
holds "the last of the data is the FIN" SEND0=2 CANCEL=3 TELLS=1 WAYS=6
holds "the same, and two operations at a time" SEND0=2 CANCEL=3 TABLE=2 CHUNKS=1 TELLS=1 WAYS=6
holds "the same, and an end that dies" SEND0=2 CANCEL=2 DEATH=3 TELLS=1 WAYS=6
holds "the same, and ends that are closed" SEND0=2 CANCEL=1 CLOSE=3 TABLE=2 CHUNKS=1 TELLS=1 WAYS=6

reached "$src/channel.pml" "$src/rules.pml"

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
mutant 13 "a short message overtakes those that wait" SEND0=3 LARGE=0 TABLE=2
mutant 14 "credit is given twice" SEND0=3 LARGE=0
mutant 15 "the FIN is sent before all has landed" DEATH=1
mutant 16 "credit that found no room is forgotten" SEND0=3 LARGE=4 SEND1=1 ROOM=1
mutant 17 "a chunk that failed is waited for" FAIL=1
mutant 18 "a close stops what was stopped" SEND0=2 CANCEL=3 CLOSE=1 TABLE=2
mutant 19 "a message is given up of which the peer has all" SEND0=2 CANCEL=3 TELLS=1 WAYS=6
mutant 20 "what the peer has received fails when the peer leaves" CANCEL=1 CLOSE=2 TELLS=1 WAYS=2
mutant 21 "a short message that finds no room is forgotten" SEND0=2 LARGE=0 \
	ANNOUNCE=1 ROOM=1 TABLE=2
mutant 22 "a short message is complete before it is received" SEND0=2 \
	LARGE=0 ANNOUNCE=1 CANCEL=3 CREDITS=2 TABLE=2
mutant 23 "a message is complete when its FIN is sent" CANCEL=3
mutant 24 "a message that has landed is given up by its sender" CANCEL=3
mutant 25 "a receiver that is sooner is not heard" SEND0=2 CANCEL=2 DEATH=3 TELLS=1 WAYS=6

mutant 26 "what was sent counts as received when the peer leaves" CLOSE=2 WAYS=2
mutant 27 "what was sent counts as received when it is cancelled" CANCEL=3
mutant 28 "what was moved, and not said, counts as received" CANCEL=3 ROOM=1 SEND0=2
mutant 29 "a close does not say what was received" CLOSE=2 ROOM=1 SEND0=2 SEND1=1 TABLE=2 CHUNKS=1
mutant 30 "a receiver that is sooner is not heard by who gives up" SEND0=2 CANCEL=3 TELLS=1 WAYS=6

model migrate
holds "a region moves, or S gives it up" ROUNDS=2
holds "the same, and time limits" LIMITS=2
holds "a network that is cut" CUTS=1 LIMITS=1
holds "the same, twice" CUTS=2
holds "S is killed" KILL=1 LIMITS=1
holds "T is killed" KILL=2 LIMITS=1
holds "both are killed" KILL=3
holds "both are killed, a network that is cut" KILL=3 CUTS=1 WRITES=1
holds "the same, one peer, and a time limit" KILL=3 CUTS=1 LIMITS=1 SECOND=0
holds "two attempts, and time limits" ATTEMPTS=2 LIMITS=2 SECOND=0
holds "two attempts, a network that is cut" ATTEMPTS=2 CUTS=1 LIMITS=1 SECOND=0 WRITES=1
holds "a handle that is given away late" SECOND=2 CUTS=1
holds "a peer of T's own, both are killed" SECOND=3 KILL=3 CUTS=1
holds "T lets go of the region again" ONWARD=1 CUTS=1
holds "the same, and S is killed" ONWARD=1 KILL=1 LIMITS=1
holds "T lets go of it, a peer of T's own, and T is killed" \
	ONWARD=1 KILL=2 CUTS=1 LIMITS=1 SECOND=3 WRITES=1
reached "$src/migrate.pml"

mutant 1 "T serves when it has the whole copy" LIMITS=0
mutant 2 "S resumes, and says ABORT then" KILL=1
mutant 3 "T takes office when its connection is reset" LIMITS=0
mutant 4 "S sends peers to T once it has said COMMIT" LIMITS=0
mutant 5 "S resumes at a time limit after COMMIT, and does not ask" LIMITS=1
mutant 6 "T serves, and says DONE then" LIMITS=1
mutant 7 "the last dirty data is not sent" LIMITS=0
mutant 8 "S lets peers in after COMMIT" LIMITS=0
mutant 9 "T denies a copy that it keeps" LIMITS=1
mutant 10 "T takes office at each COMMIT that it hears" LIMITS=1
mutant 11 "T denies the copy that it is in office with" LIMITS=1
mutant 12 "a question that ends without an answer is taken for the end of T" LIMITS=2
mutant 13 "T moves the region on before S has heard DONE" ONWARD=1 LIMITS=1 KILL=2
mutant 14 "T denies a region that it has let go of" ONWARD=1 LIMITS=1
mutant 15 "a COMMIT of an earlier attempt is heard for this one" ATTEMPTS=2 LIMITS=1 SECOND=0
mutant 16 "S is suspended while an access is under way" LIMITS=0
mutant 17 "the dirty mark is cleared after the page is read" LIMITS=0
mutant 18 "the dirty mark is set before the page is written" LIMITS=0
mutant 19 "a handle is given away while S is suspended" SECOND=2
mutant 20 "T takes office with a part of the copy" KILL=1
mutant 21 "S closes in order where its ABORT finds no room" LIMITS=0
mutant 22 "an access that waits is done by S, too" LIMITS=0
mutant 23 "S gives up after COMMIT" LIMITS=0
mutant 24 "T takes the end of a question for the end of S" LIMITS=2
mutant 25 "T closes one direction, and hears COMMIT by the other" LIMITS=1
mutant 26 "S says no ABORT where it has given the connection up" LIMITS=1
mutant 27 "T takes office at a time limit" LIMITS=1
mutant 28 "S takes a reset after COMMIT for the end of T" CUTS=1
mutant 29 "S asks by another connection, and says nothing by the first" ONWARD=1 LIMITS=1

[ "$failed" = 0 ] && echo "the models hold"
exit "$failed"
