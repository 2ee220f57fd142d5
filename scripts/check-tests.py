#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests are where their sources are, and no folder of tests is left out silently.

  check-tests.py SOURCE
"""
import glob
import os
import re
import sys

# Folders of tests that tests/meson.build does not enter, and what uses them.
OTHERS = {'fakes': 'tests/unit', 'mutants': 'by hand: tests/mutants/run.py'}


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


def folders():
    with open('tests/meson.build', encoding='utf-8') as f:
        text = f.read()
    if 'exists' in text:
        yield 'tests/meson.build: a suite may be skipped silently'
    for d in sorted(os.listdir('tests')):
        if not os.path.isdir(os.path.join('tests', d)) or d in OTHERS or \
                d.startswith('__'):
            continue
        if not os.path.exists(os.path.join('tests', d, 'meson.build')):
            yield 'tests/%s: no meson.build' % d
        elif "'%s'" % d not in text:
            yield "tests/%s: tests/meson.build doesn't enter it" % d


def sizes():
    """A struct that grows would refuse programs built with its first version."""
    call = re.compile(r'kedge__(?:opts_copy\([^,]*,[^,]*|info_copy\([^,]*),'
                      r'\s*sizeof')
    for path in sorted(glob.glob('src/**/*.c', recursive=True)):
        with open(path, encoding='utf-8') as f:
            for m in call.finditer(f.read()):
                yield '%s: sizeof as the least size of a struct: %s' % (
                    path, m.group(0))


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: check-tests.py SOURCE')
    os.chdir(sys.argv[1])
    bad = list(unit_tests()) + list(folders()) + list(sizes())
    print('\n'.join(bad))
    sys.exit(bool(bad))


if __name__ == '__main__':
    main()
