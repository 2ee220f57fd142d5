#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Print what the public headers compile into programs, one "NAME VALUE" a line.

  constants.py SOURCE

That is every enumerator and every macro that is a number, ioctls included; the
places and sizes of fields that inline functions read; and the kernel module's
structs. No debugging information of a library has all of these, so the ABI's
snapshot has them beside it.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

UAPI = 'linux/ummunot.h'
NO_NUMBERS = {'KEDGE_API'}
# A constant that sums up the others grows with them.
SUMS = ('_COUNT', '_ALL')
MACRO = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\S', re.M)
ENUM = re.compile(r'\benum\b[^;{}()]*\{([^}]*)\}')
STRUCT = re.compile(r'\bstruct\s+(\w+)\s*\{([^}]*)\}')
INLINE = re.compile(r'^static inline\b.*?^\}', re.M | re.S)


def text_of(path):
    """A header without comments, a line for each directive."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    return re.sub(r'/\*.*?\*/|//[^\n]*|\\\n', ' ', text, flags=re.S)


def numbers(text):
    """The names of macros and enumerators."""
    for m in MACRO.finditer(text):
        yield m.group(1)
    for body in ENUM.findall(text):
        for member in body.split(','):
            name = re.match(r'\s*(\w+)', member)
            if name:
                yield name.group(1)


def fields(body):
    for line in body.split(';'):
        for one in line.split(','):
            name = re.search(r'(\w+)\s*(?:\[[^]]*\]\s*)*$', one)
            if name:
                yield name.group(1)


def layouts(texts):
    """(struct, its fields, whether its size counts)."""
    known = {}
    for text in texts.values():
        known.update(STRUCT.findall(text))
    used = {name for text in texts.values() for code in INLINE.findall(text)
            for name in re.findall(r'\bstruct\s+(\w+)', code)}
    told = {name for name, _ in STRUCT.findall(texts[UAPI])}
    for name in sorted((used & set(known)) | told):
        yield name, list(fields(known[name])), name in told


def program(texts):
    """C that prints it all. What is no number does not compile."""
    lines = ['#include <stddef.h>', '#include <stdio.h>']
    lines += ['#include <%s>' % name for name in texts]
    lines += ['#define SHOW(what, value) do {',
              '\tenum { number = (value) % 2 };',
              '\tprintf("%s %lld\\n", what, (long long)(value));',
              '} while (0)']
    lines = [line + ' \\' if line.startswith(('#define', '\t')) else line
             for line in lines]
    lines += ['int main(void)', '{']
    names = {n for t in texts.values() for n in numbers(t)} - NO_NUMBERS
    for name in sorted(n for n in names if not n.endswith(SUMS)):
        lines.append('\tSHOW("%s", %s);' % (name, name))
    for name, members, size in layouts(texts):
        if size:
            lines.append('\tSHOW("%s", sizeof(struct %s));' % (name, name))
        for m in members:
            lines.append('\tSHOW("%s.%s", offsetof(struct %s, %s));' %
                         (name, m, name, m))
            lines.append('\tSHOW("%s.%s.size", sizeof(((struct %s *)0)->%s));' %
                         (name, m, name, m))
    return '\n'.join(lines + ['\treturn 0;', '}', ''])


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: constants.py SOURCE')
    include = os.path.join(sys.argv[1], 'include')
    headers = sorted(glob.glob(os.path.join(include, 'kedge/*.h')))
    texts = {os.path.relpath(h, include): text_of(h) for h in headers}
    texts[UAPI] = text_of(os.path.join(include, 'uapi', UAPI))
    with tempfile.TemporaryDirectory() as tmp:
        exe = os.path.join(tmp, 'show')
        # The kernel's headers first: the system may have its own of that name.
        made = subprocess.run(['cc', '-std=c11', '-D_DEFAULT_SOURCE', '-w',
                               '-I', os.path.join(include, 'uapi'),
                               '-I', include, '-x', 'c', '-o', exe, '-'],
                              text=True, input=program(texts), check=False)
        if made.returncode:
            sys.exit('constants.py: a macro that is no number, or a field that '
                     'is not found')
        sys.stdout.write(subprocess.run([exe], check=True, text=True,
                                        stdout=subprocess.PIPE).stdout)


if __name__ == '__main__':
    main()
