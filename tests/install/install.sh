#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# install.sh SOURCE BUILD: install into an empty folder, then be a user who has
# only that: find the libraries with pkg-config, compile against them as C and
# as C++, shared and static, and run the programs. One TAP line a step.
# shellcheck disable=SC2317 # step() calls the functions
set -u

src=$1
build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
root=$tmp/root
n=0
bad=0
warn="-Wall -Wextra -Wpedantic -Werror"

# step NAME COMMAND...
step()
{
	name=$1
	shift
	n=$((n + 1))
	"$@" >"$tmp/log" 2>&1
	case $? in
	0) echo "ok $n - $name" ;;
	77) echo "ok $n - $name # SKIP $(tail -n 1 "$tmp/log")" ;;
	*)
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/log"
		bad=1
		;;
	esac
}

install_all()
{
	DESTDIR="$root" meson install -C "$build" --no-rebuild || return 1
	pc=$(find "$root" -name kedge.pc)
	[ -n "$pc" ] || { echo "no kedge.pc"; return 1; }
}

pkg()
{
	PKG_CONFIG_PATH=$pcdir pkg-config --define-variable=prefix="$dest" "$@"
}

# Each public header, library, .pc and man page, the command, and no more.
all_files()
{
	rc=0
	for h in "$src"/include/kedge/*.h; do
		[ -f "$dest/include/kedge/$(basename "$h")" ] ||
			{ echo "$(basename "$h") is not installed"; rc=1; }
	done
	for f in bin/kedge share/man/man1/kedge.1 share/man/man7/kedge.7 \
		share/man/man3/kedge_cache_get.3 share/man/man4/ummunot.4 \
		include/linux/ummunot.h include/linux/kedge_segment.h \
		lib/udev/rules.d/60-ummunot.rules lib/udev/rules.d/60-kedge-segment.rules; do
		[ -s "$dest/$f" ] || { echo "$f is not installed"; rc=1; }
	done
	[ -f "$pcdir/kedge-nohooks.pc" ] ||
		{ echo "kedge-nohooks.pc is not installed"; rc=1; }
	for l in kedge kedge-uring kedge-hooks ${verbs:+kedge-verbs} \
		${etcd:+kedge-etcd}; do
		[ -e "$libdir/lib$l.so.0" ] ||
			{ echo "lib$l.so.0 is not installed"; rc=1; }
		[ -f "$pcdir/$l.pc" ] ||
			{ echo "$l.pc is not installed"; rc=1; }
	done
	find "$root" -type f ! -path "$dest/*" | grep . &&
		{ echo "outside the prefix"; rc=1; }
	return "$rc"
}

# The build folder must not be needed, nor named.
no_build_path()
{
	for f in "$dest/bin/kedge" "$libdir"/lib*.so.*; do
		readelf -d "$f" | grep -E 'R(UN)?PATH.*(build|home|tmp)' &&
			{ echo "$f: has a run path"; return 1; }
	done
	! grep -rl "$build" "$pcdir"
}

version_agrees()
{
	v=$(pkg --modversion kedge)
	[ "$(LD_LIBRARY_PATH=$libdir "$dest/bin/kedge" --version)" = "kedge $v" ]
}

c_shared()
{
	# shellcheck disable=SC2046,SC2086 # lists of words
	gcc -std=c11 -D_DEFAULT_SOURCE $warn -o "$tmp/c" \
		"$src/tests/install/user.c" $(pkg --cflags --libs kedge) &&
		LD_LIBRARY_PATH=$libdir "$tmp/c"
}

c_static()
{
	[ -f "$libdir/libkedge.a" ] ||
		{ echo "built without static libraries"; return 77; }
	# shellcheck disable=SC2046,SC2086
	gcc -static -std=c11 -D_DEFAULT_SOURCE $warn -o "$tmp/cs" \
		"$src/tests/install/user.c" \
		$(pkg --static --cflags --libs kedge) && "$tmp/cs"
}

cxx_shared()
{
	command -v g++ || { echo "there is no g++"; return 77; }
	# shellcheck disable=SC2046,SC2086
	g++ -std=c++17 $warn -o "$tmp/cc" "$src/tests/install/user.cc" \
		$(pkg --cflags --libs kedge-uring) &&
		LD_LIBRARY_PATH=$libdir "$tmp/cc"
}

cxx_static()
{
	command -v g++ || { echo "there is no g++"; return 77; }
	[ -f "$libdir/libkedge-uring.a" ] ||
		{ echo "built without static libraries"; return 77; }
	# shellcheck disable=SC2046,SC2086
	g++ -static -std=c++17 $warn -o "$tmp/ccs" \
		"$src/tests/install/user.cc" \
		$(pkg --static --cflags --libs kedge-uring) && "$tmp/ccs"
}

# verbs_user COMPILER...: one program for both languages.
verbs_user()
{
	[ -n "$verbs" ] || { echo "built without libibverbs"; return 77; }
	command -v "$1" || { echo "there is no $1"; return 77; }
	# shellcheck disable=SC2046,SC2086
	"$@" $warn -o "$tmp/verbs" "$src/tests/install/user_verbs.c" \
		-x none $(pkg --cflags --libs kedge-verbs) &&
		LD_LIBRARY_PATH=$libdir "$tmp/verbs"
}

# The archive's own names; libibverbs is not meant to be linked statically.
verbs_static()
{
	[ -n "$verbs" ] || { echo "built without libibverbs"; return 77; }
	[ -f "$libdir/libkedge-verbs.a" ] ||
		{ echo "built without static libraries"; return 77; }
	# shellcheck disable=SC2046,SC2086
	gcc -std=c11 -D_DEFAULT_SOURCE $warn -o "$tmp/verbss" \
		"$src/tests/install/user_verbs.c" $(pkg --cflags kedge-verbs) \
		"$libdir/libkedge-verbs.a" "$libdir/libkedge.a" -libverbs \
		$(pkg --libs libsodium) \
		-pthread && "$tmp/verbss"
}

# hooked WANT COMPILER... : COMPILER's arguments, the libraries last.
hooked()
{
	want=$1
	shift
	command -v "$1" || { echo "there is no $1"; return 77; }
	# shellcheck disable=SC2046,SC2086
	"$@" $warn -o "$tmp/hooked" && LD_LIBRARY_PATH=$libdir "$tmp/hooked" "$want"
}

# The answers of pkg-config, for C and for C++, as the linker is called by
# itself and as Debian's and Ubuntu's packages call it.
# It is in folders of its own, and finds libkedge.so.0 beside them.
xpmem_program()
{
	xpc=$(find "$root" -name xpmem.pc)
	[ -n "$xpc" ] || { echo "no xpmem.pc"; return 1; }
	# shellcheck disable=SC2046,SC2086 # lists of words
	gcc -std=c11 -D_DEFAULT_SOURCE $warn -o "$tmp/xpmem" \
		"$src/tests/install/user_xpmem.c" \
		$(PKG_CONFIG_PATH=$(dirname "$xpc"):$pcdir pkg-config \
			--define-variable=prefix="$dest" --cflags --libs xpmem) \
		-Wl,-rpath-link,"$libdir" &&
		LD_LIBRARY_PATH=$libdir/kedge-xpmem:$libdir "$tmp/xpmem"
}

hooks_by_default()
{
	for p in kedge kedge-uring kedge-hooks ${verbs:+kedge-verbs} \
		${rdma:+kedge-rdma} ${ofi:+kedge-ofi} ${etcd:+kedge-etcd}; do
		# shellcheck disable=SC2046
		for ld in -Wl,--no-as-needed -Wl,--as-needed; do
			hooked 1 gcc -std=c11 "$ld" "$user" \
				$(pkg --cflags --libs "$p") || return 1
		done
	done
	# Behind other libraries, as build systems may sort them.
	# shellcheck disable=SC2046
	hooked 1 gcc -std=c11 -Wl,--as-needed "$user" -pthread -lm -ldl \
		$(pkg --cflags --libs kedge)
}

hooks_in_cxx()
{
	command -v g++ || { echo "there is no g++"; return 77; }
	# shellcheck disable=SC2046
	hooked 1 g++ -std=c++17 -x c++ -Wl,--as-needed "$user" -x none \
		$(pkg --cflags --libs kedge) || return 1
	# shellcheck disable=SC2046
	hooked 0 g++ -std=c++17 -x c++ "$user" -x none \
		$(pkg --cflags --libs kedge-nohooks)
}

# By the package, or by the variable for whatever requires kedge.
hooks_opted_out()
{
	# shellcheck disable=SC2046
	hooked 0 gcc -std=c11 "$user" $(pkg --cflags --libs kedge-nohooks) ||
		return 1
	for p in kedge kedge-uring; do
		# shellcheck disable=SC2046
		hooked 0 gcc -std=c11 "$user" \
			$(pkg --define-variable=hooks= --cflags --libs "$p") ||
			return 1
	done
}

# A library that was not linked can be preloaded, but not opened late.
hooks_preloaded()
{
	# shellcheck disable=SC2046
	hooked 0 gcc -std=c11 "$user" $(pkg --cflags --libs kedge-nohooks) ||
		return 1
	LD_LIBRARY_PATH=$libdir LD_PRELOAD=libkedge-hooks.so.0 \
		"$tmp/hooked" 1
}

# Its free() is libc.a's own, which nothing announces.
hooks_static()
{
	[ -f "$libdir/libkedge.a" ] ||
		{ echo "built without static libraries"; return 77; }
	# shellcheck disable=SC2046
	hooked 0 gcc -std=c11 -static "$user" \
		$(pkg --static --cflags --libs kedge)
}

pc=
step "meson install" install_all
if [ -z "$pc" ]; then
	exit 1
fi
pcdir=$(dirname "$pc")
libdir=$(dirname "$pcdir")
dest=$root$(sed -n 's/^prefix=//p' "$pc")
verbs=
[ ! -f "$pcdir/kedge-verbs.pc" ] || verbs=1
rdma=
[ ! -f "$pcdir/kedge-rdma.pc" ] || rdma=1
ofi=
[ ! -f "$pcdir/kedge-ofi.pc" ] || ofi=1
etcd=
[ ! -f "$pcdir/kedge-etcd.pc" ] || etcd=1
user=$src/tests/install/user_hooked.c

step "every file is there" all_files
step "nothing names the build folder" no_build_path
step "versions agree" version_agrees
step "C11, shared" c_shared
step "C11, static" c_static
step "C++17, shared" cxx_shared
step "C++17, static" cxx_static
step "C11, verbs" verbs_user gcc -std=c11 -D_DEFAULT_SOURCE
step "C++17, verbs" verbs_user g++ -std=c++17 -x c++
step "C11, verbs, static" verbs_static
step "a program written for XPMEM" xpmem_program
step "hooks by default" hooks_by_default
step "hooks by default, C++17" hooks_in_cxx
step "hooks opted out" hooks_opted_out
step "hooks preloaded" hooks_preloaded
step "hooks in a static program" hooks_static
echo "1..$n"
exit $bad
