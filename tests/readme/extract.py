#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Take the program out of README.md, which promises at most 30 lines of it.

  extract.py README OUT
"""
import sys

MARK = '<!-- the program that tests/readme compiles and runs -->'
LIMIT = 30


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: extract.py README OUT')
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read()
    after = text.partition(MARK + '\n```c\n')[2]
    code, end, _ = after.partition('```\n')
    if not end:
        sys.exit('%s: no ```c fence right after "%s"' % (sys.argv[1], MARK))
    lines = code.count('\n')
    if lines > LIMIT:
        sys.exit('%s: the program has %d lines, %d are promised'
                 % (sys.argv[1], lines, LIMIT))
    with open(sys.argv[2], 'w', encoding='utf-8') as f:
        f.write(code)
    return 0


if __name__ == '__main__':
    sys.exit(main())
