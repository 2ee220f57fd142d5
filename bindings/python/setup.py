# SPDX-License-Identifier: BSD-2-Clause
"""The two extension modules, of what pkg-config says of the libkedge that is installed.
Without the hooks: a library that an interpreter opens late is not where its calls go."""
import glob
import subprocess

from setuptools import Extension, setup


def pkg_config(*args):
    out = subprocess.run(['pkg-config', *args], check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout.split()


def extension(name, sources, *packages, libraries=()):
    """Names of libraries are given here: kedge-uring's .pc would bring the hooks along."""
    return Extension('kedge.' + name, sources,
                     extra_compile_args=['-std=gnu11', '-D_GNU_SOURCE', '-fvisibility=hidden',
                                         *pkg_config('--cflags', *packages)],
                     extra_link_args=[*pkg_config('--libs-only-L', *packages),
                                      *('-l' + lib for lib in libraries)])


core = sorted(set(glob.glob('src/*.c')) - {'src/uring.c'})
setup(version=pkg_config('--modversion', 'kedge-nohooks')[0],
      ext_modules=[extension('_kedge', core, 'kedge-nohooks', libraries=['kedge']),
                   extension('_uring', ['src/uring.c'], 'kedge-uring',
                             libraries=['kedge-uring', 'kedge', 'uring'])])
