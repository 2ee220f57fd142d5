#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, as root: have swap space in memory, where zram is loaded, then run
# a program. Without it tests of reclaim say that they skip.
#
#	swap_space.sh PROGRAM [ARGUMENT...]
if [ -e /sys/block/zram0/disksize ] && ! grep -q zram /proc/swaps; then
	echo 128M >/sys/block/zram0/disksize
	mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
fi
exec "$@"
