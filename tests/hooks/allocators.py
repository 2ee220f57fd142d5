#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How often memory that an allocator hands out again is a hit, for each allocator that is there.

  allocators.py [--table] RATE HOOKS

RATE is built from rate.c, HOOKS is libkedge-hooks. A case is an allocator, a size, and a way: malloc,
calloc, realloc, aligned_alloc and operator new, on one thread and on four. It fails where less than
95 % hit with the hooks and more without. Where it is less in both, the allocator gives the pages
back at each free(). --table: print what docs/coverage.md has.
"""
import os
import subprocess
import sys

SIZES = {'64 KiB': 65536, '1 MiB': 1 << 20, '16 MiB': 16 << 20}
WAYS = {'malloc': 'malloc', 'calloc': 'calloc', 'realloc': 'realloc', 'aligned': 'aligned_alloc',
        'new': 'operator new'}
ALLOCATORS = {'glibc': None, 'jemalloc': 'libjemalloc.so.2', 'mimalloc': 'libmimalloc.so.2',
              'tcmalloc': 'libtcmalloc_minimal.so.4'}
ENOUGH = 95.0


def there(lib):
    """The loader says on standard error what it cannot preload, and goes on."""
    run = subprocess.run(['/bin/true'], env=dict(os.environ, LD_PRELOAD=lib or ''), text=True,
                         stderr=subprocess.PIPE, check=False)
    return not run.stderr


def rate(program, preload, way, size, threads):
    env = dict(os.environ, LD_PRELOAD=' '.join(p for p in preload if p))
    run = subprocess.run([program, way, str(size), str(threads)], env=env, text=True,
                         stdout=subprocess.PIPE, check=False)
    if run.returncode == 77:
        return 100.0
    run.check_returncode()
    return float(run.stdout)


def worst(program, preload, way, size):
    return min(rate(program, preload, way, size, threads) for threads in (1, 4))


def case(program, hooks, lib, way, size):
    """(it is good, the percentage with the hooks)"""
    percent = worst(program, (hooks, lib), way, size)
    return percent >= ENOUGH or worst(program, (None, lib), way, size) < ENOUGH, percent


def table(cells):
    """Ways of an allocator with the same cells share a row."""
    print('| allocator | %s |\n|%s' % (' | '.join(SIZES), ' --- |' * (len(SIZES) + 1)))
    for name in ALLOCATORS:
        rows = {}
        for way in WAYS:
            row = tuple('hits' if cells[name, way, title] >= ENOUGH else 'gives the pages back'
                        for title in SIZES if (name, way, title) in cells)
            rows.setdefault(row, []).append(way)
        for row, ways in rows.items():
            print('| %s: %s | %s |' % (name, ', '.join(WAYS[w] for w in ways), ' | '.join(row)))


def main():
    program, hooks = [a for a in sys.argv[1:] if a != '--table']
    cells, tests, failed = {}, 0, 0
    print('TAP version 13')
    for name, lib in ALLOCATORS.items():
        skip = None if there(lib) else ' # SKIP %s is not installed' % lib
        for way in WAYS:
            for title, size in SIZES.items():
                tests += 1
                what = '%d - %s, %s of %s' % (tests, name, way, title)
                if skip:
                    print('ok ' + what + skip)
                    continue
                good, percent = case(program, hooks, lib, way, size)
                cells[name, way, title] = percent
                failed += not good
                print('%s %s: %.1f %%' % ('ok' if good else 'not ok', what, percent))
    print('1..%d' % tests)
    if '--table' in sys.argv:
        table(cells)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
