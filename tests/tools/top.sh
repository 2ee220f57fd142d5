#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# kedge top: of programs that publish their counters, by each way, and of those that do not.
# usage: top.sh kedge program
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
program=$(readlink -f "$2")
unset KEDGE_STATS
if ! "$KEDGE" info >/dev/null 2>&1; then
	echo 'SKIP: no notifier here, so a cache has no hits'
	exit 77
fi
folder=$DIR/folder
mkdir "$folder" "$DIR/empty"
mkfifo "$DIR/go" "$DIR/ready"

# begin VALUE: a program with a cache of one miss and nine hits, that ends when it is told to.
begin()
{
	KEDGE_STATS=$1 "$program" <"$DIR/go" >"$DIR/ready" &
	pid=$!
	exec 9>"$DIR/go"
	read -r _ <"$DIR/ready"
}
end()
{
	exec 9>&-
	wait "$pid"
}

of_it='[o for o in d["objects"] if o["kind"] == "cache"]'

begin "unix:$folder"
for where in "$folder" "$pid" "$folder/kedge-$(basename "$program")-$pid.sock"; do
	expect 0 top --json "$where"
	json "len(${of_it}) == 1 and ${of_it}[0]['values']['hits'] == 9" \
		"${of_it}[0]['values']['misses'] == 1 and ${of_it}[0]['pid'] == $pid" \
		"sum(${of_it}[0]['values']['uncached'].values()) <= 1"
done
# It is found among all processes.
expect 0 top --json
json "[o for o in d['objects'] if o['pid'] == $pid]"
expect 0 top --once "$folder"
says out '1 process publishes'
says out 'HIT%'
says out ' 90.0 '
expect 0 top -n 2 -d 0.05 "$folder"
says out 'GETS/s'
expect 0 top --prometheus "$folder"
says out "kedge_cache_hits_total{cache=\"1\",command=\"publishes\",device=\"paper\",pid=\"$pid\"} 9"
[ "$(grep -c '^# TYPE kedge_cache_hits_total counter$' "$DIR/out")" = 1 ] || fail 'a head too many'

# One that is stopped is told, and holds up no other.
first=$pid
kill -STOP "$first"
until grep -q '^State:.T' "/proc/$first/status"; do sleep 0.05; done
expect 3 top --json "$folder"
json 'd["silent"] and "does not answer" in d["silent"][0]["reason"]'
expect 3 top --once "$folder"
says err 'does not answer'
kill -CONT "$first"
end
expect 3 top --json "$folder"
json 'not d["objects"]'
says err 'no process publishes there'

# A file stays, with the sums of what was closed; of a process that has ended it is shown where
# it is named.
begin "$folder"
end
file=$(echo "$folder"/*.prom)
expect 0 top --json "$file"
json "${of_it}[0]['number'] == 'closed' and ${of_it}[0]['values']['hits'] == 9"
expect 3 top --json "$folder"
json 'not d["objects"]'

# Two processes are one text, with one head each.
begin "unix:$folder"
cp "$file" "$DIR/other.prom"
expect 0 top --prometheus "$folder" "$DIR/other.prom"
[ "$(grep -c '^# TYPE kedge_cache_hits_total counter$' "$DIR/out")" = 1 ] || fail 'a head too many'
[ "$(grep -c '^kedge_cache_hits_total{' "$DIR/out")" = 2 ] || fail 'a process too few'
end

# The dashboard asks for counters that there are; those of channels are in another test.
python3 - "$(dirname "$0")/../../packaging/grafana.json" "$file" <<'END' || fail 'a panel without a counter'
import json, re, sys
text = open(sys.argv[2], encoding='utf-8').read()
asked = {n for p in json.load(open(sys.argv[1], encoding='utf-8'))['panels']
         for t in p['targets'] for n in re.findall(r'kedge_\w+', t['expr'])}
missing = [n for n in asked if 'channel' not in n and '# TYPE %s ' % n not in text]
print(*missing, sep='\n')
sys.exit(bool(missing) or len(asked) < 15)
END

# Over HTTP, at a port that is free; the command says so when it answers.
begin "unix:$folder"
python3 - "$KEDGE" "$folder" "$pid" <<'END' || fail 'over HTTP'
import socket, subprocess, sys, urllib.error, urllib.request
kedge, folder, pid = sys.argv[1:]
free = socket.socket()
free.bind(('127.0.0.1', 0))
port = str(free.getsockname()[1])
free.close()
command = [kedge, 'top', '--serve', port, folder]
server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
said = server.stderr.readline()
if 'built without libmicrohttpd' in said:
    sys.exit(0)
assert 'http://localhost:' + port in said, said

def status(path, **how):
    try:
        request = urllib.request.Request('http://127.0.0.1:%s%s' % (port, path), **how)
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode(), answer.headers['Content-Type']
    except urllib.error.HTTPError as e:
        return e.code, '', ''

code, text, kind = status('/metrics')
assert code == 200 and kind.startswith('text/plain; version=0.0.4'), (code, kind)
assert 'pid="%s"} 9' % pid in text, text
assert status('/metrics', headers={'Host': 'localhost.example'})[0] == 403
assert status('/')[0] == 404
assert status('/metrics', data=b'x', method='POST')[0] == 405
assert status('/metrics', method='HEAD')[:2] == (200, '')
second = subprocess.run(command, capture_output=True, text=True, check=False)
assert second.returncode == 3 and 'cannot listen' in second.stderr, second
server.terminate()
assert server.wait() == 0
END
end

# Files that are no such text, or no such place.
expect 3 top --once "$DIR/empty"
says out 'Set KEDGE_STATS='
for line in 'kedge_a_total{cache="1",cache="2"} 1' "kedge_a_total{cache=\"$(printf '%300s' x)\"} 1" \
	'kedge_a_total{b="1",cache="2"} 1
kedge_a_total{cache="2",b="1"} 1' 'kedge_a_total{cache="1"} nan' 'other_total{cache="1"} 1'; do
	printf '%s\n' "$line" >"$DIR/bad.prom"
	expect 3 top --once "$DIR/bad.prom"
	says err 'no text of kedge'
done
expect 3 top --once /proc/self/status
says err 'no file that may be read'
# A name that a terminal would act on.
esc=$(printf '\033')
cp "$program" "$DIR/${esc}[31m"
expect 3 top --once "$DIR/${esc}[31m"
! grep -q "$esc" "$DIR/err" || fail 'an escape sequence reaches the terminal'
# Processes that do not answer cost their time together, and the number is the one of this host.
KEDGE_STATS="unix:$folder/liar" python3 - "$folder/liar" >"$DIR/ready" <<'END' &
import os, socket, sys, threading
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(9)
print('ready', flush=True)
s.accept()[0].close()
c = s.accept()[0]
c.sendall(b'kedge_cache_hits_total{cache="1",command="init",pid="1"} 5\n')
c.close()
END
liar=$!
read -r _ <"$DIR/ready"
"$KEDGE" top --json >/dev/null 2>&1
expect 0 top --json "$liar"
json "[(o['pid'], o['values']['hits']) for o in d['objects']] == [($liar, 5)]"
wait "$liar"
# A place that another user's process names is not read unless it is its own: a file, and a socket.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	begin "unix:$folder"
	for place in "$file" "$folder/kedge-publishes-$pid.sock"; do
		KEDGE_STATS=$place setpriv --reuid 65534 --regid 65534 --clear-groups sleep 600 &
		thief=$!
		until grep -q sleep "/proc/$thief/comm"; do sleep 0.02; done
		"$KEDGE" top --json >"$DIR/out" 2>"$DIR/err"
		json "not [o for o in d['objects'] if o['pid'] == $thief]"
		says err "$place: what is there is not of the process that names it"
		kill "$thief"
	done
	end
fi
for bad in "$program" "$DIR/ready" /dev/zero; do
	expect 3 top --once "$bad"
	says err 'no text of kedge'
done
head -c 100 "$file" >"$DIR/cut.prom"
expect 3 top "$DIR/cut.prom"
says err 'no text of kedge'
expect 3 top --once "$DIR/not-there"
says err 'no process publishes there'
expect 3 top --once 99999999
says err 'is not there'
expect 2 top -d 0
expect 2 top --serve 70000
expect 2 top --serve 0
expect 2 top --serve 9464 --json
exit "$FAILED"
