#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each part uses only the parts that docs/design.md lets it use, and no files of
a part use each other in a circle.

  check-layers.py SOURCE [BUILD]
  check-layers.py --picture SOURCE    print the table as a picture

The table of parts in docs/design.md is the rule, so it cannot say anything else.
Includes are read from the sources; with BUILD also the symbols of what was
compiled there, so that a prototype written by hand does not get around it: within
a library, and from one to the names that another has for kedge's own."""
import collections
import functools
import glob
import json
import os
import re
import subprocess
import sys

ROOM_MAX = 20  # files of a folder of src, its sub-folders apart


def block(root, name):
    """The text of a fenced block of design.md."""
    with open(os.path.join(root, 'docs/design.md'), encoding='utf-8') as f:
        found = re.search(r'^```%s\n(.*?)^```' % name, f.read(), re.M | re.S)
    if not found:
        sys.exit('docs/design.md: no block "%s"' % name)
    return found.group(1)


def layers(root):
    """{part: [parts it may use]}"""
    table = {}
    for line in block(root, 'layers').splitlines():
        part, _, uses = line.partition(' ')
        table[part] = uses.split()
    return table


def height(part, table):
    """How many parts stand below it, one on another."""
    below = [p for p in table if p != part and any(
        p == u or u.endswith('/') and p.startswith(u) for u in table[part])]
    return 1 + max((height(p, table) for p in below), default=-1)


def picture(table):
    """The parts, each above all that it uses."""
    rows = collections.defaultdict(list)
    for part in table:
        rows[height(part, table)].append(part)
    return ''.join('%d | %s\n' % (h, '  '.join(rows[h]))
                   for h in sorted(rows, reverse=True))


def part_of(path, table):
    """The longest that @path is in, or None."""
    found = [p for p in table if path.startswith(p + '/')]
    return max(found, key=len, default=None)


def sources(root):
    for top in 'src', 'tools':
        for base, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(('.c', '.h')):
                    yield os.path.relpath(os.path.join(base, name), root)


INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def target(root, path, line):
    """The path in the tree of what a line of @path includes, or None."""
    m = INCLUDE.match(line)
    if not m:
        return None
    name = m.group(1) or m.group(2)
    tops = ['src', '.', 'include', 'include/uapi']
    if m.group(1):
        tops.insert(0, os.path.dirname(path))
    for top in tops:
        to = os.path.normpath(os.path.join(top, name))
        if os.path.isfile(os.path.join(root, to)):
            return to
    return None


@functools.lru_cache(maxsize=None)
def includes(root):
    """[(path, number of the line, path that is included there)]"""
    found = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            for no, line in enumerate(f, 1):
                to = target(root, path, line)
                if to:
                    found.append((path, no, to))
    return found


def may_use(table, mine, theirs):
    return theirs == mine or theirs.startswith('include') or any(
        theirs == p or p.endswith('/') and theirs.startswith(p)
        for p in table[mine])


def bad_includes(root, table):
    for path in sources(root):
        if not part_of(path, table) and os.path.dirname(path) != 'tools':
            yield '%s: its folder is no part in docs/design.md' % path
    for path, no, to in includes(root):
        mine = part_of(path, table)
        theirs = part_of(to, table) or os.path.dirname(to)
        if mine and to != 'tools/cmd.h' and not may_use(table, mine, theirs):
            yield '%s:%d: %s may not use %s' % (path, no, mine, to)


def bad_circles(what, uses):
    for ring in circles(uses):
        yield '%s of %d files: %s' % (what, len(ring), ' '.join(ring))


def include_circles(root):
    uses = collections.defaultdict(set)
    for path, _, to in includes(root):
        uses[path].add(to)
    return bad_circles('circle of includes', uses)


def crowded(root):
    for base, _, names in os.walk(os.path.join(root, 'src')):
        if len(names) > ROOM_MAX:
            yield '%s: %d files, limit %d: make rooms of it' % (
                os.path.relpath(base, root), len(names), ROOM_MAX)


def compiled(root, build):
    """(library, source, object) of shared libraries and the command."""
    with open(os.path.join(build, 'compile_commands.json'),
              encoding='utf-8') as f:
        for c in json.load(f):
            obj = os.path.join(build, c['output'])
            src = os.path.relpath(
                os.path.realpath(os.path.join(c['directory'], c['file'])),
                os.path.realpath(root))
            lib = os.path.dirname(obj)
            if src.startswith(('src/', 'tools/')) and \
                    re.search(r'(lib[\w-]+\.so[.\d]*|kedge)\.p$', lib):
                yield lib, src, obj


def vain(root, build):
    """What makes looking at the objects vain."""
    found = list(compiled(root, build))
    if not found:
        yield '%s: no object of this tree: is it the build of another?' % build
    for _, src, obj in found:
        if not os.path.exists(obj):
            yield '%s: not compiled: no %s' % (src, obj)


def symbols(root, build):
    """({name: {library: source}}, {(library, source): names that it wants})."""
    defined = collections.defaultdict(dict)
    wanted = collections.defaultdict(set)
    found = {obj: (lib, src) for lib, src, obj in compiled(root, build)}
    # One nm of them all: a process for each takes longer than all else here.
    out = subprocess.run(['nm', '-A', *found], check=True, capture_output=True,
                         text=True).stdout
    for line in out.splitlines():
        obj, _, line = line.rpartition(':')
        *_, kind, name = line.split()
        lib, src = found[obj]
        if kind in 'TDBRCWVi':
            defined[name][lib] = src
        elif kind in 'Uwv':
            wanted[lib, src].add(name)
    return defined, wanted


def symbol_uses(root, build):
    """{source: {source: {its names that are used}}}."""
    defined, wanted = symbols(root, build)
    uses = collections.defaultdict(lambda: collections.defaultdict(set))
    for (lib, src), names in wanted.items():
        for name in names:
            there = defined.get(name, {})
            # Of another library, the C library's names are that to all.
            to = there.get(lib) or 'kedge' in name and next(
                iter(there.values()), None)
            if to and to != src:
                uses[src][to].add(name)
    return uses


def circles(uses):
    """The strongly connected components of more than one file (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in uses.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            ring = []
            while not ring or ring[-1] != v:
                ring.append(stack.pop())
            if len(ring) > 1:
                out.append(sorted(ring))

    sys.setrecursionlimit(10000)
    for v in list(uses):
        if v not in index:
            visit(v)
    return out


def bad_symbols(root, table, uses):
    public = public_names(root)
    for src in sorted(uses):
        mine = part_of(src, table)
        for to in sorted(uses[src]):
            theirs = part_of(to, table)
            names = uses[src][to] - public
            if mine and theirs and names and not may_use(table, mine, theirs):
                yield '%s: %s may not call %s: %s' % (
                    src, mine, to, ' '.join(sorted(names)))


def public_names(root):
    """The calls of the public headers, which every part may use."""
    names = set()
    for path in glob.glob(os.path.join(root, 'include/kedge/*.h')):
        with open(path, encoding='utf-8') as f:
            names |= set(re.findall(r'\b(kedge_\w+)\(', f.read()))
    return names


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit('usage: check-layers.py [--picture] SOURCE [BUILD]')
    if sys.argv[1] == '--picture':
        print(picture(layers(sys.argv[2])), end='')
        return
    root = sys.argv[1]
    table = layers(root)
    bad = [] if block(root, 'picture') == picture(table) else [
        'docs/design.md: the block "picture" is not what --picture prints']
    bad += [*bad_includes(root, table), *crowded(root), *include_circles(root)]
    if len(sys.argv) == 3:
        nothing = list(vain(root, sys.argv[2]))
        bad += nothing
        if not nothing:
            uses = symbol_uses(root, sys.argv[2])
            bad += bad_symbols(root, table, uses)
            bad += bad_circles('circle', uses)
    print('\n'.join(bad))
    sys.exit(bool(bad))


if __name__ == '__main__':
    main()
