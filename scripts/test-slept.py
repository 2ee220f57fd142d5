#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How long tests sleep until a limit is over, which no test should have to.

  test-slept.py BUILD [ARGUMENT OF MESON TEST...]

Runs them with strace(1), which stops only at calls that may sleep, and adds up the time in
nanosleep, poll, epoll, select and futex calls that ended by their own time limit, of all
threads. The end says the sum, the share of the time that the tests ran, and which tests
slept most. Tests that trace or stop a process themselves fail when they are traced: they are
named, and left out of both sums.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = 'nanosleep,clock_nanosleep,poll,ppoll,epoll_wait,epoll_pwait,epoll_pwait2,' \
    'select,pselect6,futex'
# A call that was interrupted, or had a time limit of 0, is over at once.
OVER = re.compile(r'^\d+\.\d+ (?:(?:clock_)?nanosleep\(.* = 0 |'
                  r'p?poll\(.* = 0 |epoll_\w+\(.* = 0 |'
                  r'p?select6?\(.* = 0 |futex\(.* ETIMEDOUT ).*<(\d+\.\d+)>$')
SHORTEST = 0.0002
MOST = 15


def slept(folder):
    """Seconds in a folder of traces, and in calls of at least 10 ms."""
    total, long = 0.0, 0.0
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding='utf-8', errors='replace') as f:
            for line in f:
                m = OVER.match(line.rstrip())
                took = float(m.group(1)) if m else 0
                total += took if took >= SHORTEST else 0
                long += took if took >= 0.01 else 0
    return total, long


def wrapped(args):
    """Under meson: one test, traced into a folder whose name.txt says which it is."""
    folder = tempfile.mkdtemp(dir=os.environ['TESTS_SLEPT'])
    with open(folder + '.txt', 'w', encoding='utf-8') as f:
        f.write(' '.join(args))
    os.execvp('strace', ['strace', '-ff', '--seccomp-bpf', '-qqq', '-ttt', '-T', '-s0',
                         '-e', 'trace=' + CALLS, '-e', 'signal=none',
                         '-o', os.path.join(folder, 't'), *args])


def traced(build, args):
    """{command line: (asleep, in long calls)} of a run of tests."""
    found = {}
    with tempfile.TemporaryDirectory() as tmp:
        os.environ['TESTS_SLEPT'] = tmp
        subprocess.call(['meson', 'test', '-C', build, '--no-rebuild', '--num-processes',
                         str(2 * (os.cpu_count() or 1)), '--no-suite', 'whole',
                         '--no-suite', 'perf', '--wrapper', os.path.abspath(__file__), *args],
                        stdin=subprocess.DEVNULL, stdout=sys.stderr)
        for name in os.listdir(tmp):
            if name.endswith('.txt'):
                with open(os.path.join(tmp, name), encoding='utf-8') as f:
                    found[f.read()] = slept(os.path.join(tmp, name[:-4]))
    return found


def main():
    if 'TESTS_SLEPT' in os.environ:
        wrapped(sys.argv[1:])
    if sys.argv[1:] == ['--help']:
        print(__doc__)
        return 0
    if len(sys.argv) < 2:
        sys.exit(__doc__.split('\n\n')[1])
    build = sys.argv[1]
    if not shutil.which('strace'):
        sys.exit('test-slept.py: there is no strace(1)')
    if not os.path.exists(os.path.join(build, 'build.ninja')):
        sys.exit('test-slept.py: %s is no build folder' % build)
    found = traced(build, sys.argv[2:])
    log = os.path.join(build, 'meson-logs', 'testlog-test-slept.py.json')
    if not found:
        sys.exit('test-slept.py: no test ran')
    with open(log, encoding='utf-8') as f:
        tests = [json.loads(line) for line in f if line.strip()]
    rows = []
    for t in tests:
        asleep, long = found.get(' '.join(t['command'][1:]), (0, 0))
        if t['result'] in ('OK', 'SKIP'):
            rows.append((asleep, long, t['duration'], t['name']))
        else:
            print('left out, fails when it is traced: ' + t['name'])
    print('seconds asleep, in calls of 10 ms and more, of those that the test ran:')
    for row in sorted(rows, reverse=True)[:MOST]:
        print('%8.2f %8.2f %8.1f  %s' % row)
    sums = [sum(r[i] for r in rows) for i in range(3)]
    print('asleep %.1f s of %.1f s that the tests ran: %.1f %%; in calls of 10 ms and more %.1f s'
          % (sums[0], sums[2], 100 * sums[0] / sums[2], sums[1]))
    return 0


if __name__ == '__main__':
    sys.exit(main())
