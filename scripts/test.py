#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Run meson's tests and say, on one closing line, how they went.

  test.py BUILD [--whole] [ARGUMENT OF MESON TEST...]
  test.py BUILD --targets NAME...    print what ninja builds for these tests

Without --whole, tests of the suite "whole" are left out: the rest is the gate, which
has each behaviour once, and in which long tests do fewer rounds: TESTS_WHOLE is not set.
There are more jobs than processors, as many tests wait; those that measure run alone.
The end says how long the run took, which tests were the slowest and what was left out.

meson prints no line that counts, so its log is read afterwards. A program that
reports its cases one by one, as cmocka's do, counts by its cases; any other is
one test. A program that fails otherwise (a crash, a sanitizer's exit status, a
timeout) counts one failure even where each case it got to passed.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

RUN = re.compile(r'^\[ RUN      \] (.+?)\s*$', re.M)
DONE = re.compile(r'^\[\s*(OK|SKIPPED)\s*\] (.+?)\s*$', re.M)
BAD = re.compile(r'^\[  (?:FAILED |ERROR  ) \]', re.M)
BEGUN = re.compile(r'^\[={10}\] Running (\d+) test', re.M)
ENDED = re.compile(r'^\[={10}\] (\d+) test\(s\) run', re.M)
TAP = re.compile(r'^(ok|not ok) \d+(?: - ([^#\n]*))?(?:# *(SKIP) *(.*))?$',
                 re.M | re.I)
WHY = re.compile(r'^.*\bskip.*$', re.M | re.I)
GOOD = ('OK', 'EXPECTEDFAIL')
SLOWEST = 10
JOBS_PER_CPU = 2


def read_log(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        return [json.loads(line) for line in f if line.strip()]


def why_skipped(output):
    """The lines in which a test says why, or its last one."""
    lines = [m.group(0).strip() for m in WHY.finditer(output)
             if not re.match(r'\s*\[|\s*\d+ SKIPPED TEST', m.group(0))]
    if not lines:
        lines = output.strip().splitlines()[-1:] or ['it does not say why']
    return '; '.join(dict.fromkeys(re.sub('^skipped: ', '', line) for line in lines))


def cases(output):
    """[(case, verdict, why skipped)] of the cases that a program reports."""
    run = RUN.findall(output)
    if run:
        # cmocka names each case when it starts; one that is never said to be
        # done has failed, or taken the program down. Names may repeat, and the
        # skipped are listed again at the end: match them in order.
        done = [(m.group(2), m.group(1)) for m in DONE.finditer(output)]
        out = []
        for name in run:
            hit = next((d for d in done if d[0] == name), None)
            if hit:
                done.remove(hit)
            out.append((name, hit[1] if hit else 'FAILED', why_skipped(output)))
        return out
    out = []
    for m in TAP.finditer(output):
        verdict = 'SKIPPED' if m.group(3) else \
            'OK' if m.group(1).lower() == 'ok' else 'FAILED'
        name = (m.group(2) or '').strip() or str(len(out) + 1)
        out.append((name, verdict, m.group(4) or 'it does not say why'))
    return out


def wrong(test, output, ran):
    """Why a program that says that all is well is not believed, or None."""
    begun, ended = BEGUN.findall(output), ENDED.findall(output)
    if BAD.search(output):
        return 'it says FAILED or ERROR, and ends with status 0'
    if begun != ended or begun and sum(map(int, begun)) != len(ran):
        return 'it begins %s cases, names %d and ends %s' % (
            '+'.join(begun) or 'no', len(ran), '+'.join(ended) or 'none')
    if not begun and glob.glob(glob.escape(test['command'][1]) + '.p/*.cases.h'):
        return 'it has a list of cases, and runs none'
    return None


def count(test):
    """(passed, failed, [(skipped name, why)]) of one entry of the log."""
    output = (test.get('stdout') or '') + '\n' + (test.get('stderr') or '')
    result = test['result']
    if result == 'SKIP':
        return 0, 0, [(test['name'], why_skipped(output))]
    found = cases(output)
    passed = sum(v == 'OK' for _, v, _ in found)
    failed = sum(v == 'FAILED' for _, v, _ in found)
    skipped = [(test['name'] + ': ' + n, why)
               for n, v, why in found if v == 'SKIPPED']
    why = wrong(test, output, RUN.findall(output)) if result in GOOD else None
    if why:
        print('%s: %s' % (test['name'], why))
    if result not in GOOD or why:
        failed = max(failed, 1)
    elif failed:
        print('%s: exit status 0 although a case failed' % test['name'])
    elif not passed and not skipped:
        passed = 1
    return passed, failed, skipped


def spent(path):
    """{command line: seconds of processor time}, as tests/common/timed.c wrote them."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding='utf-8', errors='replace') as f:
            for line in f:
                seconds, _, command = line.rstrip('\n').partition(' ')
                found[command] = float(seconds)
    return found


def say_slowest(tests, cpu):
    print('the slowest, by seconds they took, of which the processors had:')
    for t in sorted(tests, key=lambda t: -t['duration'])[:SLOWEST]:
        used = cpu.get(' '.join(t['command'][1:]))
        print('%8.1f %8s  %s' % (t['duration'], '?' if used is None else
                                 '%.1f' % used, t['name']))


def intro(build, what):
    path = os.path.join(build, 'meson-info', 'intro-%s.json' % what)
    with open(path, encoding='utf-8') as f:
        return json.load(f)


def left_out(build):
    """How many tests the gate leaves to the whole."""
    return sum('whole' in [s.split(':')[-1] for s in t['suite']]
               for t in intro(build, 'tests'))


def targets(build, names):
    """What these tests run, and what each test is run by, as ninja calls them."""
    known = {t['id']: t['filename'] for t in intro(build, 'targets')}
    needed = {d for t in intro(build, 'tests') if t['name'] in names for d in t['depends']}
    files = {f for d in needed for f in known[d]}
    return ['tests/common/timed'] + \
        sorted(os.path.relpath(f, os.path.abspath(build)) for f in files)


def meson_test(build, whole, args):
    """(exit status, None where it was interrupted; seconds) of meson's run."""
    timed = os.path.join(os.path.abspath(build), 'tests/common/timed')
    command = ['meson', 'test', '-C', build, '--print-errorlogs',
               '--num-processes', str(JOBS_PER_CPU * (os.cpu_count() or 1)),
               '--wrapper', shlex.quote(timed)]
    # Where this is killed, meson ends, and with it each test (timed.c).
    if shutil.which('setpriv'):
        command = ['setpriv', '--pdeathsig', 'TERM'] + command
    if not whole:
        command += ['--no-suite', 'whole']
    begin = time.monotonic()
    with subprocess.Popen(command + args, stdin=subprocess.DEVNULL) as run:
        try:
            status = run.wait()
        except KeyboardInterrupt:
            # meson has the signal, too, and ends its tests.
            run.wait()
            status = None
    return status, time.monotonic() - begin


def of_all(args):
    return not re.search(r'[^-t\d. ]', ' '.join(args))


def cpu_log(whole, args):
    """The table of suites is of runs of all tests, which no run of some overwrites."""
    if not of_all(args):
        return 'cpu-some.log'
    return 'cpu-whole.log' if whole else 'cpu.log'


def say_again(build, whole, names):
    for name in names:
        print('again: %smeson test -C %s -v %s' % (
            'TESTS_WHOLE=1 ' if whole else '', shlex.quote(build), shlex.quote(name.split(' / ', 1)[-1])))


def main():
    if sys.argv[1:] == ['--help']:
        print(__doc__)
        return 0
    if len(sys.argv) < 2:
        sys.exit('usage: test.py BUILD [--whole] [ARGUMENT OF MESON TEST...]')
    build, args = sys.argv[1], sys.argv[2:]
    if args[:1] == ['--targets']:
        print('\n'.join(targets(build, args[1:])))
        return 0
    whole = '--whole' in args
    args = [a for a in args if a != '--whole']
    # Named for the program that runs each test.
    log = os.path.join(build, 'meson-logs', 'testlog-timed.json')
    cpu = os.path.join(os.path.abspath(build), 'meson-logs', cpu_log(whole, args))
    for path in (log, cpu):
        if os.path.exists(path):
            os.unlink(path)     # an old one must not be counted
    os.environ['TESTS_CPU_LOG'] = cpu
    os.environ['CMOCKA_MESSAGE_OUTPUT'] = 'STDOUT'
    os.environ.pop('TESTS_WHOLE', None)
    if whole:
        os.environ['TESTS_WHOLE'] = '1'
    status, took = meson_test(build, whole, args)
    if not os.path.exists(log):
        print('interrupted' if status is None else 'no test has such a name: "meson test -C %s '
              '--list" names them' % build if not status and args else
              'meson test left no log (exit status %d)' % status)
        print('0 passed, 1 failed, 0 skipped')
        return 1
    tests = read_log(log)
    passed, failed, skipped, bad = 0, 0, [], []
    for test in tests:
        p, f, s = count(test)
        bad += [test['name']] if f else []
        passed, failed, skipped = passed + p, failed + f, skipped + s
    if status is None:
        if os.path.exists(cpu):
            os.unlink(cpu)
        print('interrupted: the tests that had not ended are not counted')
    if status != 0 and not failed:
        print('meson test ended with status %s' % status)
        failed = 1
    for name, why in skipped:
        print('skipped: %s: %s' % (name, why))
    say_slowest(tests, spent(cpu))
    say_again(build, whole, bad)
    if not whole and of_all(args):
        print('left out: %d tests, and rounds of others: "make test-all" has them' %
              left_out(build))
    print('took %d s' % took)
    print('%d passed, %d failed, %d skipped' % (passed, failed, len(skipped)))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
