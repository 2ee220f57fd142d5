#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check.sh DIR: what the kernel's own tools say of the module and of the series.
# The series is made for Debian's linux-source-6.12, applies there, and its
# checkpatch.pl --strict is silent; sparse is over the module, built for each of
# Debian's kernels. DIR keeps what was unpacked.
#
# shellcheck disable=SC2317 # the functions are called by say()
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
package=linux-source-6.12
[ $# = 1 ] || { echo "usage: check.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
failed=0

# Of the source, what the series changes and what checkpatch.pl reads.
if [ ! -d "$dir/source" ]; then
	cd "$dir"
	apt-get download -q $package
	dpkg-deb -x ${package}_*.deb deb
	rm -rf source.part
	mkdir source.part
	tar -xf deb/usr/src/$package.tar.xz -C source.part --strip-components=1 \
		--wildcards '*/MAINTAINERS' '*/mm/Kconfig' '*/mm/Makefile' \
		'*/Documentation/userspace-api/index.rst' \
		'*/Documentation/userspace-api/ioctl/ioctl-number.rst' \
		'*/tools/testing/selftests/Makefile' '*/scripts/checkpatch.pl' \
		'*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch' \
		'*/Documentation/dev-tools/checkpatch.rst'
	rm -rf deb ${package}_*.deb
	mv source.part source
fi

series()
{
	# Whoever runs this: the name is on no patch that is sent.
	GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=check \
		GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=check@localhost \
		"$here/series.sh" "$dir/source" "$dir/series" >/dev/null
	rm -rf "$dir/applied"
	cp -r "$dir/source" "$dir/applied"
	for patch in "$dir"/series/000[1-9]-*.patch; do
		patch -s -p1 -d "$dir/applied" <"$patch"
	done
}

# That MAINTAINERS has an entry is seen by nobody who looks at one patch.
checkpatch()
{
	perl "$dir/source/scripts/checkpatch.pl" --strict --no-tree --no-signoff \
		--ignore FILE_PATH_CHANGES "$dir"/series/000[1-9]-*.patch
}

sparse_module()
{
	headers=$("$root/tests/vm/vm.py" headers "$1")
	make -s -C "$root/kernel" check KDIR="$headers" B="$dir/sparse-$1" \
		>"$dir/sparse-$1.log" 2>&1 || return 1
	! grep -E '(warning|error):' "$dir/sparse-$1.log"
}

# The KUnit tests are of the series alone. No kernel of Debian's has KUnit, but its
# headers do, so that a test which the module has outgrown does not compile.
kunit_compiles()
{
	headers=$("$root/tests/vm/vm.py" headers 6.12)
	make -s -C "$root/kernel" stage B="$dir/kunit"
	ln -sfn "$here/tree/mm/ummunot/changes_test.c" "$dir/kunit/"
	make -s -C "$headers" M="$dir/kunit" W=1 KCFLAGS=-Werror changes_test.o
}

say()
{
	what=$1
	shift
	# Within a condition -e would not hold: a step is one only by its status.
	set +e
	(set -e; "$@") >"$dir/log" 2>&1
	status=$?
	set -e
	if [ $status = 0 ]; then
		echo "ok   $what"
	else
		echo "FAIL $what"
		cat "$dir/log"
		failed=1
	fi
}

say "the series applies" series
say "checkpatch --strict" checkpatch
say "the KUnit tests compile" kunit_compiles
for kernel in 6.1 6.12; do
	say "sparse, $kernel" sparse_module $kernel
done
exit $failed
