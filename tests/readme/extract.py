#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Take the program out of README.md, where it has one screen, or out of a man page.

  extract.py README.md|PAGE.in OUT
"""
import sys

WHAT = 'the program that tests/readme compiles and runs'
LIMIT = 70


def from_readme(text):
    after = text.partition('<!-- %s -->\n```c\n' % WHAT)[2]
    code, end, _ = after.partition('```\n')
    if not end:
        sys.exit('no ```c fence right after "%s"' % WHAT)
    lines = code.count('\n')
    if lines > LIMIT:
        sys.exit('the program has %d lines, a screen %d' % (lines, LIMIT))
    return code


def from_page(text):
    """Between .Bd and .Ed, without what roff wants escaped."""
    after = text.partition('.\\" %s\n.Bd -literal\n' % WHAT)[2]
    code, end, _ = after.partition('.Ed\n')
    if not end:
        sys.exit('no .Bd -literal right after "%s"' % WHAT)
    return code.replace('\\-', '-').replace('\\e', '\\')


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: extract.py README.md|PAGE.in OUT')
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read()
    page = sys.argv[1].endswith('.in')
    with open(sys.argv[2], 'w', encoding='utf-8') as f:
        f.write((from_page if page else from_readme)(text))
    return 0


if __name__ == '__main__':
    sys.exit(main())
