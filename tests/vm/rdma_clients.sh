#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: other people's RDMA programs, between its two
# ends. Their reports must be right; their speed is not judged.
#
#	rdma_clients.sh [COMMAND [ARGUMENT...]]
#
# The command, if any, is put before each program.
# shellcheck disable=SC2086 # $server and $client are lists of words
set -u
wrap=$*
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0

# Looks if a server waits for its client: at its TCP port, or by RDMA.
listening()
{
	case $1 in
	rping*) rdma resource show cm_id | grep -q 'state LISTEN.* comm rping' ;;
	*-R*) rdma resource show cm_id | grep -q 'state LISTEN' ;;
	*) ss -ltn | grep -q ':18515 ' ;;
	esac
}

# wait_for PID WHAT
wait_for()
{
	n=0
	until listening "$2"; do
		n=$((n + 1))
		kill -0 "$1" 2>/dev/null && [ $n -lt 300 ] || return 1
		sleep 0.1
	done
}

fail()
{
	echo "FAIL $*"
	sed 's/^/    server: /' "$tmp/server"
	sed 's/^/    client: /' "$tmp/client"
	failed=$((failed + 1))
}

# both COUNT PATTERN PROGRAM ARGUMENT...: run it with $server, then with
# $client. Both end well, and COUNT lines of the client's report match.
both()
{
	want=$1 pattern=$2
	shift 2
	: >"$tmp/client"
	timeout 90 $wrap "$@" $server >"$tmp/server" 2>&1 &
	pid=$!
	if ! wait_for $pid "$*"; then
		kill $pid 2>/dev/null
		wait $pid
		fail "$*: the server does not listen"
		return
	fi
	timeout 60 $wrap "$@" $client >"$tmp/client" 2>&1
	client_status=$?
	wait $pid
	server_status=$?
	got=$(grep -Ec "$pattern" "$tmp/client")
	if [ $client_status != 0 ] || [ $server_status != 0 ] ||
	   [ "$got" != "$want" ] ||
	   grep -Eiq 'invalid|error|mismatch' "$tmp/server" "$tmp/client"; then
		fail "$*: client $client_status, server $server_status," \
		     "$got lines of $want"
		return
	fi
	echo "ok $*"
	passed=$((passed + 1))
}

server="-d $RDMA_SERVER_DEV -g $RDMA_SERVER_GID"
client="-d $RDMA_CLIENT_DEV -g $RDMA_CLIENT_GID $RDMA_SERVER_ADDR"
both 1 '^100 iters in' ibv_rc_pingpong -c -n 100 -s 4096
both 1 '^20 iters in' ibv_rc_pingpong -c -e -n 20 -s 100000

server="-d $RDMA_SERVER_DEV -x $RDMA_SERVER_GID"
client="-d $RDMA_CLIENT_DEV -x $RDMA_CLIENT_GID $RDMA_SERVER_ADDR"
for program in ib_write_bw ib_read_bw ib_send_bw; do
	both 1 '^ 4096 +50 ' $program -F -n 50 -s 4096
	both 1 '^ 262144 +5 ' $program -F -n 5 -s 262144
done
both 1 '^ 4096 +50 ' ib_write_bw -F -R -n 50 -s 4096

server="-s -a $RDMA_SERVER_ADDR"
client="-c -a $RDMA_SERVER_ADDR"
both 10 '^ping data: rdma-ping-[0-9]: ' rping -V -v -C 10 -S 64
both 0 '^ping data' rping -V -C 10 -S 65535

echo "$passed passed, $failed failed"
[ $failed = 0 ]
