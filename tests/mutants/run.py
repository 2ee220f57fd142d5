#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The strength of the tests: small faults, one at a time.

  run.py [--only GLOB]... [--sample N] [--jobs N] [--limit SECONDS] [--json] [--keep DIR]
  run.py --list
  run.py --check

Each mutant of table.py is a plausible slip: an order, a bound, a missing check.
The tree is copied into a temporary folder and built there; then each mutant in
turn is put in, built, and run against the tests of its part until one of them
notices. The summary says how many were found. Tests that fail without a mutant
are left out, and named.

Tests of the gate come first, then those of the whole with all their rounds; the summary
says how many the gate found. --sample takes so many, evenly spread over the table.
--only takes the names or files of mutants, as fnmatch(3) does. --check looks
whether each mutant still applies, which takes no build. Exit status: 0 if all
were found, 1 if one escaped, 2 if the table is wrong or nothing can be built.
"""
import argparse
import concurrent.futures
import filecmp
import fnmatch
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import table    # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.dirname(os.path.dirname(HERE))
# Parts that no test of a mutant needs are off; less to build and to link.
SETUP = ['-Ducx=disabled', '--buildtype=debugoptimized']
SKIP = 77
BUILD_SECONDS = 600


class TableError(Exception):
    pass


def mutate(m, root):
    """The file's text with the mutant in it."""
    with open(os.path.join(root, m.path), encoding='utf-8') as f:
        text = f.read()
    found = text.count(m.search)
    if found != 1:
        raise TableError('%s: its text is found %d times in %s'
                         % (m.name, found, m.path))
    if m.search == m.replace:
        raise TableError('%s: it changes nothing' % m.name)
    return text, text.replace(m.search, m.replace)


def check_table(mutants):
    errors = []
    names = set()
    for m in mutants:
        if m.name in names:
            errors.append('%s: there are two of that name' % m.name)
        names.add(m.name)
        try:
            mutate(m, SRC)
        except (OSError, TableError) as e:
            errors.append(str(e))
    return errors


def tree_files():
    """The files that git knows, as they are now; in a tarball, all."""
    try:
        names = subprocess.run(
            ['git', '-c', 'safe.directory=' + SRC, '-C', SRC, 'ls-files', '-z',
             '--cached', '--others', '--exclude-standard'],
            check=True, capture_output=True).stdout.split(b'\0')
        names = [os.fsdecode(n) for n in names if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(SRC):
            folders[:] = [d for d in folders
                          if d != '.git' and not d.startswith('build')]
            names += [os.path.relpath(os.path.join(folder, f), SRC)
                      for f in files]
    return [n for n in names if os.path.isfile(os.path.join(SRC, n))]


def copy_tree(to):
    """An unchanged file keeps its time, so that it is not built again."""
    names = set(tree_files())
    for name in names:
        at = os.path.join(to, name)
        if os.path.exists(at) and filecmp.cmp(os.path.join(SRC, name), at,
                                              shallow=False):
            continue
        os.makedirs(os.path.dirname(at), exist_ok=True)
        shutil.copyfile(os.path.join(SRC, name), at)
        shutil.copymode(os.path.join(SRC, name), at)
    for folder, _, files in os.walk(to):
        for f in files:
            at = os.path.join(folder, f)
            if os.path.relpath(at, to) not in names:
                os.unlink(at)


def run(cmd, seconds, cwd=None, env=None):
    """(exit status or None for a timeout, output). Its children go with it."""
    with tempfile.TemporaryFile() as out:
        p = subprocess.Popen(cmd, cwd=cwd, env=env, stdout=out,
                             stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            rc = p.wait(seconds)
        except subprocess.TimeoutExpired:
            rc = None
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        out.seek(0)
        return rc, out.read().decode('utf-8', 'replace')


class Tree:
    """A copy of the sources with a build folder of its own."""

    def __init__(self, root):
        self.src = os.path.join(root, 'src')
        self.build = os.path.join(root, 'build')
        copy_tree(self.src)
        again = ['--reconfigure'] if os.path.exists(self.build) else []
        self.must(['meson', 'setup', *again, *SETUP, self.build, self.src])
        self.must(['ninja', '-C', self.build])
        text = subprocess.run(
            ['meson', 'introspect', '--tests', self.build], check=True,
            capture_output=True).stdout
        self.tests = json.loads(text)

    def must(self, cmd):
        rc, out = run(cmd, None)
        if rc:
            sys.exit('%s\nrun.py: %s fails' % (out[-4000:], ' '.join(cmd)))

    def write(self, path, text):
        with open(os.path.join(self.src, path), 'w', encoding='utf-8') as f:
            f.write(text)

    def compile(self):
        return run(['ninja', '-C', self.build], BUILD_SECONDS)

    def test(self, t, seconds):
        env = dict(os.environ)
        if of_whole(t):
            env['TESTS_WHOLE'] = '1'
        env.update(t.get('env') or {})
        return run(t['cmd'], seconds, t.get('workdir') or self.build, env)


def of_whole(t):
    return any(s.split(':')[-1] == 'whole' for s in t['suite'])


def name_of(t):
    """ "preload:preload": two suites may have a test of one name."""
    return '%s:%s' % (t['suite'][0].split(':')[-1], t['name'])


def wanted(tests, globs):
    return [t for t in tests
            if any(fnmatch.fnmatch(name_of(t), g) for g in globs)]


def baseline(tree, mutants, say):
    """{name: seconds} of the tests that pass without a mutant."""
    globs = {g for m in mutants for g in m.tests}
    good = {}
    for t in wanted(tree.tests, globs):
        start = time.monotonic()
        rc, _ = tree.test(t, 600)
        if rc == 0:
            good[name_of(t)] = time.monotonic() - start
        else:
            say('left out: %s %s without a mutant' %
                (name_of(t), 'is skipped' if rc == SKIP else 'fails'))
    return good


def why(rc, out):
    if rc is None:
        return 'it hangs'
    for line in out.splitlines():
        if 'FAIL' in line or 'not ok' in line or 'Error' in line:
            return line.strip()[:120]
    return 'exit status %d' % rc


def try_mutant(tree, m, good, limit):
    """{'name', 'result': found, escaped or error, 'by', 'why', 'seconds'}"""
    start = time.monotonic()
    res = {'name': m.name, 'file': m.path, 'result': 'escaped'}
    before, after = mutate(m, tree.src)
    tree.write(m.path, after)
    try:
        rc, out = tree.compile()
        if rc != 0:
            res.update(result='error', why='it does not build%s: %s' % (
                ' in time' if rc is None else '', out[-300:]))
            return res
        tests = [t for t in wanted(tree.tests, m.tests) if name_of(t) in good]
        tests.sort(key=lambda t: (of_whole(t), good[name_of(t)]))
        end = time.monotonic() + limit
        for t in tests:
            left = end - time.monotonic()
            # Ten times what it takes otherwise, and at least a minute. One
            # that was given less and did not end has noticed nothing.
            enough = max(60, 10 * good[name_of(t)])
            rc, out = tree.test(t, max(0, min(left, enough)))
            if rc is None and left < enough:
                res['why'] = 'time was up'
                break
            if rc not in (0, SKIP):
                res.update(result='found', by=name_of(t), why=why(rc, out),
                           circle='whole' if of_whole(t) else 'gate')
                break
    finally:
        tree.write(m.path, before)
        res['seconds'] = round(time.monotonic() - start, 1)
    return res


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--list', action='store_true',
                   help='print the mutants and end')
    p.add_argument('--check', action='store_true',
                   help='look whether each still applies, and end')
    p.add_argument('--only', action='append', metavar='GLOB',
                   help='these mutants, by name or file')
    p.add_argument('--sample', type=int, metavar='N',
                   help='so many of them, evenly spread')
    p.add_argument('--jobs', type=int, default=1, metavar='N',
                   help='so many trees at once (1)')
    p.add_argument('--limit', type=float, default=300, metavar='SECONDS',
                   help='for the tests of a mutant (300)')
    p.add_argument('--json', action='store_true')
    p.add_argument('--keep', metavar='DIR',
                   help='build there, and leave it: faster the next time')
    return p.parse_args()


def chosen(mutants, globs):
    return [m for m in mutants
            if not globs or any(fnmatch.fnmatch(m.name, g) or
                                fnmatch.fnmatch(m.path, g) for g in globs)]


def run_all(mutants, args, root, say):
    trees = queue.Queue()
    for i in range(max(1, min(args.jobs, len(mutants)))):
        say('building copy %d' % (i + 1))
        where = os.path.join(root, str(i))
        os.makedirs(os.path.join(where, 'src'), exist_ok=True)
        trees.put(Tree(where))
    tree = trees.get()
    say('running the tests without a mutant')
    good = baseline(tree, mutants, say)
    trees.put(tree)

    def one(m):
        tree = trees.get()
        try:
            return try_mutant(tree, m, good, args.limit)
        finally:
            trees.put(tree)

    results = []
    with concurrent.futures.ThreadPoolExecutor(trees.qsize()) as pool:
        for r in pool.map(one, mutants):
            results.append(r)
            say('%-8s %-36s %5.0f s  %s' %
                (r['result'], r['name'], r['seconds'],
                 '%s: %s' % (r['by'], r['why']) if r['result'] == 'found'
                 else r.get('why', '')))
    return results


def main():
    args = arguments()
    mutants = chosen(table.MUTANTS, args.only)
    if args.sample and args.sample < len(mutants):
        mutants = [mutants[i * len(mutants) // args.sample] for i in range(args.sample)]
    if not mutants:
        sys.exit('run.py: no mutant is called that')
    if args.list:
        for m in mutants:
            print('%-36s %s: %s' % (m.name, m.path, m.why))
        return 0
    errors = check_table(mutants)
    for e in errors:
        print('error: ' + e, file=sys.stderr)
    if args.check:
        print('%d of %d mutants apply' % (len(mutants) - len(errors),
                                          len(mutants)))
    if errors or args.check:
        return 2 if errors else 0

    def say(text):
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
        results = run_all(mutants, args, os.path.abspath(args.keep), say)
    else:
        with tempfile.TemporaryDirectory(prefix='kedge-mutants-') as root:
            results = run_all(mutants, args, root, say)
    found = sum(r['result'] == 'found' for r in results)
    wrong = sum(r['result'] == 'error' for r in results)
    if args.json:
        json.dump({'found': found, 'of': len(results), 'mutants': results},
                  sys.stdout, indent=1)
        print()
    gate = sum(r.get('circle') == 'gate' for r in results)
    say('%d of %d found, %d by the gate' % (found, len(results), gate))
    return 2 if wrong else 0 if found == len(results) else 1


if __name__ == '__main__':
    sys.exit(main())
