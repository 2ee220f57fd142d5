#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The shared library preloaded into programs that know nothing of it, alone and
# beside other allocators and a sanitizer, before and behind them.
# usage: preload.sh libkedge-hooks.so workload [SANITIZED-WORKLOAD...]
set -u
hooks=$(readlink -f "$1") workload=$(readlink -f "$2")
shift 2
fail=0

# run PRELOAD COMMAND...
run()
{
	preload=$1
	shift
	if timeout --foreground 60 env LD_PRELOAD="$preload" "$@" >/dev/null 2>"$err" &&
	   ! grep -q 'cannot be preloaded' "$err"; then
		return
	fi
	echo "failed: LD_PRELOAD='$preload' $1" >&2
	cat "$err" >&2
	fail=1
}

err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
trap 'exit 1' HUP INT TERM

# Preloaded means loaded: a library that is not proves nothing.
LD_PRELOAD=$hooks grep -q libkedge-hooks /proc/self/maps ||
	{ echo "$hooks is not loaded" >&2; exit 1; }

run "$hooks" ls -l /
# shellcheck disable=SC2016 # the inner shell expands it
run "$hooks" bash -c 'for i in 1 2 3; do x=$(ls / | wc -l); done; test $x -gt 0'
run "$hooks" "$workload"
if command -v python3 >/dev/null; then
	run "$hooks" python3 -c '
import mmap, subprocess, threading
def churn():
    for i in range(100):
        m = mmap.mmap(-1, 65536); m[0] = 1; m.close()
        b = bytearray(1 << 20)
ts = [threading.Thread(target=churn) for _ in range(8)]
[t.start() for t in ts]
subprocess.run(["true"], check=True)
[t.join() for t in ts]'
fi
for lib in libjemalloc.so.2 libmimalloc.so.2 libtcmalloc.so.4; do
	path=$(ldconfig -p 2>/dev/null | sed -n "s/.*$lib .* => //p" | head -n 1)
	[ -n "$path" ] || { echo "without $lib: not installed" >&2; continue; }
	run "$hooks $path" "$workload"
	run "$path $hooks" "$workload"
done
# The address sanitizer wants to be the first; the thread sanitizer may not find its place where
# addresses are random.
for sanitized; do
	sanitized=$(readlink -f "$sanitized")
	path=$(ldd "$sanitized" | sed -n 's/.*libasan[^ ]* => \([^ ]*\).*/\1/p')
	run "${path:+$path }$hooks" setarch -R "$sanitized"
done
exit $fail
