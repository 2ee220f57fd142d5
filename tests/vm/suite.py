#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The tests in the guests, on each of Debian's kernels.

  suite.py [--quick | --gate] [--kernel NAME|FOLDER] [--only GLOB]
           [--patience N] [--append WORDS] [--jobs N] BUILD

A job says "ran" when it has ended, and "ok", "skip" or "FAIL" on one line when its guest
has; its output follows only if it failed; the last line counts. SIGTERM ends the guests,
and what they said last is printed. With --quick, jobs that need the same guest run in one, one
after the other: most of a short job's time is the guest's start. Each has its
own verdict; a complaint of the kernel in the end is told of all of them.
With --gate, those that decide over a change run one after the other in one guest, which has
both modules and an RDMA device, on 6.12 unless told.
Kernels are 6.1, 6.12, 6.12-rt, which is for the whole run, and, on request, those
of other releases of Debian: 5.10 and newest.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import functools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import kernels
import vm

Job = collections.namedtuple('Job', 'name module args seconds command work')

# module: ummunot is loaded; SEGMENT: that of segments as well. args: of "vm.py
# run". seconds: what it may take. {b} in the command is the build's folder, {n} one of work: for
# the quick run and for the other. work None: not for the quick run; ONE_KERNEL: for that, on the
# newest of the kernels alone.
REMOVED = os.path.join(kernels.HERE, 'left.sh')
LEFT = REMOVED + ' ummunot {b}/tests/vm/ummunot_'
SEGMENTS = REMOVED + ' kedge_segment'
KSEG = SEGMENTS + ' {b}/tests/vm/kseg_'
SEGMENT = 'kedge_segment'
ONCE = (1, 1)
ONE_KERNEL = (1, 1, 'newest')
RDMA = [w for m in ('crc32_generic', 'dummy', 'veth', 'rdma_rxe', 'ib_uverbs',
                    'rdma_ucm') for w in ('-m', m)]
ONE = os.path.join(kernels.HERE, 'rdma.sh') + ' one '
TWO = os.path.join(kernels.HERE, 'rdma.sh') + ' two '
TORTURE = os.path.join(kernels.HERE, 'rdma_torture.sh') + ' {b}/kedge'
CLIENTS = os.path.join(kernels.HERE, 'rdma_clients.sh')
PROGRAM = os.path.join(kernels.HERE, 'verbs_program')
BOTH = ' {b}/kedge {b}/tests/vm/verbs_program'
JOBS = [
    Job('unit', False, ['-d'], 1500, 'meson test -C {b} --no-rebuild '
        '--print-errorlogs -t 10 --suite unit --suite hooks --suite stress', None),
    Job('tripwire', False, [], 200, '{b}/tests/unit/notify/test_tripwire', ONCE),
    Job('changes', False, [], 400, 'meson test -C {b} --no-rebuild '
        '--print-errorlogs -t 10 settle threads taint service notifier_process', ONCE),
    Job('churn', False, [], 400, '{b}/tests/churn/churn -d -t 4 -a mixed -g '
        '{n}', (300, 5000)),
    Job('torture', False, ['-d'], 900, '{b}/kedge torture -q --seconds {n}',
        (20, 120)),
    Job('demo', False, [], 600, '{b}/kedge demo -q', None),
    Job('rdma clients', False, RDMA, 400, ONE + CLIENTS, None),
    Job('rdma clients wire', False, RDMA, 400, TWO + CLIENTS, None),
    Job('rdma clients cached', False, RDMA, 400, TWO + CLIENTS +
        ' {b}/kedge run --', ONE_KERNEL),
    Job('rdma clients trusted', False, RDMA, 400, TWO + CLIENTS +
        ' {b}/kedge run --trusted-peers --', None),
    Job('rdma device', False, RDMA, 300, ONE + '{b}/tests/vm/verbs_device',
        ONCE),
    Job('rdma program', False, RDMA, 600, ONE + PROGRAM + '.sh' + BOTH, ONCE),
    Job('rdma program cost', False, RDMA, 900, ONE + PROGRAM + '_bench.py' +
        BOTH + ' 5', None),
    Job('rdma perf', False, RDMA, 300, ONE + '{b}/kedge perf -q -t verbs '
        '--check -s 1K,64K -W auto,register -r {n}', (1, 11)),
    Job('rdma mpi', False, RDMA + ['-M', '2048'], 1800, ONE + os.path.join(
        kernels.HERE, 'mpi.sh') + ' {b}', ONE_KERNEL),
    Job('rdma channel', False, RDMA, 300, ONE + 'env KEDGE_LOG=info '
        '{b}/tests/vm/rdma_channel', ONCE),
    Job('rdma api', False, RDMA, 300, ONE + '{b}/tests/vm/rdma_api', ONCE),
    Job('rdma channels', False, RDMA, 300, ONE + '{b}/kedge torture -q '
        '--channel --transport verbs --seconds {n}', (10, 120)),
    Job('rdma region', False, RDMA, 600, ONE + 'env TEST_REGION_BY=rdma '
        '{b}/tests/unit/region/test_region_suites region_adapter', ONCE),
    Job('rdma lines', False, RDMA, 300, ONE + '{b}/tests/vm/rdma_lines', ONCE),
    Job('rdma region perf', False, RDMA, 600, ONE + os.path.join(
        kernels.HERE, 'rdma_region_perf.sh') + ' {b}/kedge', ONCE),
    Job('rdma regions', False, RDMA, 1800, ONE + 'env KEDGE_TEST_ROUNDS=12 ' +
        os.path.join(kernels.HERE, 'rdma_regions.sh') + ' {b}', None),
    Job('rdma resync', False, RDMA, 900, ONE + '{b}/tests/vm/verbs_resync '
        '256 100', None),
    Job('rdma demo', False, RDMA, 600, ONE + os.path.join(
        kernels.HERE, 'rdma_demo.sh') + ' {b}/kedge {n}', (3, 10)),
    Job('module rdma channels', True, RDMA, 300, ONE + 'env '
        'KEDGE_NOTIFIER=ummunot {b}/kedge torture -q --channel --transport '
        'verbs --sizes large --seconds 120', None),
    Job('rdma torture', False, RDMA + ['-d'], 900, ONE + TORTURE + ' uffd {n}',
        (20, 240)),
    Job('module rdma torture', True, RDMA + ['-d'], 900,
        ONE + TORTURE + ' ummunot {n}', (20, 240)),
    Job('module abi', True, [], 200, LEFT + 'abi', ONCE),
    Job('module events', True, ['-d', '-m', 'zram'], 300, LEFT + 'events',
        ONCE),
    Job('module frames', True, ['-d', '-m', 'zram'], 600, LEFT + 'frames',
        ONCE),
    Job('module late', True, [], 600, LEFT + 'late {n}', (10, 120)),
    Job('module share', True, [], 200, LEFT + 'share', ONCE),
    Job('module bounds', True, [], 900, LEFT + 'bounds {n}',
        (100000, 1000000)),
    Job('module pin', True, [], 900, LEFT + 'pin {n}', (10, 120)),
    Job('module stress', True, [], 1500, LEFT + 'stress {n}', (15, 600)),
    Job('module fuzz', True, [], 1500, LEFT + 'fuzz {n}', (15, 600)),
    Job('segment abi', SEGMENT, [], 200, KSEG + 'abi', ONCE),
    Job('segment perms', SEGMENT, [], 200, KSEG + 'perms', ONCE),
    Job('segment ends', SEGMENT, [], 200, KSEG + 'ends', ONCE),
    Job('segment events', SEGMENT, ['-m', 'zram'], 300, KSEG + 'events', ONCE),
    Job('segment library', SEGMENT, [], 200, SEGMENTS +
        ' {b}/tests/unit/segment/test_segment_module', ONCE),
    Job('segment kills', SEGMENT, [], 300, SEGMENTS +
        ' {b}/tests/unit/segment/test_segment_kill module', ONCE),
    Job('segment xpmem', SEGMENT, ['-M', '2048'], 300, SEGMENTS +
        ' {b}/tests/xpmem/test_xpmem', ONCE),
    Job('segment storms', SEGMENT, [], 900, SEGMENTS +
        ' {b}/tests/unit/segment/stress_segment {n}', (20, 2000)),
    Job('segment channels', SEGMENT, [], 300, SEGMENTS +
        ' {b}/kedge torture -q --channel --seconds {n}', (10, 120)),
    Job('segment wait', SEGMENT, ['-m', 'zram'], 900, KSEG + 'wait {n}',
        (3, 120)),
    Job('segment race', SEGMENT, ['-m', 'zram'], 1500, KSEG + 'race {n}',
        (8, 600)),
    Job('segment fuzz', SEGMENT, ['-m', 'zram'], 1500, KSEG + 'fuzz {n}',
        (5, 600)),
    # With the patch series, as no module can do it: "-k FOLDER --only 'swap*'".
    Job('swap', False, ['-m', 'zram'], 300, '{b}/tests/vm/ummunot_swap',
        ONCE),
    Job('swap pins', False, [], 300, '{b}/tests/vm/ummunot_swap_pins', ONCE),
    Job('swap race', False, ['-m', 'zram'], 1500,
        '{b}/tests/vm/ummunot_swap_race {n}', (20, 600)),
    Job('regions swapped', False, ['-m', 'zram'], 300, os.path.join(
        kernels.HERE, 'swap_space.sh') + ' {b}/tests/unit/region/test_region_suites recommit_others', ONCE),
    Job('module scale', True, ['-M', '4096'], 900, LEFT + 'scale', None),
    Job('module backend', True, [], 300, '{b}/tests/unit/notify/test_ummunot', ONCE),
    Job('module cache', True, [], 300, '{b}/tests/unit/cache/test_cache', ONCE),
    Job('module region cache', True, [], 300, 'env KEDGE_NOTIFIER=ummunot '
        '{b}/tests/unit/region/test_region_cache', ONCE),
    Job('module unit', True, ['-d'], 1500, 'meson test -C {b} --no-rebuild '
        '--print-errorlogs -t 10 --suite unit --suite stress', None),
    Job('module torture', True, ['-d'], 900,
        '{b}/kedge torture -q --strict --seconds {n}', (20, 120)),
]


# Both modules, and channels and regions by an RDMA device.
GATE = ['module abi', 'module events', 'module backend', 'module cache', 'segment abi',
        'segment perms', 'segment ends', 'segment events', 'segment library', 'segment kills',
        'rdma device', 'rdma channel', 'rdma api', 'rdma region', 'rdma lines']


def in_gate(job):
    return job._replace(module=SEGMENT, args=RDMA + ['-m', 'zram'])


@functools.lru_cache(maxsize=None)
def module(name, which='ummunot'):
    """A module for a kernel; built once, beside it."""
    prefix, part = ('segment-', 'segment') if which == SEGMENT else \
        ('module-', '')
    folder = os.path.join(kernels.folder(), prefix + os.path.basename(name))
    kernel = kernels.kernel(name)
    status, said = kernel.make_module(folder, part)
    if status:
        raise kernels.Unusable('%s does not build for %s:\n%s' %
                               (which, name, said))
    return os.path.join(folder, which + '.ko')


def modules(job):
    """Names of those that it needs."""
    return (['ummunot'] if job.module else []) + \
        ([SEGMENT] if job.module == SEGMENT else [])


def guests(jobs, args):
    """Lists of jobs, each for a guest."""
    if args.gate:
        return [jobs]
    if not args.quick:
        return [[job] for job in jobs]
    alike = collections.defaultdict(list)
    for job in jobs:
        # The routes of the second way stay as they are.
        alike[job.module, tuple(job.args), TWO in job.command].append(job)
    return list(alike.values())


def seconds(job, args):
    return job.seconds * args.patience


def script(jobs, kernel, args):
    """Runs jobs, whatever fails; "@ JOB: STATUS, SECONDS s" after each."""
    lines = ['failed=0']
    for job in jobs:
        n = job.work[0 if args.quick else 1] if job.work else 0
        command = job.command.format(b=os.path.abspath(args.build), n=n)
        for name in modules(job):      # the one before may have removed it
            lines.append('[ -e /sys/module/%s ] || insmod %s' %
                         (name, shlex.quote(module(kernel, name))))
        lines += ['start=$(date +%s); status=0',
                  'timeout -k 10 %d %s || status=$?' %
                  (seconds(job, args), command),
                  '[ $status = 0 ] || [ $status = 77 ] || failed=1',
                  'echo; echo "@ %s: $status, $(($(date +%%s) - start)) s"' %
                  job.name]
    return '\n'.join(lines + ['exit $failed'])


def start(jobs, kernel, args):
    """(exit status, output) of a guest."""
    line = [os.path.join(kernels.HERE, 'vm.py'), 'run', '-k', kernel, '-t',
            str(sum(seconds(job, args) for job in jobs)),
            '-a', args.append] + jobs[0].args
    # Without the module notifiers place probes, which is patching.
    if not jobs[0].module:
        line.append('-T')
    try:
        for name in modules(jobs[0]):
            line += ['-i', module(kernel, name)]
        line += ['--', 'sh', '-c', script(jobs, kernel, args)]
    except kernels.Unusable as e:
        return 1, str(e)
    # Within the guest a job ends when its time is over, unless the guest stands still.
    return follow(line, kernel, vm.BOOT * 2 + max(seconds(job, args) for job in jobs))


RUNNING = {}        # of each guest that runs: (kernel, the lines that it said)
RAN = re.compile(r'@ (.*): (\d+), (\d+ s)$')


def follow(line, kernel, patience):
    """(exit status, output) of a command, whose jobs are told as they end; it is ended
    where none does for that many seconds."""
    said = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='replace') as guest:
        RUNNING[guest] = kernel, said
        timer = alarm(guest, patience)
        for text in guest.stdout:
            said.append(text)
            ran = RAN.match(text)
            if ran:
                timer.cancel()
                timer = alarm(guest, patience)
                print('ran %s on %s (exit status %s, %s)' %
                      (ran.group(1), kernel, ran.group(2), ran.group(3)), flush=True)
        timer.cancel()
        status = guest.wait()
    del RUNNING[guest]
    return status, ''.join(said)


def alarm(guest, seconds_left):
    timer = threading.Timer(seconds_left, guest.terminate)
    timer.daemon = True
    timer.start()
    return timer


def stop(*_):
    """By SIGTERM, which comes where there is no time left."""
    for guest, (kernel, said) in list(RUNNING.items()):
        print('stopped on %s, where the last was said:' % kernel)
        print('    ' + '    '.join(said[-30:]), flush=True)
        guest.terminate()
    print('0 passed, %d failed, 0 skipped' % len(RUNNING), flush=True)
    os._exit(128 + signal.SIGTERM)      # threads wait for their guests


def run(jobs, kernel, args):
    """"ok", "skip" or "FAIL" for each of the jobs."""
    begin = time.monotonic()
    status, text = start(jobs, kernel, args)
    taken = '%d s' % (time.monotonic() - begin)
    lines, results = [], []
    for job in jobs:
        end = re.search(r'^@ %s: (\d+), (\d+ s)\n' % re.escape(job.name), text,
                        re.M)
        said = text[:end.start()] if end else text
        good = bool(end) and end.group(1) in ('0', '77') and \
            (status == 0 or status == 1 and len(jobs) > 1)
        why = re.findall(r'^SKIP: (.*?)\r?$', said, re.M)
        results.append('FAIL' if not good else
                       'ok' if end.group(1) == '0' else 'skip')
        lines.append('%s %s on %s (%s)' % (
            results[-1], job.name, kernel, why[-1] if results[-1] == 'skip'
            and why else end.group(2) if end and len(jobs) > 1 else taken))
        if not good:
            lines.append('    exit status %s, the guest\'s %d' %
                         (end.group(1) if end else 'unknown', status))
            lines += ['    ' + t for t in said.splitlines()[-60:]]
        text = text[end.end():] if end else text
    if 'FAIL' in results:
        lines += ['    ' + t for t in text.splitlines()[-60:]]
    print('\n'.join(lines), flush=True)
    return results


def prepare(kernel, args):
    """The jobs' common ground. A failure here is told by each of them."""
    try:
        kernels.kernel(kernel)
        for job in JOBS:
            if fnmatch.fnmatch(job.name, args.only):
                for name in modules(job):
                    module(kernel, name)
    except kernels.Unusable:
        pass


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true')
    p.add_argument('--gate', action='store_true')
    p.add_argument('-k', '--kernel', action='append')
    p.add_argument('--only', default='*')
    p.add_argument('--patience', type=int, default=1, metavar='N',
                   help='a job may take N times as long: a debugging kernel')
    p.add_argument('-a', '--append', default='',
                   help="for the kernel's command line")
    p.add_argument('-j', '--jobs', type=int, default=1, metavar='N',
                   help='guests at a time; each uses up to two CPUs')
    p.add_argument('build')
    args = p.parse_args()
    signal.signal(signal.SIGTERM, stop)
    if args.gate:
        args.quick, args.kernel = True, args.kernel or ['6.12']
    kinds = args.kernel or [k for k in kernels.IMAGES
                            if not args.quick or not k.endswith('-rt')]
    for kernel in kinds:
        prepare(kernel, args)
    jobs = [job for job in JOBS if fnmatch.fnmatch(job.name, args.only) and
            (job.work or not args.quick)]
    if args.gate:
        jobs = [in_gate(job) for job in jobs if job.name in GATE]
    todo = [(alike, kernel) for alike in guests(jobs, args)
            for kernel in (kinds[-1:] if args.quick and
                           all(job.work == ONE_KERNEL for job in alike) else kinds)]
    # The longest come first, so that no guest is left for the end.
    todo.sort(key=lambda t: -sum(job.seconds for job in t[0]))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        told = pool.map(lambda t: run(t[0], t[1], args), todo)
        results = [good for guest in told for good in guest]
    print('%d passed, %d failed, %d skipped' %
          tuple(results.count(r) for r in ('ok', 'FAIL', 'skip')))
    return 1 if 'FAIL' in results else 0


if __name__ == '__main__':
    sys.exit(main())
