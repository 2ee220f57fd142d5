#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# fuzz.sh BUILD SECONDS: build the libFuzzer harnesses with clang into BUILD and
# run each for SECONDS. What a harness finds stays in BUILD/found/.
set -eu

build=${1:?usage: fuzz.sh BUILD SECONDS}
seconds=${2:?usage: fuzz.sh BUILD SECONDS}
src=$(cd "$(dirname "$0")/.." && pwd)

[ -f "$build/build.ninja" ] ||
	CC=clang CXX=clang++ meson setup -Dfuzz=true \
		-Db_sanitize=address,undefined -Db_lundef=false \
		-Ddefault_library=static "$build" "$src"
ninja -C "$build" harnesses

harnesses=$(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
if [ -z "$harnesses" ]; then
	echo "fuzz.sh: no harness was built" >&2
	exit 1
fi
mkdir -p "$build/found"
status=0
for h in $harnesses; do
	name=$(basename "$h")
	seeds=$src/tests/fuzz/corpus/$name
	[ -d "$seeds" ] || seeds=
	mkdir -p "$build/corpus/$name"
	# shellcheck disable=SC2086 # nothing or one folder
	if "$h" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$build/found/$name-" \
		"$build/corpus/$name" $seeds; then
		echo "ok   $name (${seconds}s)"
	else
		echo "FAIL $name"
		status=1
	fi
done
exit $status
