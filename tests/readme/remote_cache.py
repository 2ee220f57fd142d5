#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The example remote_cache: clients read it while it changes, grows, shrinks and migrates.

  remote_cache.py PROGRAM [NODE COMMAND... ; NODE COMMAND...]

Without more, all is on this host. Otherwise two hosts, each by its address and the command that
runs a program there; the two are parted by an argument "::".

Each watcher prints the changes that it finds. A value has its key and a number in it, and is as
long as the number says; the server answers each put with the version that it gave. So each line of
a watcher has to be one of the values that were put, under its version, and versions only rise.
The test waits for what watchers have found, never for a time.
"""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

KEYS = ['key%d' % i for i in range(3)]
PATIENCE = 120      # seconds in which a watcher finds no change: it hangs


class Failed(Exception):
    pass


def value_of(key, n):
    word = '%s=%d.' % (key, n)
    return (word * 300)[:20 + n * 37 % 3000]


class Server:
    """serve or take. Answers are read as they come; that of a migration is kept apart."""

    def __init__(self, program, role, host):
        node, prefix = host
        self.p = subprocess.Popen(
            prefix + [program, role] + (['--node', node] if node else []),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.migration = None
        self.first = self.line()

    def line(self):
        got = self.p.stdout.readline()
        if not got:
            raise Failed('the server has ended: %s' % self.p.wait())
        return got.rstrip('\n')

    def send(self, text):
        self.p.stdin.write(text + '\n')

    def answer(self):
        while True:
            got = self.line()
            if not got.startswith(('migrated', 'error: migrate')):
                return got
            self.migration = got

    def ask(self, text):
        self.send(text)
        return self.answer()

    def ok(self, text):
        got = self.ask(text)
        if not got.startswith('ok '):
            raise Failed('%s: %s' % (text[:30], got))
        return int(got[3:])

    def moved(self):
        if self.migration is None:
            self.migration = self.line()
        got, self.migration = self.migration, None
        return got

    def quit(self):
        self.send('quit')
        if self.p.wait():
            raise Failed('a server ended with %d' % self.p.returncode)


class Watcher:
    def __init__(self, program, prefix, handle, key, folder):
        self.key = key
        self.out = tempfile.TemporaryFile('w+b', dir=folder)
        self.err = tempfile.TemporaryFile('w+', dir=folder)
        self.p = subprocess.Popen(prefix + [program, 'watch', handle, key], stdout=self.out,
                                  stderr=self.err)
        self.seen = open('/proc/self/fd/%d' % self.out.fileno(), 'rb')
        self.rest = b''
        self.version = 0
        self.changes = 0
        self.last = None

    def look(self, given):
        """Check what has come since."""
        *lines, self.rest = (self.rest + self.seen.read()).split(b'\n')
        for text in lines:
            version, _, value = text.decode().partition(' ')
            if value.startswith('reads, '):
                self.last = text.decode()
                continue
            self.changes += 1
            if int(version) <= self.version:
                raise Failed('%s: version %s after %d' % (self.key, version, self.version))
            self.version = int(version)
            if given.get(self.version) != (self.key, value):
                raise Failed('%s: not what was put as %s: %s' % (self.key, version, value[:40]))

    def wait_for(self, version, given):
        seen, until = self.version, time.monotonic() + PATIENCE
        while self.version < version:
            if self.p.poll() is not None or time.monotonic() > until:
                raise Failed('%s: version %d is not found: %s' % (self.key, version, self.said()))
            time.sleep(0.01)
            self.look(given)
            if self.version != seen:
                seen, until = self.version, time.monotonic() + PATIENCE

    def said(self):
        self.err.seek(0)
        return self.err.read()

    def end(self, given):
        self.p.send_signal(signal.SIGINT)
        status = self.p.wait()
        self.look(given)
        if status or not self.last or not self.last.endswith(' 0 errors') or self.said():
            raise Failed('%s: %s, %s, %s' % (self.key, status, self.last, self.said()))
        print('%s: %s, %d changes' % (self.key, self.last, self.changes))


class Run:
    def __init__(self, program, hosts, folder):
        self.program = program
        self.hosts = hosts
        self.folder = folder
        self.given = {}     # version: (key, value)
        self.now = {}       # key: version, without those that were deleted
        self.n = 0
        self.server = Server(program, 'serve', hosts[0])
        self.handle = self.server.first
        self.watchers = []
        self.former = []

    def watch(self):
        for host in self.hosts:
            self.watchers += [Watcher(self.program, host[1], self.handle, key, self.folder)
                              for key in KEYS]

    def put(self, key):
        """True, or False if the cache has moved."""
        self.n += 1
        value = value_of(key, self.n)
        # A watcher may find it before the answer is here; versions are given in order.
        got = self.server.ask('put %s %s' % (key, value))
        if not got.startswith('ok '):
            if 'has moved' not in got and 'migrat' not in got:
                raise Failed('put: %s' % got)
            return False
        version = int(got[3:])
        self.given[version] = (key, value)
        self.now[key] = version
        return True

    def delete(self, key):
        self.server.ok('del ' + key)
        del self.now[key]

    def look(self):
        for w in self.watchers:
            w.look(self.given)

    def found(self):
        """All watchers have found the last value of their keys."""
        for w in self.watchers:
            w.wait_for(self.now[w.key], self.given)

    def get(self):
        """By itself, from each host: exactly the last values, and an error for the rest."""
        keys = list(self.now) + ['missing']
        want = ''.join('%s %s\n' % self.given[self.now[k]] for k in self.now)
        for _, prefix in self.hosts:
            p = subprocess.run(prefix + [self.program, 'get', self.handle] + keys, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if p.stdout != want or p.returncode != 1 or 'missing: ' not in p.stderr:
                raise Failed('get: %d, %.200s, %d bytes, not %d' % (
                    p.returncode, p.stderr, len(p.stdout), len(want)))

    def load(self, rounds):
        """Values change, others come and go, and the region with them."""
        for i in range(rounds):
            for key in KEYS:
                self.put(key)
            self.put('other%d' % (i % 100))
            if i % 7 == 0:
                self.delete('other%d' % (i % 100))
            if i % 11 == 0:
                self.delete(KEYS[0])
                self.put(KEYS[0])
            if i % 50 == 20:
                self.server.ok('grow')
            if i % 50 == 40:
                self.server.ok('trim')
            self.look()
            if i % 25 == 0:
                self.found()
        self.found()
        self.get()

    def storm(self, rounds):
        """As fast as the server can, with blocks that are moved between others."""
        for i in range(rounds):
            puts = []
            for j in range(120):
                self.n += 1
                puts.append((KEYS[j % len(KEYS)], value_of(KEYS[j % len(KEYS)], self.n)))
            orders = ['put %s %s' % p for p in puts]
            orders[40:40] = ['trim']
            orders[80:80] = ['grow' if i % 4 else 'trim']
            self.server.send('\n'.join(orders))
            for order in orders:
                version = int(self.server.answer().removeprefix('ok '))
                if order.startswith('put'):
                    key, value = puts.pop(0)
                    self.given[version] = (key, value)
                    self.now[key] = version
            self.look()
        self.server.ok('trim')
        self.found()

    def refused(self):
        """A migration that does not come to an end leaves the cache as it is."""
        self.server.send('migrate nonsense')
        if not self.server.moved().startswith('error: migrate: '):
            raise Failed('nonsense is no invitation')
        gone = Server(self.program, 'take', self.hosts[1])
        gone.p.kill()
        gone.p.wait()
        self.server.send('migrate ' + gone.first)
        if not self.server.moved().startswith('error: migrate: '):
            raise Failed('the invitation is of a process that has ended')
        self.load(10)

    def migrate(self, host):
        """Puts go on until the cache has moved, and then where it is. Gives its handle there."""
        taker = Server(self.program, 'take', host)
        self.server.send('migrate ' + taker.first)
        i = cnt = 0
        while self.put(KEYS[i % len(KEYS)]) or 'moved' not in self.server.ask('del missing'):
            i += 1
            cnt += 1
            self.look()
            if (self.server.migration or '').startswith('error'):
                raise Failed(self.server.migration)
        got = self.server.moved()
        if not got.startswith('migrated: '):
            raise Failed(got)
        print('%s; %d puts meanwhile' % (got, cnt))
        self.former.append(self.server)
        self.server = taker
        return taker.line()

    def all(self):
        for key in KEYS:
            self.put(key)
        self.watch()
        self.load(100)
        self.storm(60)
        self.refused()
        for host in self.hosts[1], self.hosts[0]:
            handle = self.migrate(host)
            # The former owner tells those that come by its handle, as long as it is there.
            self.load(60)
            self.handle = handle
            self.former.pop().quit()
            self.storm(30)
        print(self.server.ask('stats'))
        for w in self.watchers:
            w.end(self.given)
        self.server.quit()

    def close(self):
        for p in [w.p for w in self.watchers] + [s.p for s in self.former + [self.server]]:
            if p.poll() is None:
                p.kill()
                p.wait()


def main():
    args = sys.argv[2:]
    hosts = [(None, []), (None, [])]
    if args:
        at = args.index('::')
        hosts = [(h[0], h[1:]) for h in (args[:at], args[at + 1:])]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(sys.argv[1], hosts, folder)
        try:
            run.all()
        except Failed as e:
            print('FAIL: %s' % e)
            return 1
        finally:
            run.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
