#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# deb.sh DIR [ARGUMENT OF dpkg-buildpackage...]: Debian packages of this tree, in DIR. They are
# built of a copy, since debhelper writes beside the sources. Without arguments the packages
# alone; with -F also the source package.
set -eu

[ $# -ge 1 ] || { echo "usage: deb.sh DIR [ARGUMENT OF dpkg-buildpackage...]" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- -b
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
copy=$tmp/kedge
mkdir "$copy"

# Files of the project, committed or not; without git all there are, but builds.
if up=$(git -c safe.directory="$PWD" rev-parse --show-cdup 2>/dev/null) && [ -z "$up" ]; then
	git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard
else
	find . -type f -not -path './build*' -not -path './.git/*' -print0
fi | tar -c --null --ignore-failed-read -T - | tar -x -C "$copy"

# The version is typed in meson.build, and once more where dpkg wants it.
version=$(sed -n "s/^ *version: *'\([^']*\)'.*/\1/p" meson.build)
packaged=$(dpkg-parsechangelog -l debian/changelog -S Version)
case $packaged in
"$version" | "$version"[-+~]*) ;;
*)
	echo "deb.sh: debian/changelog is of $packaged, meson.build of $version" >&2
	exit 1
	;;
esac

# Variables that a caller sets for another build would change the packages.
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MAKEOVERRIDES DESTDIR PREFIX B
(cd "$copy" && dpkg-buildpackage -us -uc "$@")
rm -rf "$copy"
rm -f "$dir"/*kedge*.deb "$dir"/kedge_*
mv "$tmp"/*kedge*.deb "$tmp"/kedge_* "$dir"
