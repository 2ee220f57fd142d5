#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The list of a test's cases, for its main(): each function of the form
"static void a_case(void **state)", in the order of the file.

  cases.py TEST.c OUT.h
"""
import re
import sys


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        names = re.findall(r'^static void (\w+)\(void \*\*state\)$', f.read(), re.M)
    with open(sys.argv[2], 'w', encoding='utf-8') as f:
        f.write('#ifndef LISTED\n#define LISTED CASE\n#endif\n')
        f.write('static const struct CMUnitTest cases[] = {\n')
        f.writelines('\tLISTED(%s),\n' % name for name in names)
        f.write('};\n')
    if not names:
        sys.exit('%s has no case' % sys.argv[1])


if __name__ == '__main__':
    main()
