#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# debian.sh: build the Debian packages, install them in a clean root of Debian 12, use them there
# as programs and their builders do, and remove them again. Needs root, and the machine's package
# sources. DEB_KEEP=FOLDER keeps the packages; DEB_FROM=FOLDER takes those of such a folder.
#
# mmdebstrap makes the root, calls this script again with --in ROOT, and removes the root.
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
suite=bookworm
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

skip()
{
	echo "skipped: $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
}

# step NAME COMMAND...: the output is shown where COMMAND fails.
step()
{
	local name=$1 start=$SECONDS status=0

	shift
	"$@" >"$work/log" 2>&1 </dev/null || status=$?
	if [ $status = 0 ]; then
		echo "ok   $name ($((SECONDS - start)) s)" | tee -a "$work/results"
		return 0
	fi
	echo "FAIL $name ($((SECONDS - start)) s)" | tee -a "$work/results"
	tail -n 60 "$work/log" | sed 's/^/    /'
	return 1
}

# Debian's own lines of the machine's sources, in either form of apt's. Before a first "apt-get
# update" apt knows neither origin nor code name, so that the release's name decides.
sources()
{
	# shellcheck disable=SC2016 # they are apt's
	apt-get indextargets --format \
		'$(ORIGIN) $(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' |
		sed -nE -e "s/^Debian $suite(-updates|-security)? (deb .* main)\$/\2/p" \
			-e "s/^[$]\S* [$]\S* (deb \S+ $suite(-updates|-security)? main)\$/\1/p" |
		sort -u
}

# Options by which the machine reaches them: proxies, and dates that may be old.
apt_options()
{
	apt-config dump --format '%F "%v";%n' Acquire::http Acquire::https \
		Acquire::Check-Valid-Until Acquire::Check-Date | grep -v ' "";$'
}

# ---- within the root, which is $root ----

in_root()
{
	chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
		DEBIAN_FRONTEND=noninteractive "$@"
}

install_in_root()
{
	in_root apt-get install -y -q --no-install-recommends "$@"
}

# Packages of others that kedge's and the tests need come first, so that a difference of the lists
# of files is kedge's.
install_others()
{
	local others kernel

	# shellcheck disable=SC2046 # lists of words
	others=$(in_root sh -c 'cd /debs && apt-get install -s --no-install-recommends "$@" \
			./*.deb' - gcc libc6-dev pkg-config python3 libfabric-bin \
			python3-numpy python3-pytest golang-go \
			linux-headers-"$(dpkg --print-architecture)" |
		sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -vxF "$(ours)")
	[ -n "$others" ] || { echo "nothing to install"; return 1; }
	# shellcheck disable=SC2086
	install_in_root $others || return 1
	# depmod's lists come with a kernel, of which only the headers are here.
	for kernel in "$root"/lib/modules/*; do
		in_root depmod "${kernel##*/}" || return 1
	done
}

ours()
{
	for deb in "$root"/debs/*.deb; do
		dpkg-deb -f "$deb" Package
	done
}

# Files of the root, without apt's and dpkg's bookkeeping, which changes with each call of them.
files()
{
	find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" \
		-o -path "$root/run" -o -path "$root/tmp" -o -path "$root/debs" \
		-o -path "$root/var/cache" -o -path "$root/var/log" \
		-o -path "$root/var/lib/apt" \) -prune -o -printf '/%P\n' |
		grep -Ev '^/var/lib/dpkg/[a-z-]+(-old)?$' | sort
}

install_ours()
{
	in_root sh -c 'cd /debs && apt-get install -y -q --no-install-recommends ./*.deb'
}

# Libraries and commands have no run path of their own, and find all that they are linked to.
linked_well()
{
	local f bad=0

	for f in $(ours | xargs -n 1 chroot "$root" dpkg -L | grep -E '\.so(\.[0-9.]+)?$|/bin/'); do
		[ -L "$root$f" ] && continue
		readelf -d "$root$f" | grep -E 'R(UN)?PATH' && { echo "$f has a run path"; bad=1; }
		in_root ldd "$f" | grep 'not found' && { echo "$f lacks a library"; bad=1; }
	done
	return $bad
}

# The library that libkedge-ucx names as its auxiliary stands before it, and both before libc.
hooks_come_along()
{
	# shellcheck disable=SC2016 # the root's shell expands it
	in_root sh -c 'LD_DEBUG=scopes LD_PRELOAD=$(echo /usr/lib/*/kedge/preload/libkedge-ucx.so) \
		/bin/true' 2>&1 |
		grep 'scope 0: .*/libkedge-hooks\.so\.0 .*/libkedge-ucx\.so .*/libc\.so'
}

# DKMS has built the modules when their packages were installed, as headers of a kernel were there.
module_is_built()
{
	local name=$1 module=$2

	in_root dkms status
	in_root dkms status "$name" | grep -q ': installed' ||
		{ echo "DKMS has not built $name"; return 1; }
	find "$root/lib/modules" -name "$module.ko*" | grep . || return 1
	grep -x "$module" "$root/usr/lib/modules-load.d/$name.conf"
}

# The tests of debian/tests get what autopkgtest would give them: their sources, and a folder.
autopkgtest()
{
	install -d "$root/tmp/kedge/debian" "$root/tmp/kedge/tests"
	cp -a "$src/debian/tests" "$root/tmp/kedge/debian"
	cp -a "$src/tests/readme" "$root/tmp/kedge/tests"
	install -d "$root/tmp/kedge/bindings/python"
	cp -a "$src/bindings/python/tests" "$root/tmp/kedge/bindings/python"
	install -d "$root/tmp/kedge/bindings/go"
	cp -a "$src"/bindings/go/*_test.go "$root/tmp/kedge/bindings/go"
	cp "$src/README.md" "$root/tmp/kedge"
	in_root mkdir -p "/tmp/$1"
	in_root env AUTOPKGTEST_TMP="/tmp/$1" "/tmp/kedge/debian/tests/$1"
}

manual_pages()
{
	local page

	for page in man1/kedge.1 man3/kedge_cache_get.3 man4/ummunot.4 man7/kedge.7; do
		[ -s "$root/usr/share/man/$page.gz" ] || { echo "$page is not there"; return 1; }
	done
}

# The package kedge-hooks is virtual, so apt must find the one that provides it.
hooks_by_name()
{
	in_root apt-get install -s -q kedge-hooks | grep -q 'libkedge-hooks0'
}

purge_ours()
{
	# shellcheck disable=SC2046
	in_root apt-get purge -y -q $(ours)
}

no_file_left()
{
	files >"$work/after"
	diff "$work/before" "$work/after" | grep '^[<>]' || return 0
	echo "removing the packages left (>) or took (<) these files"
	return 1
}

use_packages()
{
	step "the packages others make are installed" install_others || return
	files >"$work/before"
	step "packages are installed" install_ours || return
	step "nothing has a run path, or lacks a library" linked_well
	step "manual pages are there" manual_pages
	step "kedge-hooks is the name of a package" hooks_by_name
	step "libkedge-ucx brings libkedge-hooks" hooks_come_along
	step "DKMS builds ummunot" module_is_built ummunot ummunot
	step "DKMS builds kedge_segment" module_is_built kedge-segment kedge_segment
	step "README.md's program, shared and static" autopkgtest readme
	step "the command" autopkgtest tools
	step "libfabric loads the plug-in" autopkgtest libfabric
	step "the Python package" autopkgtest python
	step "the Go package" autopkgtest go
	step "packages are purged" purge_ours || return
	step "no file is left" no_file_left
}

if [ "${1:-}" = --in ]; then
	root=$2
	work=$3
	install -d "$root/debs"
	cp "$work"/debs/*.deb "$root/debs"
	rm -f "$root"/debs/*-dbgsym_*.deb
	use_packages
	exit 0
fi

# ---- outside ----

# The root lives for minutes, so dpkg need not wait until its files are on the disk.
clean_root()
{
	mmdebstrap --quiet --mode=root --variant=apt --format=null --aptopt="$work/aptopts" \
		--dpkgopt=force-unsafe-io \
		--customize-hook="'$0' --in \"\$1\" '$work' >&3 2>&1" \
		"$suite" /dev/null "$work/sources"
}

lint()
{
	lintian --allow-root --pedantic --fail-on error,warning,info,pedantic \
		"$work"/debs/kedge_*.changes
}

[ "$(id -u)" = 0 ] || skip "a clean root takes root"
for tool in mmdebstrap dpkg-buildpackage lintian dh dh_dkms; do
	command -v $tool >/dev/null || skip "there is no $tool: scripts/deps.sh deb"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources >"$work/sources"
[ -s "$work/sources" ] ||
	skip "the machine has no package source of Debian's $suite"
apt_options >"$work/aptopts"
: >"$work/results"

packages()
{
	if [ -n "${DEB_FROM:-}" ]; then
		mkdir "$work/debs" && cp "$DEB_FROM"/*kedge* "$work/debs"
	else
		"$src/scripts/deb.sh" "$work/debs" -F
	fi
}

if step "packages are built" packages; then
	[ -n "${DEB_FROM:-}" ] || step "lintian" lint
	# Its steps print by descriptor 3, whatever mmdebstrap has to say.
	exec 3>&1
	step "a clean root" clean_root
	[ -z "${DEB_KEEP:-}" ] || { mkdir -p "$DEB_KEEP" && cp "$work"/debs/* "$DEB_KEEP"; }
fi
passed=$(grep -c '^ok ' "$work/results")
failed=$(grep -c '^FAIL ' "$work/results")
echo "took $SECONDS s"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
