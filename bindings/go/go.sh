#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# go.sh SOURCE BUILD NAME [ARGUMENT OF GO TEST...]: the tests of the Go package, against a
# build folder of kedge, under a name that no other run at the same time has. Each test is a
# line of its own that scripts/test.py counts (TAP).
# The environment's LD_PRELOAD is for the tests' program alone.
set -u

source=$1 build=$2 name=$3
shift 3
if ! command -v go >/dev/null || ! cc=$(command -v cc); then
	echo "skipped: there is no go, or no cc (Debian's golang-go, gcc)"
	exit 77
fi
cache=$build/bindings/go/cache dir=$build/bindings/go/$name
mkdir -p "$dir" || exit 1
preload=${LD_PRELOAD:-}

unset LD_PRELOAD GOOS GOARCH GOEXPERIMENT GODEBUG GOGC GOMEMLIMIT
# A tree of another user's is none that git looks at.
export GOFLAGS=-buildvcs=false
export GO111MODULE=on GOPROXY=off GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=1 CC="$cc"
export GOCACHE="$cache" GOPATH="$dir/path"
# Words in quotes, as Go reads them: a path may have a blank.
export CGO_CFLAGS="-O2 -g -Wall -Wextra -Wno-unused-parameter -Werror '-I$source/include'"
export CGO_LDFLAGS="'-L$build/src' '-Wl,-rpath,$build/src'"

cd "$source/bindings/go" || exit 1
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; exit 1; }
go vet ./... || exit 1
# The race detector is there for some machines alone.
if [ "$name" = race ] && ! go build -race -o "$dir/race" ./bench; then
	echo "skipped: this Go builds no program with -race"
	exit 77
fi
go test -c -o "$dir/tests" "$@" . || exit 1
go build -o "$dir/bench.program" ./bench || exit 1

# A file that is not installed would be missed by programs alone.
for f in *.go *.c *.h go.mod uring/*; do
	case $f in *_test.go) continue ;; esac
	stem=${f%.[gch]*}
	grep -q "'$f'\|'$stem'" meson.build ||
		{ echo "$f: meson.build does not install it"; exit 1; }
done

# The program of the document, as a module of its own.
program()
{
	rm -rf "$dir/user" && mkdir "$dir/user" && cd "$dir/user" || return 1
	awk '/^```/ { on = /^```go/; next } on && /^package main/ { program = 1 }
		on && program { print } !on && program { exit }' \
		"$source/docs/go.md" >main.go
	go mod init example || return 1
	go mod edit -require=kedge@v0.0.0 -replace=kedge="$source/bindings/go" || return 1
	go vet . && go build -tags kedge_hooks -o hooked . && go build -tags kedge_cgo -o program .
}
CGO_CFLAGS="-O2 '-I$source/include'" CGO_LDFLAGS="$CGO_LDFLAGS '-L$build/src/hooks' \
'-Wl,-rpath,$build/src/hooks'" program || exit 1
# As pin_alone() of tests/tools/lib.sh.
# shellcheck disable=SC3045 # dash has it
[ "$(id -u)" = 0 ] || { exec 9</tmp && flock 9 && sleep 0.1 && ulimit -S -l 6144; }
[ -z "$preload" ] || export LD_PRELOAD="$preload"
{
	for p in program hooked; do
		got=$("$dir/user/$p" 2>&1)
		case $got in
		*" ELF") echo "--- PASS: document/$p" ;;
		*io_uring*) echo "--- SKIP: document/$p"; echo "$got" ;;
		*) echo "--- FAIL: document/$p"; echo "$got" ;;
		esac
	done
	"$dir/tests" -test.v -test.timeout 10m 2>&1
	echo "exit status $?"
} | awk '
	{ print; fflush() }
	/^(=== RUN|=== CONT|=== PAUSE) / { next }
	/^--- (PASS|FAIL|SKIP): / {
		verdict = $2 == "FAIL:" ? "not ok" : "ok"
		print verdict, ++n, "-", $3 ($2 == "SKIP:" ? " # SKIP " : "")
	}
	/^exit status / { status = $3 }
	END { exit status == 0 ? 0 : 1 }'
