#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The table of suites in tests/README.md.

  test-table.py BUILD             say where it differs from the tests of BUILD
  test-table.py BUILD --update    write it: the seconds are those of the last runs of all tests
                                  there, with and without --whole; without one they stay

A suite is a folder. The table says what it is for, which is written by hand, how many tests
of it are in the gate and in the whole, and how many seconds of processor time they take.
Seconds differ from machine to machine, so only the rest is compared.
"""
import collections
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, 'tests/README.md')
ROW = re.compile(r'^\| `([^`]+)` \| ([^|]*) \| (\d+), (\d+) \| ([^|]*) \|$', re.M)


def folder(build, test):
    """The suite of a test: where its program or its script is."""
    for word in test['cmd']:
        path = os.path.normpath(word)
        for top in (os.path.abspath(build), ROOT):
            if path.startswith(top + os.sep):
                path = os.path.relpath(path, top)
        parts = path.split(os.sep)
        if parts[0] in ('tests', 'bindings') and len(parts) > 2:
            return '/'.join(parts[:3 if parts[1] == 'unit' and len(parts) > 3 else 2])
    return 'tests/' + test['suite'][0].split(':')[-1]


def of_whole(test):
    return any(s.split(':')[-1] == 'whole' for s in test['suite'])


def seconds(build, name):
    """{command line: seconds} of the last run."""
    path = os.path.join(build, 'meson-logs', name)
    found = collections.Counter()
    if os.path.exists(path):
        with open(path, encoding='utf-8', errors='replace') as f:
            for line in f:
                took, _, command = line.rstrip('\n').partition(' ')
                found[command] += float(took)
    return found


def counted(build):
    """{suite: [tests of the gate, of the whole, seconds of the gate, of the whole]}"""
    with open(os.path.join(build, 'meson-info', 'intro-tests.json'), encoding='utf-8') as f:
        tests = json.load(f)
    suites = collections.defaultdict(lambda: [0, 0, 0.0, 0.0])
    of = {}
    for test in tests:
        row = suites[folder(build, test)]
        row[0] += not of_whole(test)
        row[1] += 1
        of[' '.join(test['cmd'])] = row
    for at, name in ((2, 'cpu.log'), (3, 'cpu-whole.log')):
        for command, took in seconds(build, name).items():
            if command in of:
                of[command][at] += took
    return suites


def took(seconds_now, before, ran):
    """A cell: the seconds of the circles that ran, and those of before of the others."""
    old = (before.strip() + ', ?').split(', ')
    return ', '.join('%.0f' % now if was else then
                     for now, then, was in zip(seconds_now, old, ran))


def main():
    args = sys.argv[1:]
    update = args[1:] == ['--update']
    if not args or args[0] == '--help' or args[1:] and not update:
        sys.exit(__doc__.split('\n\n')[1])
    if not os.path.exists(os.path.join(args[0], 'meson-info', 'intro-tests.json')):
        sys.exit('test-table.py: %s is no build folder' % args[0])
    suites = counted(args[0])
    ran = [os.path.exists(os.path.join(args[0], 'meson-logs', name))
           for name in ('cpu.log', 'cpu-whole.log')]
    with open(README, encoding='utf-8') as f:
        text = f.read()
    rows = {m.group(1): m for m in ROW.finditer(text)}
    bad = ['tests/README.md: no row for %s' % s for s in suites if s not in rows]
    bad += ['tests/README.md: %s has no test' % s for s in rows if s not in suites]
    if update and not bad:
        text = ROW.sub(lambda m: '| `%s` | %s | %d, %d | %s |' % (
            m.group(1), m.group(2), *suites[m.group(1)][:2],
            took(suites[m.group(1)][2:], m.group(5), ran)), text)
        for circle, was in zip(('gate', 'whole'), ran):
            if not was:
                print('no run of the %s in %s: its seconds stay' % (circle, args[0]))
        with open(README, 'w', encoding='utf-8') as f:
            f.write(text)
    elif not update:
        bad += ['tests/README.md: %s has %d tests in the gate and %d in the whole' % (
            s, *suites[s][:2]) for s, m in rows.items() if s in suites and
            [int(m.group(3)), int(m.group(4))] != suites[s][:2]]
    print('\n'.join(bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
