# SPDX-License-Identifier: BSD-2-Clause
"""Archives in the "newc" form of cpio, which the kernel takes as initramfs.
Written here because device nodes in one then need no root."""
import os
import stat


class Archive:
    def __init__(self):
        self.parts, self.ino, self.folders = [], 0, set()

    def entry(self, name, mode, data=b'', rdev=(0, 0)):
        self.ino += 1
        fields = (self.ino, mode, 0, 0, 1, 0, len(data), 0, 0, rdev[0],
                  rdev[1], len(name) + 1, 0)
        head = b'070701' + b''.join(b'%08X' % f for f in fields)
        self.pad(head + name.encode() + b'\0')
        self.pad(data)

    def pad(self, data):
        self.parts.append(data + b'\0' * (-len(data) % 4))

    def parents(self, name):
        above = os.path.dirname(name)
        if above and above not in self.folders:
            self.parents(above)
            self.folders.add(above)
            self.entry(above, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        self.parents(name)
        self.entry(name, stat.S_IFREG | mode, data)

    def copy(self, name, path):
        with open(path, 'rb') as f:
            self.file(name, f.read(), os.stat(path).st_mode & 0o777)

    def console(self):
        self.parents('dev/console')
        self.entry('dev/console', stat.S_IFCHR | 0o600, rdev=(5, 1))

    def bytes(self):
        self.entry('TRAILER!!!', 0)
        return b''.join(self.parts)
