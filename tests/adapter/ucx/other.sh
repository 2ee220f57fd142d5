#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A version of UCX that libkedge-ucx does not know is left as it is, and that is said.
#
#	other.sh PROGRAM LIBKEDGE-UCX
err=$(LD_PRELOAD=$2 "$1" 2>&1) || {
	echo "FAIL: $err"
	exit 1
}
case $err in
*'knows UCX 1.1'[34]' to 1.22, and this is 1.99.0'*'kedge run --ucx'*) ;;
*)
	echo "FAIL: it does not say so: $err"
	exit 1
	;;
esac
