#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The cost of a get and its put in Python, beside ways to do without a cache.

    PYTHONPATH=build/bindings/python LD_PRELOAD=build/src/hooks/libkedge-hooks.so.0 \\
        bindings/python/bench.py [--rounds N]

Each round measures every row once, in turns, so that whatever disturbs the machine
meets them all. Printed are the median of each row, and the median of each round's ratio
to the first row, which is an empty "with" of Python's own."""
import argparse
import array
import contextlib
import ctypes
import mmap
import statistics
import sys
import time

sys.path.pop(0)     # this folder: the package's sources, without what is built of them
import kedge  # noqa: E402

PASSES = 20000


class Empty:
    """A context manager that does nothing, as cheap as Python has them."""
    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


class OpsFailed(Exception):
    pass


def by_ctypes(cache_len=1 << 20):
    """get and put of the C library by ctypes, on a cache that this opens."""
    lib = ctypes.CDLL('libkedge.so.0')
    reg_fn = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64))
    dereg_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    class Ops(ctypes.Structure):
        _fields_ = [('size', ctypes.c_uint32), ('reserved', ctypes.c_uint32),
                    ('name', ctypes.c_char_p), ('reg', reg_fn), ('dereg', dereg_fn),
                    ('query', ctypes.c_void_p), ('close', ctypes.c_void_p)]

    ops = Ops(ctypes.sizeof(Ops), 0, b'null', reg_fn(lambda *a: 0), dereg_fn(lambda *a: None))
    dev, cache, mr = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    if lib.kedge_device_open(ctypes.byref(ops), None, ctypes.byref(dev)) or \
            lib.kedge_cache_open(dev, None, None, ctypes.byref(cache)):
        raise OpsFailed
    get, put, out = lib.kedge_cache_get, lib.kedge_cache_put, ctypes.byref(mr)
    get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32,
                    ctypes.c_void_p]
    put.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    buf = ctypes.create_string_buffer(cache_len)
    addr = ctypes.addressof(buf)

    def run(passes):
        for _ in range(passes):
            get(cache, addr, cache_len, 1, out)
            put(cache, mr)
    run.keep = ops, buf
    return run


def empty(passes):
    nothing = Empty()
    for _ in range(passes):
        with nothing:
            pass


def export(obj):
    def run(passes):
        for _ in range(passes):
            with memoryview(obj):
                pass
    return run


def get(cache, obj):
    def run(passes):
        for _ in range(passes):
            with cache.get(obj):
                pass
    return run


def get_release(cache, obj):
    def run(passes):
        for _ in range(passes):
            cache.get(obj).release()
    return run


def rows(cache):
    size = 1 << 20
    buf = bytearray(size)
    yield 'with: pass', empty
    yield 'with memoryview(bytearray)', export(buf)
    yield 'with get(bytearray)', get(cache, buf)
    yield 'get(bytearray).release()', get_release(cache, buf)
    yield 'with get(array)', get(cache, array.array('d', bytes(size)))
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    yield 'with get(mmap)', get(cache, private)
    with contextlib.suppress(ImportError):
        import numpy
        yield 'with get(numpy)', get(cache, numpy.zeros(size))
    with contextlib.suppress(OSError, OpsFailed):
        yield 'C get and put, by ctypes', by_ctypes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=50)
    rounds = parser.parse_args().rounds
    with kedge.Notifier() as notifier, kedge.Cache(notifier=notifier) as cache:
        info = notifier.info()
        table = list(rows(cache))
        times = [[] for _ in table]
        for _ in range(rounds):
            for (_, run), samples in zip(table, times):
                run(100)        # a miss, and what Python adapts to
                start = time.perf_counter()
                run(PASSES)
                samples.append((time.perf_counter() - start) / PASSES * 1e9)
        print('notifier %s, %s hooks, %d rounds of %d' % (
            info['backend'], 'with' if info['hooked'] else 'without', rounds, PASSES))
        for (name, _), samples in zip(table, times):
            ratio = statistics.median(s / e for s, e in zip(samples, times[0]))
            print('%-28s %6.0f ns  %5.2f' % (name, statistics.median(samples), ratio))
        del table
        stats = cache.stats()
        print('%(hits)d hits, %(misses)d misses, %(uncached)d uncached' % stats)


if __name__ == '__main__':
    main()
