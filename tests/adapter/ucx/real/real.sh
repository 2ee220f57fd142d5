#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# UCX itself, of 1.14 or later: the one that is installed, and those in the folders that
# KEDGE_TEST_UCX names, parted by colons. Lookups come to libkedge-ucx, and hits are hits with it.
#
#	real.sh PROGRAM LIBKEDGE-UCX
PROGRAM=$1
UCX=$2
unset LD_PRELOAD UCX_MEM_MMAP_HOOK_MODE UCX_MEM_EVENTS UCX_RCACHE_ENABLE
export UCX_TLS=self,tcp UCX_WARN_UNUSED_ENV_VARS=n

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/../../../tools/lib.sh"

tried=0

# runs LIBRARY...: with those preloaded
runs()
{
	LD_PRELOAD=$* "$PROGRAM" 200 >"$DIR/out" 2>"$DIR/err" ||
		fail "$version with '$*': exit status $?: $(cat "$DIR/out" "$DIR/err")"
	cat "$DIR/out"
}

# code HOW: libc's is so behind the last run, where that is known
code()
{
	grep -q 'code not looked at' "$DIR/out" || says out "code $1"
}

one()
{
	version=$("$PROGRAM" 1 2>"$DIR/err") || {
		fail "no UCX: $(cat "$DIR/err")"
		return
	}
	version=${version%%:*}
	case $version in
	'UCX 1.13'*) return ;;
	esac
	tried=1
	runs
	code changed
	runs "$UCX"
	code 'as it was'
	silent err
	LD_DEBUG=bindings LD_PRELOAD=$UCX "$PROGRAM" 1 >"$DIR/out" 2>"$DIR/err"
	for symbol in ucs_rcache_create ucs_rcache_get ucs_rcache_destroy ucs_pgtable_lookup; do
		grep -q "/libucp\.so.* to .*/libkedge-ucx\.so .*symbol .$symbol'" "$DIR/err" ||
			fail "$version: libucp has $symbol from another library"
	done
}

one
given=$LD_LIBRARY_PATH
IFS=:
for prefix in ${KEDGE_TEST_UCX-}; do
	unset IFS
	export LD_LIBRARY_PATH="$prefix/lib:$given"
	one
done
[ $tried = 1 ] || {
	echo 'SKIP: there is no UCX but 1.13: KEDGE_TEST_UCX names where others are installed'
	exit 77
}
exit $FAILED
