#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Run a command of this machine under another kernel.

  vm.py run [OPTION...] -- COMMAND [ARGUMENT...]
  vm.py headers KERNEL    print where modules for it are built against
  vm.py fetch KERNEL...   download and unpack

The guest (QEMU, without KVM) sees the host's files under a layer of its own
that is thrown away; only the folder /share is the host's and writable. The
command's output is printed here as it comes, and its exit status is this one's,
but 99 where the kernel complained (BUG, WARNING, hung task, leak...; with -i, a
data race only if it is in that module) and 98 where the guest did not get to
the command's end."""
import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import cpio
import kernels

GUEST_MODULES = ['virtio_pci', '9p', '9pnet_virtio', 'overlay']
DISK_MODULES = ['crc32c_generic', 'loop', 'ext4']
COMPLAINTS = re.compile(
    r'BUG[: ]|WARNING: |\bOops\b|general protection fault|Kernel panic|'
    r'INFO: task .* blocked|rcu: INFO: .*stall|UBSAN: |'
    r'possible (recursive|circular|irq lock)|suspicious RCU|refcount_t: |'
    r'Bad page|Bad rss-counter|corruption|Objects remaining|'
    r'inconsistent lock state|unable to handle|sleeping function called')
COMPLAINED, UNFINISHED = 99, 98
BOOT = 300      # seconds until the command begins: some 20 are usual


def initramfs(kernel, modules, extra, disk):
    """@modules: of the kernel, by name; @extra: files of others' modules."""
    a = cpio.Archive()
    a.console()
    a.copy('bin/busybox', '/bin/busybox' if os.path.exists('/bin/busybox')
           else '/usr/bin/busybox')
    a.copy('init', os.path.join(kernels.HERE, 'init'))
    names = []
    if disk:
        a.file('disk', b'')
        modules = DISK_MODULES + modules
    for path in kernel.closure(GUEST_MODULES + modules):
        names.append(os.path.basename(path))
        a.copy('modules/' + names[-1], os.path.join(kernel.modules(), path))
    for word in extra:
        path, *params = word.split()
        names.append(' '.join([os.path.basename(path)] + params))
        a.copy('modules/' + os.path.basename(path), path)
    a.file('modules.list', ''.join(n + '\n' for n in names).encode())
    return a.bytes()


def job(args):
    lines = ['cd ' + shlex.quote(os.getcwd()),
             'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:'
             '/sbin:/bin HOME=/root LC_ALL=C.UTF-8']
    lines.append('export TMPDIR=' + ('/run/disk' if args.disk else '/run'))
    lines += ['export ' + shlex.quote(e) for e in args.env]
    if args.user:
        lines.append('exec setpriv --reuid=%d --regid=%d --clear-groups %s' %
                     (args.user, args.user, shlex.join(args.command)))
    else:
        lines.append('exec ' + shlex.join(args.command))
    return '\n'.join(lines) + '\n'


def qemu(args, kernel, tmp, share):
    line = ['qemu-system-x86_64', '-nodefaults', '-no-reboot', '-display',
            'none', '-cpu', 'max', '-m', str(args.memory), '-kernel',
            kernel.image, '-initrd', os.path.join(tmp, 'initrd'), '-serial',
            'file:' + os.path.join(tmp, 'console')]
    if args.icount:
        line += ['-accel', 'tcg,thread=single', '-icount',
                 'shift=0,sleep=off', '-smp', '1']
    else:
        line += ['-accel', 'tcg,thread=' + ('single' if args.turns else
                                            'multi'), '-smp', str(args.cpus)]
    for tag, path, more in (('host', '/', ',readonly=on'),
                            ('share', share, '')):
        line += ['-virtfs', 'local,path=%s,mount_tag=%s,security_model=none,'
                 'multidevs=remap%s' % (path, tag, more)]
    return line + ['-append', 'console=ttyS0 quiet panic=-1 oops=panic '
                   'no_timer_check watchdog_thresh=60 net.ifnames=0 '
                   'rcupdate.rcu_cpu_stall_timeout=120 ' +
                   # QEMU may run what a static branch's patching has left half
                   # done; that of an unstable clock is the one that happens.
                   'tsc=reliable ' + args.append]


class Tail:
    """Prints what a file grows by."""

    def __init__(self, path, quiet):
        self.path, self.at, self.quiet = path, 0, quiet

    def more(self):
        if self.quiet or not os.path.exists(self.path):
            return
        with open(self.path, 'rb') as f:
            f.seek(self.at)
            data = f.read()
        self.at += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def wait(guest, tail, seconds):
    """Wait for the guest's end; true if it came by itself."""
    begin = time.monotonic()
    while guest.poll() is None:
        limit = seconds if os.path.exists(tail.path) else min(seconds, BOOT)
        if time.monotonic() - begin > limit:
            guest.kill()
            guest.wait()
            tail.more()
            return False
        time.sleep(0.1)
        tail.more()
    tail.more()
    return True


def read(path):
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8', errors='replace') as f:
        return f.read()


# A report of a data race: to the line of "=" below it.
RACE = re.compile(r'^[^\n]*BUG: KCSAN:.*?={20,}[^\n]*\n', re.S | re.M)


def without_others_races(log, modules):
    """Linux has data races of its own; ours have our modules in a stack."""
    if not modules:
        return log
    names = ['[%s]' % os.path.basename(m.split()[0]).split('.')[0]
             for m in modules]
    return RACE.sub(lambda m: m.group() if any(n in m.group() for n in names)
                    else '', log)


def complaints(log):
    """Each complaint with some lines after it."""
    lines = log.splitlines()
    out = []
    for i, text in enumerate(lines):
        if COMPLAINTS.search(text):
            out += [t for t in lines[i:i + 25] if t not in out]
    return out[:200]


def say(text):
    print('vm: ' + text, file=sys.stderr, flush=True)


def verdict(tmp, share, ended, args):
    console = read(os.path.join(tmp, 'console'))
    log = read(os.path.join(share, 'dmesg')) or console
    bad = complaints(without_others_races(log, args.insmod))
    leaks = read(os.path.join(share, 'leaks'))
    status = read(os.path.join(share, 'status')).strip()
    if bad or leaks:
        say('the kernel complained:\n' + '\n'.join(bad) + leaks)
        return COMPLAINED
    if not status:
        why = 'the guest ended' if ended else 'stopped after %d s' % (
            args.timeout if os.path.exists(os.path.join(share, 'out')) else
            min(BOOT, args.timeout))
        say(why + ' before the command did; its console:\n' +
            '\n'.join(console.splitlines()[-40:]))
        return UNFINISHED
    return int(status)


def died_at_boot(tmp, share, ended):
    """An emulated processor may meet the byte by which a kernel of several
    processors patches itself: the kernel ends, or stands still, before the command begins."""
    return not os.path.exists(os.path.join(share, 'out')) and \
        (not ended or 'Oops: int3' in read(os.path.join(tmp, 'console')))


def run(args):
    kernel = kernels.kernel(args.kernel, say)
    status = boot(kernel, args)
    if status is None:
        say('the kernel did not get to the command: once more')
        status = boot(kernel, args, last=True)
    return status


def boot(kernel, args, last=False):
    """The exit status; None: the guest may be begun again."""
    with tempfile.TemporaryDirectory(prefix='kedge-vm-') as tmp:
        share = args.share or os.path.join(tmp, 'share')
        os.makedirs(share, exist_ok=True)
        for name in ('out', 'status', 'dmesg', 'leaks', 'job'):
            if os.path.exists(os.path.join(share, name)):
                os.unlink(os.path.join(share, name))
        with open(os.path.join(tmp, 'initrd'), 'wb') as f:
            f.write(initramfs(kernel, args.module, args.insmod, args.disk))
        with open(os.path.join(share, 'job'), 'w', encoding='utf-8') as f:
            f.write(job(args))
        tail = Tail(os.path.join(share, 'out'), False)
        with subprocess.Popen(qemu(args, kernel, tmp, share),
                              stdin=subprocess.DEVNULL) as guest:
            try:
                ended = wait(guest, tail, args.timeout)
            except BaseException:
                guest.kill()
                say('ended from outside; the console:\n' + '\n'.join(
                    read(os.path.join(tmp, 'console')).splitlines()[-40:]))
                raise
        if not last and died_at_boot(tmp, share, ended):
            return None
        return verdict(tmp, share, ended, args)


def parse():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest='what', required=True)
    r = sub.add_parser('run', help='run a command under another kernel')
    r.add_argument('-k', '--kernel', default='6.1',
                   help='%s, or a folder with bzImage and root/' %
                        ', '.join(kernels.NAMES))
    r.add_argument('-m', '--module', action='append', default=[],
                   help="a module of the kernel's to load, with its needs")
    r.add_argument('-i', '--insmod', action='append', default=[],
                   help='a file with a module, and parameters, to load')
    r.add_argument('-e', '--env', action='append', default=[],
                   help='NAME=VALUE for the command')
    r.add_argument('-u', '--user', type=int, help='run as this user id')
    r.add_argument('-c', '--cpus', type=int, default=2)
    r.add_argument('-T', '--turns', action='store_true',
                   help='the CPUs take turns: where the kernel patches '
                   'itself, as each probe makes it do, one that runs beside '
                   'may meet a byte that is no more there')
    r.add_argument('-M', '--memory', type=int, default=2048, help='in MiB')
    r.add_argument('-t', '--timeout', type=int, default=600, help='seconds')
    r.add_argument('-s', '--share', help="the folder that is the guest's "
                   '/share, kept')
    r.add_argument('-d', '--disk', action='store_true',
                   help='with TMPDIR on ext4, else on tmpfs')
    r.add_argument('-a', '--append', default='', help="for the kernel's "
                   'command line')
    r.add_argument('--icount', action='store_true',
                   help='one CPU whose clock counts its instructions')
    r.add_argument('command', nargs='+')
    for name in ('headers', 'fetch'):
        s = sub.add_parser(name)
        s.add_argument('kernel', nargs='+')
    return p.parse_args()


def main():
    args = parse()
    # The guest goes with this process, and so do its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if args.what == 'run':
            return run(args)
        for name in args.kernel:
            k = kernels.kernel(name, say)
            if args.what == 'headers':
                print(k.headers())
        return 0
    except (kernels.Unusable, OSError) as e:
        say(str(e))
        return UNFINISHED


if __name__ == '__main__':
    sys.exit(main())
