#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# series.sh LINUX OUT: make the patch series for the tree LINUX (unpacked source,
# which is only read) as files in OUT. The files of kernel/ go to mm/ummunot, with
# what is for other versions taken out (unifdef). Who submits it is who git says
# (user.name, user.email).
#
# Exit status 0; 1: something is missing, or the tree is not as expected.
set -eu

die()
{
	echo "series.sh: $*" >&2
	exit 1
}

[ $# = 2 ] || { echo "usage: series.sh LINUX OUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
for tool in git unifdef; do
	command -v $tool >/dev/null || die "$tool is missing: apt-get install $tool"
done
[ -f "$1/mm/Kconfig" ] || die "$1 is no source of Linux"
linux=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
name=$(git config user.name) || die "git does not know who you are: user.name"
mail=$(git config user.email) || die "git does not know who you are: user.email"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/linux
from=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")

# A repository of the files that are changed is enough for a patch.
touched="mm/Kconfig mm/Makefile MAINTAINERS
	Documentation/userspace-api/index.rst
	Documentation/userspace-api/ioctl/ioctl-number.rst
	tools/testing/selftests/Makefile"
for f in $touched; do
	mkdir -p "$tree/$(dirname "$f")"
	cp "$linux/$f" "$tree/$f"
done
cd "$tree"
git init -q
git config user.name "$name"
git config user.email "$mail"
commit()
{
	git add .
	GIT_AUTHOR_DATE=$from GIT_COMMITTER_DATE=$from \
		git commit -q -s -F -
}
echo "the tree as it was" | commit

# after FILE PATTERN TEXT: TEXT behind the first line that has PATTERN
after()
{
	awk -v pattern="$2" -v text="$3" '{ print }
		!done && index($0, pattern) { print text; done = 1 }
		END { exit !done }' "$1" >"$tmp/new" || die "$1 has no \"$2\""
	cat "$tmp/new" >"$1"
}

# before FILE PATTERN TEXT
before()
{
	awk -v pattern="$2" -v text="$3" '
		!done && index($0, pattern) { print text; done = 1 } { print }
		END { exit !done }' "$1" >"$tmp/new" || die "$1 has no \"$2\""
	cat "$tmp/new" >"$1"
}

# module FILE [OPTION...]: a file of the module without what is for other versions
module()
{
	file=$1
	shift
	unifdef -B -DHAVE_VM_FLAGS_MOD -UPG_kmemcg -Duntagged_addr_remote \
		-UUMMUNOT_VERSION "$@" "$root/kernel/$file" | sed "/^MODULE_VERSION(/d" >"mm/ummunot/$file"
}

# ---- 1: the device ----
mkdir -p mm/ummunot include/uapi/linux
for f in main.c file.c space.c changes.c users.c internal.h; do
	module $f -UCONFIG_UMMUNOT_SWAP
done
# 'U' is others' in the kernel's own list, and the layout is that of 2009.
sed "s/^#define UMMUNOT_MAGIC .*/#define UMMUNOT_MAGIC 0xBC/" \
	"$root/include/uapi/linux/ummunot.h" >"$tmp/ummunot.h"
sed '/^\/\* ---- the exchange of pages/,/^#define UMMUNOT_SWAP_PAGES/d' \
	"$tmp/ummunot.h" | cat -s >include/uapi/linux/ummunot.h
cp "$here/tree/mm/ummunot/Kconfig" "$here/tree/mm/ummunot/Makefile" mm/ummunot/
sed -i '/changes_test/d; /swap\.o/d' mm/ummunot/Makefile
sed -i '/^config UMMUNOT_SWAP/,$d' mm/ummunot/Kconfig
before mm/Kconfig '# multi-gen LRU {' 'source "mm/ummunot/Kconfig"
'
# shellcheck disable=SC2016 # make's
after mm/Makefile '$(CONFIG_USERFAULTFD)' 'obj-$(CONFIG_UMMUNOT) += ummunot/'
before Documentation/userspace-api/ioctl/ioctl-number.rst '0xC0  00-0F' \
	'0xBC  01-05  uapi/linux/ummunot.h'
before MAINTAINERS 'UNICODE SUBSYSTEM' "UMMUNOT
M:	$name <$mail>
L:	linux-mm@kvack.org
S:	Maintained
F:	Documentation/userspace-api/ummunot.rst
F:	include/uapi/linux/ummunot.h
F:	mm/ummunot/
F:	tools/testing/selftests/ummunot/
"
commit <<'MESSAGE'
mm: ummunot: tell programs when what they have mapped changes

Libraries that register memory with devices cache what they registered, and
have to know when the kernel maps something else at its addresses. They
intercept calls of the C library for that, which misses whatever is done
without them, and corrupts data silently.

Make a device where a program watches ranges of its address space. It
reads what was invalidated, at the start and at the end of each change, and
maps a counter that says without a system call that nothing was.

One MMU notifier serves all files of an address space. Callbacks do bounded
work: they tell up to 16 watches, and log the change for the others, which
readers tell. Memory is charged to memcg, and limited for each user.
MESSAGE

# ---- 2: KUnit ----
cp "$here/tree/mm/ummunot/changes_test.c" mm/ummunot/
sed '/swap\.o/d' "$here/tree/mm/ummunot/Makefile" >mm/ummunot/Makefile
sed '/^config UMMUNOT_SWAP/,/^config UMMUNOT_KUNIT_TEST/{
	/^config UMMUNOT_KUNIT_TEST/!d; }' \
	"$here/tree/mm/ummunot/Kconfig" >mm/ummunot/Kconfig
commit <<'MESSAGE'
mm: ummunot: add KUnit tests for the bookkeeping

Call starts and ends of changes by hand, and look at what a reader is told:
changes that are running, more of them than are remembered singly, more
watches than a callback tells, a log that is full.
MESSAGE

# ---- 3: kselftest ----
mkdir -p tools/testing/selftests/ummunot
cp "$here/tree/tools/testing/selftests/ummunot/"* tools/testing/selftests/ummunot/
rm tools/testing/selftests/ummunot/swap_test.c
sed -i '/swap_test/d; /UMMUNOT_SWAP/d' tools/testing/selftests/ummunot/[Mc]*
before tools/testing/selftests/Makefile 'TARGETS += user_events' \
	'TARGETS += ummunot'
commit <<'MESSAGE'
selftests: ummunot: add tests

What a program is told of munmap(), mremap(), madvise() and a vfork child's
doing, what is silent, and what is refused.
MESSAGE

# ---- 4: documentation ----
sed '/^Exchanging pages$/,/^Security$/{ /^Security$/!d; }' \
	"$here/tree/Documentation/userspace-api/ummunot.rst" \
	>Documentation/userspace-api/ummunot.rst
after Documentation/userspace-api/index.rst '   perf_ring_buffer' '   ummunot'
commit <<'MESSAGE'
Documentation: userspace-api: describe ummunot

Say what it is for, how it is used, what is told, and what it costs.
MESSAGE

# ---- 5 and 6: the exchange of pages ----
mkdir -p include/linux
cp "$here/tree/mm/"page_exchange* mm/
cp "$here/tree/include/linux/page_exchange.h" include/linux/
before mm/Kconfig 'source "mm/ummunot/Kconfig"' 'config PAGE_EXCHANGE
	bool
'
# shellcheck disable=SC2016 # make's
before mm/Makefile 'obj-$(CONFIG_UMMUNOT)' \
	'obj-$(CONFIG_PAGE_EXCHANGE) += page_exchange.o page_exchange_entries.o'
after MAINTAINERS 'F:	Documentation/userspace-api/ummunot.rst' \
	'F:	include/linux/page_exchange.h'
before MAINTAINERS 'F:	mm/ummunot/' 'F:	mm/page_exchange*'
commit <<'MESSAGE'
mm: exchange the pages under two ranges

A program that receives into memory which is registered with a device
wants the data elsewhere. mremap() moves mappings, one way, and with an
interval in which other threads find nothing. UFFDIO_MOVE moves pages one
way, and refuses those that are pinned, as is all memory that a device
receives into.

Exchange the entries of two ranges of one address space: all are cleared,
the TLB is flushed once, and all are set, so that no observer finds a hole
or a mixture. Entries of the PMD level are exchanged whole where they are
within both ranges. References and pins stay with the folios.
MESSAGE

module main.c
module internal.h
cp "$here/tree/mm/ummunot/"* mm/ummunot/
cp "$tmp/ummunot.h" include/uapi/linux/ummunot.h
cp "$here/tree/tools/testing/selftests/ummunot/"* tools/testing/selftests/ummunot/
cp "$here/tree/Documentation/userspace-api/ummunot.rst" \
	Documentation/userspace-api/
commit <<'MESSAGE'
mm: ummunot: let programs exchange the pages of two ranges

Give page_exchange() an ioctl. Programs that watch their registered memory
by ummunot are those that need it. An exchange tells watches of either
range, so a cache of registrations notices.
MESSAGE

rm -f "$out"/*.patch
git format-patch -q --cover-letter --to=linux-mm@kvack.org -o "$out" HEAD~6
# git's cover letter has places for a subject and a text.
awk -v file="$here/cover.txt" '
	/\*\*\* SUBJECT HERE \*\*\*/ {
		getline subject <file
		sub(/\*\*\* SUBJECT HERE \*\*\*/, subject)
	}
	/\*\*\* BLURB HERE \*\*\*/ {
		getline line <file
		while ((getline line <file) > 0)
			print line
		next
	}
	{ print }' "$out"/0000-*.patch >"$tmp/cover"
cat "$tmp/cover" >"$(echo "$out"/0000-*.patch)"
ls "$out"
