#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A lookup of a UCX that loses the drop of what has changed gets it by no means.
#
#	deaf.sh PROGRAM LIBKEDGE-UCX
if "$1" >/dev/null 2>&1; then
	echo 'FAIL: it loses no events without libkedge-ucx, so the test sees nothing'
	exit 1
fi
err=$(LD_PRELOAD=$2 "$1" 2>&1) || {
	echo "FAIL: $err"
	exit 1
}
case $err in
*'registrations are not kept'*)
	echo 'SKIP: nothing can be watched here'
	exit 77
	;;
*'a lookup is refused'*) ;;
*)
	echo "FAIL: it does not say that it refuses: $err"
	exit 1
	;;
esac
