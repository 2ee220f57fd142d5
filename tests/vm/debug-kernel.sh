#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# debug-kernel.sh kasan|kcsan|plain FOLDER: build a kernel from Debian's source
# for "vm.py run -k FOLDER". kasan: KASAN, lockdep, kmemleak and what else finds
# misuse of memory and locks; kcsan: data races; plain: for figures. With SERIES=1
# the patch series is in it, whose KUnit tests run as it boots. Takes an hour
# of one CPU and 8 GB. Needs the packages that the last line of an error names.
set -eu

usage()
{
	echo "usage: debug-kernel.sh kasan|kcsan|plain FOLDER" >&2
	exit 2
}

[ $# = 2 ] || usage
kind=$1
case $kind in
kasan | kcsan | plain) ;;
*) usage ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
top=$(cd "$2" && pwd)
line=${LINE:-6.12}
jobs=${JOBS:-$(nproc)}

for tool in flex bison bc xz gcc make depmod; do
	command -v $tool >/dev/null || {
		echo "debug-kernel.sh: $tool is missing: apt-get install flex" \
		     "bison bc xz-utils libelf-dev libssl-dev kmod" >&2
		exit 1
	}
done

# The source is the same for both kinds.
if [ ! -d "$top/source" ]; then
	cd "$top"
	apt-get download -q "linux-source-$line"
	dpkg-deb -x linux-source-"$line"_*.deb deb
	mkdir source.part
	tar -xf deb/usr/src/linux-source-"$line".tar.xz -C source.part \
		--strip-components=1
	rm -rf deb linux-source-"$line"_*.deb
	mv source.part source
fi
src=$top/source
out=$top/build
mkdir -p "$out"
if [ -n "${SERIES:-}" ] && [ ! -e "$src/mm/ummunot" ]; then
	"$here/../../linux/series.sh" "$src" "$top/series"
	for patch in "$top"/series/000[1-9]-*.patch; do
		patch -s -p1 -d "$src" <"$patch"
	done
fi

make -s -C "$src" O="$out" x86_64_defconfig kvm_guest.config
# The guest's needs, built in; no driver of a device that it has not.
"$src/scripts/config" --file "$out/.config" \
	-e VIRTIO_PCI -e NET_9P -e NET_9P_VIRTIO -e 9P_FS -e OVERLAY_FS \
	-e BLK_DEV_LOOP -e EXT4_FS -e TMPFS -e HUGETLBFS -e MEMCG \
	-e USERFAULTFD -e IO_URING -e TRANSPARENT_HUGEPAGE -e KSM \
	-e COMPACTION -e MIGRATION -e CHECKPOINT_RESTORE -e BPF_SYSCALL \
	-e MODULES -e MODULE_UNLOAD -e MMU_NOTIFIER -e SYSVIPC -e FUSE_FS \
	-e ZSMALLOC -m ZRAM -e ZRAM_BACKEND_LZO -e CRYPTO_LZO \
	-e DEBUG_FS -e DYNAMIC_DEBUG -e PROC_PAGE_MONITOR -e MEM_SOFT_DIRTY \
	-d SOUND -d DRM -d USB_SUPPORT -d WLAN -d WIRELESS -d ETHERNET \
	-d NETFILTER -d MD -d ATA -d SCSI -d INPUT_TOUCHSCREEN -d HID \
	-d NFS_FS -d NFSD -d SECURITY_SELINUX -d MACINTOSH_DRIVERS -d PCMCIA \
	-d AGP -d I2C -d THERMAL -d SYSTEM_TRUSTED_KEYS -d MODULE_SIG \
	--set-str SYSTEM_TRUSTED_KEYS "" --set-str LOCALVERSION "-$kind" \
	-d LOCALVERSION_AUTO -d DEBUG_INFO_BTF -e DEBUG_INFO_NONE \
	-e DEBUG_KERNEL -e DETECT_HUNG_TASK -e SLUB_DEBUG \
	-e FAULT_INJECTION -e FAILSLAB -e FAIL_PAGE_ALLOC \
	-e FAULT_INJECTION_DEBUG_FS
case $kind in
kasan)
	"$src/scripts/config" --file "$out/.config" \
		-e KASAN -e KASAN_GENERIC -e KASAN_OUTLINE -e KASAN_VMALLOC \
		-e PROVE_LOCKING -e PROVE_RCU -e DEBUG_ATOMIC_SLEEP \
		-e DEBUG_KMEMLEAK -e DEBUG_VM -e DEBUG_VM_PGTABLE \
		-e DEBUG_LIST -e UBSAN --set-val DEBUG_KMEMLEAK_MEM_POOL_SIZE 40000
	;;
kcsan)
	"$src/scripts/config" --file "$out/.config" \
		-e KCSAN -d KASAN \
		-d KCSAN_STRICT -e DEBUG_ATOMIC_SLEEP
	;;
esac
[ -z "${SERIES:-}" ] || "$src/scripts/config" --file "$out/.config" \
	-e KUNIT -d KUNIT_ALL_TESTS -e UMMUNOT -e UMMUNOT_SWAP \
	-e UMMUNOT_KUNIT_TEST
make -s -C "$src" O="$out" olddefconfig
make -s -C "$src" O="$out" -j "$jobs" bzImage modules
version=$(make -s -C "$src" O="$out" kernelrelease)
rm -rf "$top/root"
make -s -C "$src" O="$out" INSTALL_MOD_PATH="$top/root" modules_install
ln -sfn build/arch/x86/boot/bzImage "$top/bzImage"
depmod -b "$top/root" "$version"
echo "$version: vm.py run -a acpi=off -k $top, which is slow enough for ACPI to" \
     "time out; modules build against $out"
