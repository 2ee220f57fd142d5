#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# go.sh SOURCE BUILD: a Go program that transfers to and from its own heap,
# while its runtime drops pages at several paces; with libkedge-hooks, too, which
# see nothing of that runtime's system calls.
set -u

source=$1 build=$2
if ! command -v go >/dev/null || ! cc=$(command -v cc); then
	echo "skipped: there is no go, or no cc (Debian's golang-go, gcc)"
	exit 77
fi
dir=$build/tests/go
hooks=$build/src/hooks/libkedge-hooks.so
mkdir -p "$dir" || exit 1

unset GOOS GOARCH GOEXPERIMENT
# A tree of another user's is none that git looks at.
export GOFLAGS=-buildvcs=false
export GO111MODULE=off GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=1 CC="$cc"
export GOCACHE="$dir/cache" GOPATH="$dir/path"
# Words in quotes, as Go reads them: a path may have a blank.
export CGO_CFLAGS="-O2 '-I$source/include'"
export CGO_LDFLAGS="'-L$build/src' '-Wl,-rpath,$build/src' \
-lkedge-uring -lkedge -luring -lpthread"

cd "$source/tests/go" || exit 1
go build -o "$dir/program" . || exit 1

# As pin_alone() of tests/tools/lib.sh.
# shellcheck disable=SC3045 # dash has it
[ "$(id -u)" = 0 ] || { exec 9</tmp && flock 9 && sleep 0.1 && ulimit -S -l 6144; }
fail=0
# try ARGUMENT...
try()
{
	echo "# $*"
	timeout --foreground 300 "$dir/program" -tries 50 "$@"
	status=$?
	[ $status != 77 ] || exit 77
	[ $status = 0 ] || fail=1
}

# The whole (TESTS_WHOLE) has every pace.
try -hooked 0
try -hooked 0 -drop 3ms -compute 2
if [ -n "${TESTS_WHOLE-}" ]; then
	try -hooked 0 -drop 3ms
	try -hooked 0 -drop 100ms
	try -hooked 0 -drop 1s
fi
case $hooks in
*[\ :]*)
	echo "not tried preloaded: LD_PRELOAD cannot name a folder with a blank or colon in it"
	exit $fail
	;;
esac
export LD_PRELOAD="$hooks"
try -hooked 1 -drop 3ms -compute 2
[ -z "${TESTS_WHOLE-}" ] || try -hooked 1 -drop 3ms
exit $fail
