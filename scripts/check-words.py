#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Comments name their subject.

  check-words.py SOURCE [--list]

Counts, in the comments of src and kernel, those that open with a headless What,
Whether, Who or Where ("What costs nothing ..."), those that speak of nobody, nothing or none, and
those that say who or he of a thread, a region or code. Each has a ceiling, in per
cent of all comments. --list prints them all."""
import glob
import os
import re
import sys

KINDS = (
    ('opens without a subject', 1.0,
     re.compile(r'^(What|Whatever|Whether|Who|Whoever|Whom|Where)\b')),
    ('nobody, nothing, none', 3.0,
     re.compile(r'\b(nobody|nothing|none|no one)\b', re.I)),
    ('who or he for code', 0.0,
     re.compile(r'\b(who|whom|whose|he|his|him)\b', re.I)),
)


def comments(path):
    """(line, text on one line) of each comment that has words."""
    with open(path, encoding='utf-8') as f:
        source = f.read()
    for m in re.finditer(r'/\*(.*?)\*/', source, re.S):
        text = re.sub(r'\s*\n\s*\*?\s*', ' ', m.group(1)).strip(' *-')
        if 'SPDX' not in text and re.search('[a-z]{3}', text):
            yield source.count('\n', 0, m.start()) + 1, text


def sources(root):
    for top in 'src', 'kernel':
        for path in sorted(glob.glob(os.path.join(root, top, '**'),
                                     recursive=True)):
            if path.endswith(('.c', '.h', '.S')):
                yield path


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ['--list']):
        sys.exit('usage: check-words.py SOURCE [--list]')
    total, found = 0, [[] for _ in KINDS]
    for path in sources(sys.argv[1]):
        for line, text in comments(path):
            total += 1
            for (_, _, pattern), places in zip(KINDS, found):
                if pattern.search(text):
                    places.append('%s:%d: %s' % (
                        os.path.relpath(path, sys.argv[1]), line, text[:80]))
    bad = False
    for (what, ceiling, _), places in zip(KINDS, found):
        share = 100.0 * len(places) / total
        over = share > ceiling
        print('%s: %d of %d comments, %.1f %% (at most %.0f %%)'
              % (what, len(places), total, share, ceiling))
        if over or sys.argv[2:]:
            print(''.join('  %s\n' % p for p in places), end='')
        bad |= over
    sys.exit(bad)


if __name__ == '__main__':
    main()
