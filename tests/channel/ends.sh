# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
# Sourced: runs both ends of ends.c. SERVER and CLIENT are words that come
# before the command of that side.
FAILED=0

# The first free one of 80; below those that the system gives to connections, so
# that no connection comes to have them.
free_port()
{
	python3 -c '
import random, socket
with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
    end = min(int(f.read().split()[0]), 32768)
for i in range(200):
    first = random.randrange(10000, end - 80)
    held = []
    try:
        for port in range(first, first + 80):
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", port))
    except OSError:
        continue
    finally:
        for s in held:
            s.close()
    print(first)
    break
else:
    raise SystemExit("no free ports")'
}

# both PROVIDER ADDRESS PORT COUNT
both()
{
	# shellcheck disable=SC2086 # words
	$SERVER "$ENDS" serve "$1" "$2" "$3" 7 "$4" &
	server=$!
	# shellcheck disable=SC2086
	$CLIENT "$ENDS" connect "$1" "$2" "$3" 7 "$4" >/dev/null || {
		echo "FAIL: the connecting side"
		FAILED=1
	}
	wait $server || {
		echo "FAIL: the listening side"
		FAILED=1
	}
}

# killed PROVIDER ADDRESS PORT who: connect|serve kills itself
killed()
{
	serve=die connect=orphan
	[ "$4" = serve ] || { serve=orphan; connect=die; }
	# shellcheck disable=SC2086
	$SERVER "$ENDS" serve "$1" "$2" "$3" 3 400 $serve &
	server=$!
	status=0
	# shellcheck disable=SC2086
	$CLIENT "$ENDS" connect "$1" "$2" "$3" 3 400 $connect &
	client=$!
	wait $client || status=$?
	if [ "$4" = serve ]; then
		wait $server
		[ $? -eq 137 ] || { echo "FAIL: nobody was killed"; FAILED=1; }
	else
		wait $server || status=1
		[ $status -eq 137 ] && status=0
	fi
	# Files that libfabric's "shm" of a killed process leaves behind.
	rm -f "/dev/shm/$server:"* "/dev/shm/$client:"*
	[ $status -eq 0 ] || {
		echo "FAIL: $4 was killed, and the other side:" $status
		FAILED=1
	}
}
