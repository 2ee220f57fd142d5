#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests are where their sources are, and no test is left out silently: BUILD has
read each folder's meson.build, has built each source, and runs each program.

  check-tests.py SOURCE BUILD
"""
import glob
import json
import os
import re
import sys

# Folders of tests that tests/meson.build does not enter, and what uses them.
OTHERS = {'fakes': 'tests/unit', 'mutants': 'by hand: tests/mutants/run.py',
          'packaging': 'make test-deb'}
# Read where the harnesses are built: scripts/fuzz.sh.
FUZZ = 'tests/fuzz'
# cgo compiles what is there.
BY_OTHERS = ('tests/go/', FUZZ + '/')
# Made only where what they need is installed, and their tests with them.
OPTIONAL = {'kedge-etcd', 'kedge-ofi', 'kedge-rdma', 'kedge-verbs'}


def names(room):
    """What a test in this room may begin with: sources, rooms, itself."""
    found = {room}
    for base, folders, files in os.walk(os.path.join('src', room)):
        found |= set(folders)
        found |= {f[:-2] for f in files if f.endswith('.c')}
        # shm/name.c is tested as shm_name.
        found |= {'%s_%s' % (os.path.basename(base), f[:-2])
                  for f in files if f.endswith('.c')}
    return found


def unit_tests():
    for path in sorted(glob.glob('tests/unit/*/*.c')):
        m = re.match(r'(?:test|stress)_(\w+)\.c$', os.path.basename(path))
        if not m:
            continue
        room = path.split('/')[2]
        if not os.path.isdir(os.path.join('src', room)):
            yield '%s: src has no %s' % (path, room)
            continue
        words = m.group(1).split('_')
        begins = {'_'.join(words[:n]) for n in range(1, len(words) + 1)}
        if not begins & names(room):
            yield '%s: begins with no name of src/%s' % (path, room)


def bare(path):
    """A script's or meson.build's text without comments."""
    with open(path, encoding='utf-8') as f:
        return re.sub(r'(^|\s)#.*', r'\1', f.read())


def folders():
    text = bare('tests/meson.build')
    if 'exists' in text:
        yield 'tests/meson.build: a suite may be skipped silently'
    for d in sorted(glob.glob('tests/*/') + glob.glob('tests/unit/*/')):
        top, name = os.path.split(d.rstrip('/'))
        if name in OTHERS or name.startswith('__'):
            continue
        if not os.path.exists(d + 'meson.build'):
            yield '%s: no meson.build' % d
        elif top == 'tests' and "'%s'" % name not in text:
            yield "%s: tests/meson.build doesn't enter it" % d


def fuzz_harnesses():
    text = bare(FUZZ + '/meson.build')
    for path in sorted(glob.glob(FUZZ + '/fuzz_*.c')):
        name = os.path.basename(path)[len('fuzz_'):-len('.c')]
        if "'%s'" % name not in text:
            yield '%s: no harness is built of it' % path


def intro(build, what):
    """What meson knows of the build."""
    path = os.path.join(build, 'meson-info', 'intro-%s.json' % what)
    with open(path, encoding='utf-8') as f:
        return json.load(f)


def unread(read, when):
    """Folders whose meson.build was not read, or has changed since."""
    for path in sorted(glob.glob('tests/**/meson.build', recursive=True)):
        if os.path.dirname(path) == FUZZ:
            continue
        if os.path.realpath(path) not in read:
            yield '%s: the build has not read it' % path
        elif os.path.getmtime(path) > when:
            yield '%s: newer than the build' % path


def unbuilt(targets):
    """Sources that no program has, and no script names that stands beside them."""
    built = {os.path.realpath(s) for t in targets
             for group in t['target_sources'] for s in group.get('sources', [])}
    for path in sorted(glob.glob('tests/**/*.c*', recursive=True)):
        if not path.endswith(('.c', '.cc')) or path.startswith(BY_OTHERS) or \
                os.path.realpath(path) in built:
            continue
        folder, name = os.path.split(path)
        if not any(name in bare(f) for f in glob.glob(folder + '/*.sh')):
            yield '%s: no program is built of it' % path


def unrun(targets, tests):
    """Programs that no test and no benchmark runs, and neither a script of tests nor docs name."""
    used = {name for t in tests for name in t['depends'] + t['cmd']}
    text = '\n'.join(
        [bare(f) for f in glob.glob('tests/**/*.sh', recursive=True) +
         glob.glob('tests/**/*.py', recursive=True) + ['scripts/test.py']] +
        [open(f, encoding='utf-8').read() for f in glob.glob('docs/*.md')])
    text = text.replace("LEFT + '", 'tests/vm/ummunot_')    # of suite.py
    text = text.replace("KSEG + '", 'tests/vm/kseg_')
    for t in targets:
        where = os.path.relpath(t['defined_in'], os.path.realpath('.'))
        path = os.path.join(os.path.dirname(where), t['name'])
        if t['type'] == 'executable' and where.startswith('tests/') and \
                not {t['id'], *t['filename']} & used and \
                not re.search(r'\b%s\b' % re.escape(path), text):
            yield '%s: nothing runs %s' % (where, t['name'])


def threads(tests):
    """Names of tests/threads that are no tests of the gate."""
    gate = {t['name'] for t in tests if not any(s.endswith('whole') for s in t['suite'])}
    for name in bare('tests/threads').split():
        if name not in gate:
            yield 'tests/threads: the gate has no test "%s"' % name


def of_build(build):
    read = {os.path.realpath(f) for f in intro(build, 'buildsystem_files')}
    if os.path.realpath('meson.build') not in read:
        yield '%s is no build of this tree' % build
        return
    targets, tests = intro(build, 'targets'), intro(build, 'tests')
    missing = OPTIONAL - {t['name'] for t in targets}
    if missing:
        print('skipped: whether all tests are built: %s not' %
              ', '.join(sorted(missing)))
        return
    yield from unread(read, os.path.getmtime(os.path.join(build, 'build.ninja')))
    yield from unbuilt(targets)
    yield from threads(tests)
    yield from unrun(targets, tests + intro(build, 'benchmarks'))


def sizes():
    """A struct that grows would refuse programs built with its first version."""
    # The least size has a name, which ends in the version that it is of ...
    call = re.compile(r'(?<!int )kedge__(?:opts_copy\([^,]*,[^,]*|info_copy\([^,]*),'
                      r'(?!\s*[A-Z_]+_V\d+\b)[^,]*|'
                      r'->size < (?![A-Z_]+_V\d+\b)\w+|'
                      # ... and is not what the struct is today.
                      r'#\s*define \w+_V\d+\s[^\n]*\bsizeof\b')
    for path in sorted(glob.glob('src/**/*.c', recursive=True)):
        with open(path, encoding='utf-8') as f:
            for m in call.finditer(f.read()):
                yield '%s: not the least size of a struct: %s' % (
                    path, ' '.join(m.group(0).split()))


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: check-tests.py SOURCE BUILD')
    build = os.path.abspath(sys.argv[2])
    os.chdir(sys.argv[1])
    bad = list(unit_tests()) + list(folders()) + list(fuzz_harnesses()) + \
        list(of_build(build)) + list(sizes())
    print('\n'.join(bad))
    sys.exit(bool(bad))


if __name__ == '__main__':
    main()
