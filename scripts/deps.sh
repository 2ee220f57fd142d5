#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# deps.sh SET...: see that the Debian packages of the sets are there. Root
# installs what is missing; others get the one line to run. README.md says what
# each package is for.
set -eu

build="gcc libc6-dev meson ninja-build pkg-config python3 liburing-dev libsodium-dev
	libibverbs-dev librdmacm-dev libfabric-dev libcurl4-openssl-dev libpopt-dev
	libjansson-dev libdw-dev libmicrohttpd-dev libucx-dev libcmocka-dev python3-dev"
test="g++ libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 gnuplot-nox spin etcd-server python3-pytest
	python3-numpy golang-go"
vm="qemu-system-x86 busybox-static kmod e2fsprogs iproute2 procps ibverbs-utils
	ibverbs-providers perftest rdmacm-utils openmpi-bin libopenmpi-dev
	mpich libmpich-dev"
ci="clang libclang-rt-dev mandoc codespell shellcheck git
	abigail-tools sparse unifdef patch xz-utils"
deb="dpkg-dev debhelper dh-dkms dh-python golang-go lintian mmdebstrap"

usage()
{
	echo "usage: deps.sh [--list] build|test|vm|ci|deb ..." >&2
	exit 2
}

list=
want=
[ $# -gt 0 ] || usage
for set_name; do
	case $set_name in
	--list) list=1 ;;
	build) want="$want $build" ;;
	test) want="$want $test" ;;
	vm) want="$want $vm" ;;
	ci) want="$want $ci" ;;
	deb) want="$want $deb" ;;
	*) usage ;;
	esac
done

if [ -n "$list" ]; then
	# shellcheck disable=SC2086 # a list of words
	printf '%s\n' $want
	exit 0
fi

if ! command -v dpkg-query >/dev/null; then
	echo "deps.sh: no Debian here, so nothing is installed; needed are, by" \
	     "their names in Debian 12:$(echo " $want" | tr -s ' \t\n' ' ')" >&2
	exit 0
fi

missing=
for p in $want; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null) ||
		status=absent
	[ "$status" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

line="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" != 0 ]; then
	echo "kedge needs packages that are not installed. Run this, then make again:" >&2
	echo "  sudo sh -c 'apt-get update && $line'" >&2
	exit 1
fi
echo "deps.sh: $line"
export DEBIAN_FRONTEND=noninteractive
# A list that is a little old may do, as long as the install works.
apt-get update -q </dev/null ||
	echo "deps.sh: apt-get update failed; trying with the lists there are" >&2
# shellcheck disable=SC2086 # a list of words
if ! apt-get install -y -q --no-install-recommends $missing </dev/null; then
	echo "deps.sh: apt-get could not install:$missing" >&2
	exit 1
fi
