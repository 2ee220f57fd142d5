# SPDX-License-Identifier: BSD-2-Clause
"""The registration cache: memory of all kinds of objects, and what becomes of it."""
import array
import ctypes
import errno
import mmap
import os

import kedge
import pytest
from conftest import PAGE

np = pytest.importorskip('numpy')


def private_mmap(pages=16):
    return mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


KINDS = {
    'bytearray': lambda: bytearray(64 * PAGE),
    'memoryview': lambda: memoryview(bytearray(64 * PAGE))[PAGE:3 * PAGE],
    'array': lambda: array.array('d', bytes(64 * PAGE)),
    'numpy': lambda: np.zeros((64, PAGE // 8)),
    'numpy by columns': lambda: np.zeros((64, PAGE // 8), order='F'),
    'ctypes': lambda: (ctypes.c_char * (64 * PAGE))(),
    'mmap': private_mmap,
}


@pytest.mark.parametrize('kind', KINDS)
def test_the_second_get_is_a_hit(cache, kind):
    obj = KINDS[kind]()
    with cache.get(obj) as first:
        handle = first.handle
        assert first.len == memoryview(obj).nbytes
        assert first.addr == np.frombuffer(obj, np.uint8).ctypes.data \
            if kind != 'numpy by columns' else obj.ctypes.data
        assert first.access & kedge.ACCESS_LOCAL_WRITE
    with cache.get(obj) as second:
        assert second.handle == handle
    assert cache.stats()['hits'] == 1
    assert cache.stats()['registrations'] == 1


def test_what_is_read_only_is_registered_for_reading(cache):
    data = bytes(64 * PAGE)
    with cache.get(data) as r:
        assert r.access == kedge.ACCESS_LOCAL_READ
    for access in kedge.ACCESS_LOCAL_WRITE, kedge.ACCESS_REMOTE_WRITE:
        with pytest.raises(BufferError):
            cache.get(data, access)
    frozen = np.zeros(PAGE)
    frozen.flags.writeable = False
    with pytest.raises(BufferError):
        cache.get(frozen, access=kedge.ACCESS_LOCAL_WRITE)


def test_an_address_and_a_length(cache, memory):
    with cache.get((memory.addr + 8, 100)) as r:
        assert (r.addr, r.len, r.offset) == (memory.addr + 8, 100, memory.addr + 8)
        # The first registration served the second.
        with cache.get((memory.addr + 16, 8)) as part:
            assert part.handle == r.handle
            assert part.offset == memory.addr + 16


def test_new_pages_at_an_old_address_are_registered_anew(cache, memory):
    with cache.get(memory.range) as r:
        old = r.handle
    for _ in range(3):
        memory.renew()
        with cache.get(memory.range) as r:
            assert r.handle != old
            old = r.handle
    assert cache.stats()['invalidations'] == 3


def test_a_freed_mmap_is_not_served(cache):
    first = private_mmap()
    with cache.get(first) as r:
        old = r.handle
    addr = np.frombuffer(first, np.uint8).ctypes.data
    first.close()
    second = private_mmap()         # at the same address, most of the time
    with cache.get(second) as r:
        assert r.handle != old or r.addr != addr


def test_data_land_on_the_pages_that_are_seen(memory):
    """The same by the data that a device writes."""
    try:
        ring = kedge.Uring()
    except kedge.Error as e:
        pytest.skip('no io_uring: %s' % e)
    fd = os.open('/proc/self/exe', os.O_RDONLY)
    with kedge.Cache(ring) as cache:
        for _ in range(4):
            with cache.get(memory.range) as r:
                assert ring.read(fd, r) == memory.len
            assert memory.bytes(4) == b'\x7fELF'
            memory.renew()
            assert memory.bytes(4) == bytes(4)
        assert cache.stats()['registrations'] >= 4
    os.close(fd)


def test_the_export_is_held_as_long(cache):
    buf = bytearray(64 * PAGE)
    r = cache.get(buf)
    with pytest.raises(BufferError):
        buf.extend(b'x')
    r.release()
    r.release()
    buf.extend(b'x')
    assert not r.held
    for name in 'handle', 'index', 'lkey', 'rkey', 'offset', 'addr', 'len', 'access':
        with pytest.raises(ValueError):
            getattr(r, name)
    with pytest.raises(ValueError):
        r.__enter__()


def test_dropping_a_registration_releases_it(cache):
    buf = bytearray(64 * PAGE)
    r = cache.get(buf)
    assert r.held
    with pytest.raises(kedge.Error) as e:
        cache.close()
    assert e.value.errno == errno.EBUSY
    del r
    buf.clear()
    cache.close()
    assert cache.closed
    for call in cache.stats, cache.flush, lambda: cache.get(buf), lambda: cache.hint(buf):
        with pytest.raises(ValueError):
            call()


def test_an_exception_within_releases(cache):
    buf = bytearray(64 * PAGE)
    with pytest.raises(ZeroDivisionError):
        with cache.get(buf):
            1 / 0
    buf.clear()


def test_flush_and_hint_and_resync(cache, memory):
    assert cache.hint(memory.range) == memory.len
    assert cache.stats()['bytes'] >= memory.len
    with cache.get(memory.range):
        pass
    assert cache.flush() >= 1
    assert cache.stats()['regions'] == 0
    assert cache.resync() == 0


def test_shared_memory_on_the_programs_word(cache):
    shared = mmap.mmap(-1, 16 * PAGE)
    for hits in 0, 0:
        with cache.get(shared):
            assert cache.stats()['hits'] == hits
    cache.vouch(shared)
    for hits in 0, 1, 2:
        with cache.get(shared):
            assert cache.stats()['hits'] == hits
    assert cache.stats()['vouched'] == 1
    cache.unvouch(shared)
    with cache.get(shared):
        assert cache.stats()['hits'] == 2
    with pytest.raises(FileNotFoundError):
        cache.unvouch(shared)
    shared.close()


def test_a_range_in_pieces(notifier, memory):
    with kedge.Cache(notifier=notifier, chunk_bytes=4 * PAGE) as cache:
        pieces = cache.getv(memory.range)
        assert len(pieces) >= 4
        assert pieces[0].addr == memory.addr
        assert sum(p.len for p in pieces) == memory.len
        assert len({p.handle for p in pieces}) == len(pieces)
        with pytest.raises(kedge.Error):
            cache.close()
        for p in pieces:
            p.release()
        many = bytearray(1024 * PAGE)   # more pieces than a first try has room for
        pieces = cache.getv(many)
        assert sum(p.len for p in pieces) == len(many)
        with pytest.raises(BufferError):
            many.clear()
        del pieces, p
        many.clear()


def test_limits_evict(notifier):
    with kedge.Cache(notifier=notifier, max_bytes=64 * PAGE) as cache:
        bufs = [bytearray(32 * PAGE) for _ in range(8)]
        for b in bufs:
            with cache.get(b):
                pass
        assert cache.stats()['bytes'] <= 64 * PAGE
        assert cache.stats()['evictions'] > 0


def test_errors_are_in_words(cache, memory):
    with pytest.raises(kedge.Error) as e:
        cache.get(bytearray())
    assert isinstance(e.value, OSError)
    assert e.value.errno == errno.EINVAL
    assert len(e.value.strerror) > 10
    with pytest.raises(kedge.Error) as e:
        cache.get(memory.range, 1 << 31)
    assert e.value.errno == errno.EINVAL
    with pytest.raises(kedge.Error) as e:
        cache.get((0, PAGE))
    assert e.value.errno == errno.EFAULT
    with pytest.raises(kedge.Error) as e:
        kedge.Cache(max_regions=1 << 30)
    assert e.value.errno == errno.E2BIG


def test_wrong_arguments(cache):
    buf = bytearray(PAGE)
    for args in (), (buf, 0, 0), (object(),), ((1, 2, 3),), ((1, 'x'),), (buf, 'x'):
        with pytest.raises(TypeError):
            cache.get(*args)
    for args in ((-1, 2),), ((1 << 70, 2),), (buf, -1):
        with pytest.raises(OverflowError):
            cache.get(*args)
    with pytest.raises(TypeError):
        cache.get(buf, rights=0)
    with pytest.raises((BufferError, ValueError)):
        cache.get(np.zeros(64)[::2])
    with pytest.raises(ValueError):
        kedge.Cache('tape')
    with pytest.raises(TypeError):
        kedge.Cache(notifier=1)
    assert cache.stats()['failures'] == 0


class Adapter:
    """A device that an application wrote."""

    def __init__(self):
        self.live = {}
        self.next = 0
        self.fail = None

    def reg(self, addr, length, access):
        if self.fail:
            raise self.fail
        self.next += 1
        self.live[self.next] = (addr, length)
        return self.next | (7 << 32), 0

    def dereg(self, handle):
        del self.live[handle & 0xffffffff]


def test_a_device_in_python(notifier, memory):
    dev = Adapter()
    with kedge.Cache(dev, notifier=notifier) as cache:
        with cache.get(memory.range) as r:
            assert dev.live[r.lkey] == memory.range
            assert (r.rkey, r.offset) == (7, 0)
        memory.renew()
        with cache.get(memory.range) as r:
            assert list(dev.live) == [r.lkey] == [2]
    assert not dev.live


def test_a_device_that_fails(cache, notifier, memory, capsys):
    dev = Adapter()
    with kedge.Cache(dev, notifier=notifier) as cache:
        dev.fail = OSError(errno.ENODEV, 'the cable is out')
        with pytest.raises(kedge.Error, match='the cable is out') as e:
            cache.get(memory.range)
        assert e.value.errno == errno.ENODEV
        dev.fail = MemoryError()
        with pytest.raises(kedge.Error) as e:
            cache.get(memory.range)
        assert e.value.errno == errno.ENOMEM
        dev.fail = None
        with cache.get(memory.range):
            pass
        assert cache.stats()['failures'] == 2
    with pytest.raises(AttributeError):
        kedge.Cache(object())
    with pytest.raises(ValueError):
        kedge.Cache(dev, resync=True)


def test_a_device_with_a_bug(notifier, memory):
    dev = Adapter()
    dev.reg = lambda addr, length, access: 'no handle'
    with kedge.Cache(dev, notifier=notifier) as cache:
        with pytest.raises(kedge.Error) as e:
            cache.get(memory.range)
        assert e.value.errno == errno.EIO
        assert isinstance(e.value.__cause__, TypeError)


def test_remote_access_ends_with_its_put(notifier, memory):
    dev = Adapter()
    with kedge.Cache(dev, notifier=notifier) as cache:
        with cache.get(memory.range, kedge.ACCESS_REMOTE_READ) as r:
            lkey = r.lkey
            assert lkey in dev.live
        assert lkey not in dev.live
