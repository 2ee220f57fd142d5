#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# abi.sh [--update] BUILD: what programs were linked to is still there. Compares the
# exported functions and the layouts of public structs with those of the last release,
# in packaging/abi, by libabigail. BUILD is one with debugging information.
#
# A struct may grow at its end and calls may be added: take the new state in with
# --update, and say so in CHANGELOG.md. What was there stays as it was.
set -eu

usage()
{
	echo "usage: abi.sh [--update] BUILD" >&2
	exit 2
}

update=
[ "${1:-}" != --update ] || { update=1; shift; }
[ $# = 1 ] || usage
build=$1
root=$(cd "$(dirname "$0")/.." && pwd)
machine=$(uname -m)
dir=$root/packaging/abi/$machine
[ -n "$update" ] || [ -d "$dir" ] || {
	echo "skipped: there is no snapshot for $machine"
	exit 0
}
mkdir -p "$dir"
status=0

# What kedge's own libraries say to each other is not for programs.
private=$(mktemp)
now=$(mktemp)
trap 'rm -f "$private" "$now"' EXIT
printf '[suppress_function]\n  symbol_version = KEDGE_PRIVATE\n  drop = yes\n' \
	>"$private"
# Nor are the insides of other libraries' structs kedge's affair.
printf '[suppress_type]\n  name_regexp = ^(ibv|io_uring|fi)_.*\n  drop = yes\n' \
	>>"$private"

for lib in kedge hooks/kedge-hooks kedge-uring kedge-verbs kedge-rdma \
	kedge-ofi; do
	so=$build/src/${lib%"${lib##*/}"}lib${lib##*/}.so
	name=lib${lib##*/}.abi
	if [ ! -e "$so" ]; then
		case $lib in
		kedge-verbs | kedge-rdma | kedge-ofi)
			echo "skipped: $lib is not built: its headers are missing"
			;;
		*)
			echo "$so is missing: is $build a finished build?"
			status=1
			;;
		esac
		continue
	fi
	abidw --headers-dir "$root/include" --drop-private-types \
		--drop-undefined-syms --no-show-locs --no-corpus-path \
		--no-comp-dir-path --no-elf-needed --suppressions "$private" \
		--out-file "$now" "$so"
	if [ -n "$update" ]; then
		sed "s# path='[^']*/src/# path='src/#" "$now" >"$dir/$name"
	elif ! abidiff --suppressions "$private" "$dir/$name" "$now"; then
		echo "$lib: not as it was released; if only more is there:" \
		     "scripts/abi.sh --update BUILD"
		status=1
	fi
done
exit $status
