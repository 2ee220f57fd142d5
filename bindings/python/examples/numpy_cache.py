#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Arrays of numpy, and a device that reads files into them: io_uring.

Cells as in a notebook; each prints what it shows. Run it with
    LD_PRELOAD=libkedge-hooks.so.0 python3 numpy_cache.py
"""
# %% A ring, the fixed buffers of which are registered memory, and a cache over it.
import os

import kedge
import numpy as np

ring = kedge.Uring()
cache = kedge.Cache(ring)
fd = os.open('/proc/self/exe', os.O_RDONLY)

# %% A registration is held within "with". The array cannot be resized meanwhile.
block = np.empty(1 << 16, np.uint8)
with cache.get(block) as registration:
    n = ring.read(fd, registration)
print("read %d bytes: %s" % (n, bytes(block[:4])))

# %% A second use of the same array finds the registration.
with cache.get(block):
    pass
print('hits:', cache.stats()['hits'])

# %% The case that caches get wrong: the array is freed, and numpy gives its address to
# another one, with other pages. Registrations of pages that went are not served.
wrong = 0
for _ in range(100):
    block = np.zeros(1 << 20, np.uint8)      # new pages, often at the old address
    with cache.get(block) as registration:
        ring.read(fd, registration)
    wrong += bytes(block[:4]) != b'\x7fELF'
    del block
stats = cache.stats()
print('100 arrays, %d wrong, %d registrations' % (wrong, stats['registrations']))

# %% A part of an array that is registered is a hit, too.
table = np.zeros((64, 1 << 14), np.uint8)
cache.hint(table)
before = cache.stats()['hits']
for row in table:
    with cache.get(row) as registration:
        ring.read(fd, registration)
print('rows that were hits:', cache.stats()['hits'] - before)

# %% Without the cache's being right the program would not notice. It ends like this.
cache.close()
os.close(fd)
assert wrong == 0
