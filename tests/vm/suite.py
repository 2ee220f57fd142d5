#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs in the guests, on each of Debian's kernels.

  suite.py [--quick] [--kernel 6.1] [--only GLOB] BUILD

A job says "ok" or "FAIL" on one line, its output follows only if it failed;
the last line counts."""
import argparse
import fnmatch
import os
import subprocess
import sys
import time

import kernels

# name, arguments of "vm.py run", seconds it may take, command, {n} in it for the
# quick run and for the other; None: not for the quick run.
JOBS = [
    ('unit', ['-d'], 1500, 'meson test -C {b} --no-rebuild -t 10 --suite unit '
     '--suite hooks --suite stress', None),
    ('tripwire', [], 200, '{b}/tests/unit/test_tripwire', (1, 1)),
    ('torture', ['-d'], 900, '{b}/kedge torture -q --seconds {n}', (20, 120)),
    ('demo', [], 600, '{b}/kedge demo -q', None),
]


def run(job, kernel, args):
    name, more, seconds, command, work = job
    n = work[0 if args.quick else 1] if work else 0
    command = command.format(b=os.path.abspath(args.build), n=n)
    line = [os.path.join(kernels.HERE, 'vm.py'), 'run', '-k', kernel, '-t',
            str(seconds)] + more + ['--'] + command.split()
    start = time.monotonic()
    out = subprocess.run(line, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True,
                         errors='replace', check=False)
    print('%s %s on %s (%d s)' % ('FAIL' if out.returncode else 'ok', name,
                                  kernel, time.monotonic() - start),
          flush=True)
    if out.returncode:
        print('    exit status %d' % out.returncode)
        print('\n'.join('    ' + t for t in out.stdout.splitlines()[-60:]),
              flush=True)
    return not out.returncode


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true')
    p.add_argument('-k', '--kernel', action='append')
    p.add_argument('--only', default='*')
    p.add_argument('build')
    args = p.parse_args()
    results = []
    for kernel in args.kernel or list(kernels.IMAGES):
        for job in JOBS:
            if fnmatch.fnmatch(job[0], args.only) and \
                    (job[-1] or not args.quick):
                results.append(run(job, kernel, args))
    print('%d passed, %d failed, 0 skipped' %
          (results.count(True), results.count(False)))
    return 1 if False in results else 0


if __name__ == '__main__':
    sys.exit(main())
