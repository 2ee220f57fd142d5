#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write a C program as a string of C, with the headers of this tree that it includes in their place.

  embed.py ROOT NAME FILE OUT"""
import os
import re
import sys

INCLUDE = re.compile(r'#include "([^"]+)"\n')


def whole(root, path, seen):
    with open(os.path.join(root, path), encoding='ascii') as f:
        text = f.read()

    def place(match):
        name = match.group(1)
        if name in seen:
            return ''
        seen.add(name)
        return whole(root, name, seen)
    return INCLUDE.sub(place, text)


def main():
    root, name, path, out = sys.argv[1:]
    text = whole(root, path, set())
    with open(out, 'w', encoding='ascii') as f:
        f.write('/* Made by embed.py of %s. */\nconst char %s[] =\n' % (path, name))
        for line in text.splitlines():
            f.write('"%s\\n"\n' % line.replace('\\', '\\\\').replace('"', '\\"'))
        f.write(';\n')


main()
