#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# fuzz.sh BUILD SECONDS: build the libFuzzer harnesses with clang into BUILD and
# run each for SECONDS (0: not at all), as many at a time as there are CPUs: a harness has one
# thread. What a harness finds stays in BUILD/found/.
# fuzz.sh BUILD replay: run each once over its inputs in tests/fuzz/corpus.
set -eu

src=$(cd "$(dirname "$0")/.." && pwd)

# one BUILD SECONDS HARNESS: its output is shown when it has ended.
one()
{
	name=$(basename "$3")
	seeds=$src/tests/fuzz/corpus/$name
	[ -d "$seeds" ] || seeds=
	log=$1/found/$name.log
	verdict=ok
	if [ "$2" = replay ]; then
		how=-runs=0
		corpus=
	else
		how=-max_total_time=$2
		corpus=$1/corpus/$name
		mkdir -p "$corpus"
	fi
	# shellcheck disable=SC2086 # folders, or none: then the input is empty
	"$3" "$how" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$1/found/$name-" $corpus $seeds >"$log" 2>&1 || verdict=FAIL
	printf '%s\n%s %s (%s)\n' "$(cat "$log")" $verdict "$name" "$2"
	[ $verdict = ok ]
}

if [ "${1-}" = --one ]; then
	shift
	one "$@"
	exit
fi
build=${1:?usage: fuzz.sh BUILD SECONDS|replay}
seconds=${2:?usage: fuzz.sh BUILD SECONDS|replay}

[ -f "$build/build.ninja" ] ||
	CC=clang CXX=clang++ meson setup -Dfuzz=true \
		-Db_sanitize=address,undefined -Db_lundef=false \
		-Ddefault_library=static "$build" "$src"
ninja -C "$build" harnesses
[ "$seconds" != 0 ] || exit 0

harnesses=$(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
if [ -z "$harnesses" ]; then
	echo "fuzz.sh: no harness was built" >&2
	exit 1
fi
mkdir -p "$build/found"
if ! echo "$harnesses" | xargs -n 1 -P "$(nproc)" \
	"$0" --one "$build" "$seconds"; then
	grep -L '^Done [0-9]* runs' "$build"/found/*.log | sed 's/^/FAIL: /'
	exit 1
fi
