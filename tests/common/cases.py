#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The list of a test's cases, for its main(), or for that of main.c where it has none: each
function of the form "static void a_case(void **state)", in the order of the file.

  cases.py TEST.c OUT.h
"""
import os
import re
import sys


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read()
    names = re.findall(r'^static void (\w+)\(void \*\*state\)$', text, re.M)
    alike = re.findall(r'^\w.*\bvoid (\w+)\(void \*\*\w+\)[^;]*$', text, re.M)
    for name in alike:
        if name not in names:
            sys.exit('%s: %s looks like a case and is not listed: write "static void %s(void '
                     '**state)" on a line of its own' % (sys.argv[1], name, name))
    with open(sys.argv[2], 'w', encoding='utf-8') as f:
        f.write('#ifndef LISTED\n#define LISTED CASE\n#endif\n')
        f.write('static const struct CMUnitTest cases[] = {\n')
        f.writelines('\tLISTED(%s),\n' % name for name in names)
        f.write('};\n')
        if '\nint main(' not in text:
            f.write('#ifndef NEEDED\n#define NEEDED NULL\n#endif\n')
            f.write('const struct main_cases main_cases = {\n')
            name = os.path.basename(sys.argv[1])[:-2]
            f.write('\tcases, ARRAY_SIZE(cases), "%s", NEEDED\n};\n' % name)
    if not names:
        sys.exit('%s has no case' % sys.argv[1])


if __name__ == '__main__':
    main()
