#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two processes of this host and a channel between them, by each TRANSPORT that is
# here: random messages in both directions, every byte looked at, peers that are
# killed and whose end is told; and the same with a secret.
# usage: between.sh kedge TRANSPORT...
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/../tools/lib.sh"
shift

# nothing_wrong: of the last run
nothing_wrong() {
	json 'd["wrong"] == d["lost"] == d["leaks"] == d["crashes"] == d["hangs"] == 0' \
		'd["found"] == [] and d["errors"]["other"] == 0'
}

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$DIR/secret"
chmod 600 "$DIR/secret"
for transport; do
	# Longer on a busy machine: until several have met, and one was killed.
	for seconds in "$(by_circle 3 8)" 20 60 180; do
		"$KEDGE" torture --channel -q --transport "$transport" --seconds "$seconds" --json \
			>"$DIR/out" 2>"$DIR/err"
		got=$?
		if [ $got -eq 3 ] && grep -Eq 'no provider|2\.4' "$DIR/err"; then
			echo "without $transport: $(cat "$DIR/err")"
			continue 2
		fi
		[ $got -eq 0 ] || fail "$transport: exit status $got: $(cat "$DIR/out" "$DIR/err")"
		nothing_wrong
		python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(not (d["sessions"] > 1 and d["deaths"]))' "$DIR/out" && break
		echo "$transport: too little in $seconds s: $(cat "$DIR/out")"
	done
	json 'd["whole"] > 0 and d["sessions"] > 1 and d["deaths"] > 0'
	KEDGE_CHANNEL_SECRET_FILE=$DIR/secret \
		expect 0 torture --channel -q --transport "$transport" --messages 1000 --json
	nothing_wrong
	json 'd["whole"] > 0'
done
# It is looked at: one that others may read is refused.
chmod 644 "$DIR/secret"
KEDGE_CHANNEL_SECRET_FILE=$DIR/secret expect 3 torture --channel --transport tcp --seconds 1
says err 'can be used by others'
exit "$FAILED"
