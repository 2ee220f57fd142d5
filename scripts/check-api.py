#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compare what the headers declare, the version maps export, the built
libraries really export and the man pages describe.

  check-api.py SOURCE BUILD
"""
import glob
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers  # noqa: E402

# Made only where what they need is installed.
OPTIONAL = {'kedge-etcd', 'kedge-ofi', 'kedge-verbs'}


def map_symbols(path):
    """The names in the global: parts of a version map."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'/\*.*?\*/|#[^\n]*', '', f.read(), flags=re.S)
    names = set()
    for part in re.findall(r'global:(.*?)(?:local:|\})', text, re.S):
        names |= {n.strip() for n in part.split(';') if n.strip()}
    return names


def nm(args, path):
    out = subprocess.run(['nm', *args, '--defined-only', path], check=True,
                         capture_output=True, text=True).stdout
    return {line.split()[-1].split('@')[0] for line in out.splitlines()
            if len(line.split()) == 3 and line.split()[1] in 'TDBRVWi'}


def find_library(build, name, suffix):
    found = glob.glob('%s/**/lib%s.%s' % (build, name, suffix), recursive=True)
    return found[0] if found else None


def targets(build):
    """The names of what the build makes; a library may be left out."""
    with open(build + '/meson-info/intro-targets.json', encoding='utf-8') as f:
        return {t['name'] for t in json.load(f)}


def compare(what, have, other, want, complain):
    for n in sorted(have - want):
        complain('%s: %s, but not %s' % (n, what, other))
    for n in sorted(want - have):
        complain('%s: %s, but not %s' % (n, other, what))


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: check-api.py SOURCE BUILD')
    source, build = sys.argv[1:]
    wrong = []
    paths = sorted(glob.glob(source + '/include/kedge/*.h'))
    items = headers.parse(paths)
    calls = {i.name for i in items if i.kind == 'func'}
    pages = calls | {i.name for i in items if i.kind == 'inline'}

    exported = set()
    maps = glob.glob(source + '/src/**/*.map', recursive=True)
    if not maps:
        wrong.append('no version map under src/')
    for path in sorted(maps):
        name = os.path.basename(path)[:-len('.map')]
        listed = map_symbols(path)
        for n in sorted(listed):
            if '*' in n:
                wrong.append('%s: exports the pattern %s' % (path, n))
        so = find_library(build, name, 'so')
        if not so and name in OPTIONAL and name not in targets(build):
            exported |= listed
            continue
        if not so:
            wrong.append('%s: there is no lib%s.so' % (path, name))
            continue
        compare('exported by lib%s.so' % name, nm(['-D'], so),
                'in %s.map' % name, listed, wrong.append)
        exported |= listed
        archive = find_library(build, name, 'a')
        if archive:
            alien = {n for n in nm(['-g'], archive) - listed
                     if not n.startswith('kedge_')}
            if alien:
                wrong.append('lib%s.a: %d globals outside kedge_*, such as '
                             '%s; a static program could not define them'
                             % (name, len(alien), min(alien)))
    # libkedge-hooks exports libc's names, which are declared elsewhere; kedge__
    # is what kedge's own libraries use of each other.
    compare('declared in a header', calls, 'exported',
            {n for n in exported
             if n.startswith('kedge_') and not n.startswith('kedge__')},
            wrong.append)

    for n in sorted(pages):
        path = '%s/man/%s.3' % (build, n)
        if not os.path.exists(path):
            wrong.append('%s: no man page' % n)
        elif open(path, encoding='utf-8').read().startswith('.so'):
            wrong.append('%s: its man page is only an alias' % n)
    for path in glob.glob(build + '/man/*.3'):
        n = os.path.basename(path)[:-2]
        if n not in {i.name for i in items}:
            wrong.append('%s: man page of something no header declares' % n)

    for line in wrong:
        print(line)
    print('%d calls, %d maps, %d man pages: %s'
          % (len(calls), len(maps), len(pages),
             '%d differences' % len(wrong) if wrong else 'all agree'))
    return 1 if wrong else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except headers.DocError as e:
        sys.exit('check-api.py: %s' % e)
