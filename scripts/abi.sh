#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# abi.sh [--update] BUILD: what programs were linked to is still there. Compares the
# exported functions and the layouts of public structs with those of the last release,
# in packaging/abi, by libabigail; and the numbers that headers compile into
# programs, by constants.py. BUILD is one with debugging information.
#
# A struct may grow at its end and calls and numbers may be added: take the new state
# in with --update, and say so in CHANGELOG.md. What was there stays as it was, and
# --update takes nothing in that changes it.
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

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
now=$tmp/now
private=$tmp/private
{
	# Calls between kedge's own libraries are not for programs.
	printf '[suppress_function]\n  symbol_version = KEDGE_PRIVATE\n'
	printf '  drop = yes\n'
	# Nor are the insides of other libraries' structs kedge's affair.
	printf '[suppress_type]\n  name_regexp = ^(ibv|io_uring|fi)_.*\n'
	printf '  drop = yes\n'
} >"$private"
refuse()
{
	echo "$1: something that was there has changed or is gone"
	status=1
}

# take NAME: the new state is the release's from here on.
take()
{
	cp "$now" "$dir/$1"
}

# more NAME SNAPSHOT: there is more than in the snapshot, and all that was.
more()
{
	if [ -n "$update" ]; then
		take "$2"
	else
		echo "$1: more than was released: scripts/abi.sh --update BUILD"
		status=1
	fi
}

# All that abidiff may say, added functions apart, where a struct has grown at its
# end. What it shows of one whose fields have moved has lines beside these.
growth="^\$
^(Functions|Variables) changes summary: 0 Removed
^[0-9]+ functions? with some indirect sub-type change
^ *\[C\] 'function .*' has some indirect sub-type changes:
^ *parameter [0-9]+ of type '.*' has sub-type changes:
^ *in (pointed to|referenced|unqualified underlying) type '.*':
^ *type size changed from [0-9]+ to [0-9]+ \(in bits\)
^ *[0-9]+ data member insertions?:
^ *'[^']*', at offset [0-9]+ \(in bits\)
, as reported earlier"

# abidiff's exit status has no bit for a field that moved: 4 says that something
# differs, 8 that a function is gone.
compare_library()
{
	abidiff --suppressions "$private" "$dir/$2" "$now" >"$tmp/said" && return
	cat "$tmp/said"
	abidiff --suppressions "$private" --no-added-syms "$dir/$2" "$now" \
		>"$tmp/said" || [ $? = 4 ] || { refuse "$1"; return; }
	if grep -qvE "$growth" "$tmp/said"; then
		refuse "$1"
	else
		more "$1" "$2"
	fi
}

compare_constants()
{
	LC_ALL=C comm -23 "$dir/constants" "$now" >"$tmp/gone"
	if [ -s "$tmp/gone" ]; then
		diff "$dir/constants" "$now" || true
		refuse constants
	elif ! cmp -s "$dir/constants" "$now"; then
		diff "$dir/constants" "$now" || true
		more constants constants
	fi
}

# first NAME SNAPSHOT: without a snapshot of it, whether there is something to compare.
first()
{
	[ -e "$dir/$2" ] && return
	if [ -n "$update" ]; then
		take "$2"
	else
		echo "$1: not in the snapshot: scripts/abi.sh --update BUILD"
		status=1
	fi
	return 1
}

for lib in kedge hooks/kedge-hooks kedge-uring kedge-verbs kedge-rdma \
	kedge-ofi kedge-etcd; do
	so=$build/src/${lib%"${lib##*/}"}lib${lib##*/}.so
	name=lib${lib##*/}.abi
	if [ ! -e "$so" ]; then
		case $lib in
		kedge-verbs | kedge-rdma | kedge-ofi | kedge-etcd)
			echo "skipped: $lib is not built: its headers are missing"
			;;
		*)
			echo "$so is missing: is $build a finished build?"
			status=1
			;;
		esac
		continue
	fi
	# Without it every layout is like every other.
	if ! readelf -SW "$so" | grep -q ' \.debug_info '; then
		echo "$so: no debugging information, so no layouts"
		status=1
		continue
	fi
	abidw --headers-dir "$root/include" --drop-private-types \
		--drop-undefined-syms --no-show-locs --no-corpus-path \
		--no-comp-dir-path --no-elf-needed --suppressions "$private" \
		--out-file "$now" "$so"
	sed -i "s# path='[^']*/src/# path='src/#" "$now"
	! first "$lib" "$name" || compare_library "$lib" "$name"
done
# libkedge-hooks' functions have libc's names and no version: Debian's list names each.
sed -n 's/^\t\([a-z_0-9]*\);$/\1/p' "$root/src/hooks/kedge-hooks.map" | LC_ALL=C sort >"$tmp/map"
sed -n 's/^ \([a-z_0-9]*\)@.*/\1/p' "$root/debian/libkedge-hooks0.symbols" >"$tmp/symbols"
diff "$tmp/symbols" "$tmp/map" || {
	echo "debian/libkedge-hooks0.symbols does not name what src/hooks/kedge-hooks.map does"
	status=1
}
"$root/scripts/constants.py" "$root" >"$tmp/constants"
LC_ALL=C sort "$tmp/constants" >"$now"
! first constants constants || compare_constants
exit $status
