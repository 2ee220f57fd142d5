#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which share of the lines of each room in src the gate runs, and which the whole does.

  test-coverage.py FOLDER

Builds with gcc's counters in FOLDER, or goes on with what is there, runs both circles of
the tests there, and prints for each room its lines and both shares, with the difference in
points. It needs gcovr(1). A process that is killed, or ends by _exit(), writes no counters:
the true shares are higher, by the same in both.
"""
import collections
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def must(*cmd):
    if subprocess.call(cmd, stdin=subprocess.DEVNULL):
        sys.exit('test-coverage.py: %s fails' % ' '.join(cmd))


def lines(build):
    """{room: (lines, lines that ran)} of what the counters say now."""
    out = subprocess.run(
        ['gcovr', '--root', ROOT, '--object-directory', build, '--filter', 'src/',
         '--gcov-ignore-parse-errors', '--json-summary', '-j', str(os.cpu_count() or 1)],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rooms = collections.defaultdict(lambda: [0, 0])
    for f in json.loads(out)['files']:
        row = rooms[f['filename'].split('/')[1]]
        row[0] += f['line_total']
        row[1] += f['line_covered']
    return rooms


def run(build, *args):
    """A test that fails beside counters has run its lines all the same."""
    subprocess.call([os.path.join(ROOT, 'scripts/test.py'), build, *args, '-t', '5',
                     '--no-suite', 'perf'], stdin=subprocess.DEVNULL)
    if not os.path.exists(os.path.join(build, 'meson-logs/testlog-timed.json')):
        sys.exit('test-coverage.py: no test ran')
    return lines(build)


def main():
    if sys.argv[1:] == ['--help']:
        print(__doc__)
        return 0
    if len(sys.argv) != 2 or sys.argv[1].startswith('-'):
        sys.exit(__doc__.split('\n\n')[1])
    if not shutil.which('gcovr'):
        sys.exit('test-coverage.py: there is no gcovr(1)')
    build = os.path.abspath(sys.argv[1])
    if not os.path.exists(os.path.join(build, 'build.ninja')):
        must('meson', 'setup', '-Db_coverage=true', '-Doptimization=0', build, ROOT)
    must('ninja', '-C', build)
    for folder, _, files in os.walk(build):
        for f in files:
            if f.endswith('.gcda'):
                os.unlink(os.path.join(folder, f))
    gate, whole = run(build), run(build, '--whole')
    gate['all'] = [sum(r[i] for r in gate.values()) for i in (0, 1)]
    whole['all'] = [sum(r[i] for r in whole.values()) for i in (0, 1)]
    print('%-12s %7s %8s %8s %8s' % ('room', 'lines', 'gate, %', 'whole, %', 'points'))
    for room, (total, ran) in sorted(whole.items()):
        g, w = 100 * gate[room][1] / total, 100 * ran / total
        print('%-12s %7d %8.1f %8.1f %8.1f' % (room, total, g, w, w - g))
    return 0


if __name__ == '__main__':
    sys.exit(main())
