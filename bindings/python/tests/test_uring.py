# SPDX-License-Identifier: BSD-2-Clause
"""Transfers by an io_uring: what they hold, and what becomes of the ring."""
import asyncio
import ctypes
import errno
import gc
import os
import signal
import struct
import sys
import threading
import time

import kedge
import pytest
from conftest import PAGE, in_child, in_thread, libc


@pytest.fixture
def cache(ring):
    with kedge.Cache(ring) as c:
        yield c


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def until_it_transfers(ring, cache):
    """Until another thread's transfer is under way; a read into bytes begins none."""
    with cache.get(bytes(PAGE)) as r:
        while True:
            with pytest.raises((BufferError, kedge.Error)) as e:
                ring.read(-1, r)
            if e.type is not BufferError:
                assert e.value.errno == errno.EBUSY
                return
            time.sleep(0.001)


def until_it_waits(fd):
    """Until a thread waits in io_uring_enter(fd): the transfer is the kernel's."""
    while True:
        for task in os.listdir('/proc/self/task'):
            try:
                with open('/proc/self/task/%s/syscall' % task) as f:
                    call = f.read().split()
            except ProcessLookupError:
                continue
            except OSError as e:
                pytest.skip('nothing tells what a thread waits in: %s' % e)
            # The number is 426 on all machines; the last is how many it waits for.
            if call[0] == '426' and (int(call[1], 16), int(call[3], 16)) == (fd, 1):
                return
        time.sleep(0.001)


@pytest.mark.parametrize('how', ['release', '__exit__', 'both'])
def test_a_release_takes_effect_at_the_transfers_end(ring, cache, pipe, how):
    buf = bytearray(PAGE)
    r = cache.get(buf)
    done = in_thread(ring.read, pipe[0], r)
    until_it_transfers(ring, cache)
    if how != '__exit__':
        r.release()
    if how != 'release':
        r.__exit__(None, None, None)
    assert not r.held
    with pytest.raises(ValueError):
        r.handle
    with pytest.raises(ValueError):
        ring.write(pipe[1], r)
    # The kernel is going to write there.
    with pytest.raises(BufferError):
        buf.clear()
    cache.flush()
    with pytest.raises(kedge.Error) as e:
        cache.close()
    assert e.value.errno == errno.EBUSY
    os.write(pipe[1], b'Q' * PAGE)
    assert done() == PAGE
    assert buf == b'Q' * PAGE
    buf.clear()
    cache.close()


def test_a_task_that_gives_up_leaves_the_transfer_its_memory(ring, cache, pipe):
    buf = bytearray(PAGE)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            with cache.get(buf) as r:
                reading = asyncio.get_running_loop().run_in_executor(None, ring.read,
                                                                     pipe[0], r)
                until_it_transfers(ring, cache)
                await asyncio.wait_for(reading, 0.01)
        with pytest.raises(BufferError):
            buf.clear()
        os.write(pipe[1], b'Q' * PAGE)

    asyncio.run(main())         # waits for the executor's thread
    assert buf == b'Q' * PAGE
    buf.clear()


def test_a_transfer_keeps_no_references(ring, cache):
    fd = os.open('/dev/zero', os.O_RDWR)
    buf = bytearray(PAGE)
    with cache.get(buf) as r:
        before = sys.getrefcount(r), sys.getrefcount(ring)
        for _ in range(20):
            ring.read(fd, r)
            ring.write(fd, r)
        assert (sys.getrefcount(r), sys.getrefcount(ring)) == before
    buf.clear()
    os.close(fd)


class Stop(Exception):
    pass


def test_a_signal_ends_a_transfer(ring, cache, pipe):
    def stop(*args):
        raise Stop

    def kill():
        until_it_transfers(ring, cache)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    buf = bytearray(PAGE)
    try:
        with cache.get(buf) as r:
            killed = in_thread(kill)
            with pytest.raises(Stop):
                ring.read(pipe[0], r)
            killed()
        buf.clear()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')   # of os.fork() beside threads
def test_a_handler_that_forks_in_a_transfer(ring, cache, pipe):
    """The transfer's end is the parent's to see."""
    pids = []

    def kill():
        until_it_transfers(ring, cache)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        while not pids:
            time.sleep(0.001)
        status = os.waitpid(pids[0], 0)[1]
        os.write(pipe[1], b'x')
        return status

    before = signal.signal(signal.SIGUSR1, lambda *args: pids.append(os.fork()))
    buf = bytearray(PAGE)
    r = cache.get(buf)
    try:
        killed = in_thread(kill)
        try:
            got = ring.read(pipe[0], r)
        except kedge.Error as e:
            got = e.errno
        finally:
            if pids == [0]:
                r.release()
                buf.clear()     # in the child it is held by no transfer
                os._exit(0 if got == errno.ECHILD else 1)
        assert (killed(), got) == (0, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    r.release()
    buf.clear()


def test_a_child_does_not_touch_its_parents_ring(ring, cache):
    fd = os.open('/proc/self/exe', os.O_RDONLY)
    buf = bytearray(PAGE)
    with cache.get(buf) as r:
        def child():
            for call in (lambda: ring.read(fd, r), lambda: ring.write(fd, r), ring.fileno,
                         lambda: kedge.Cache(ring), ring.__kedge_device__):
                with pytest.raises(kedge.Error) as e:
                    call()
                assert e.value.errno == errno.ECHILD
                assert 'parent' in e.value.strerror

        assert in_child(child) == 0
        assert buf == bytes(PAGE)
        assert ring.read(fd, r) == PAGE
        assert buf[:4] == b'\x7fELF'
    os.close(fd)


def test_a_child_ends_what_a_thread_of_its_parents_transfers(ring, cache, pipe):
    buf = bytearray(PAGE)
    r = cache.get(buf)
    done = in_thread(ring.read, pipe[0], r)
    until_it_transfers(ring, cache)

    def child():
        r.release()
        buf.clear()
        cache.close()

    assert in_child(child) == 0
    os.write(pipe[1], b'x')
    assert done() == 1
    r.release()


@pytest.mark.parametrize('then', ['closed', 'another ring', 'another file'])
def test_a_ring_whose_descriptor_is_closed(pipe, then):
    """The transfer can't be waited for: it ends with an error, and keeps its memory."""
    try:
        ring, other = kedge.Uring(), kedge.Uring()
    except kedge.Error as e:
        pytest.skip('no io_uring: %s' % e)
    if os.path.sameopenfile(ring.fileno(), other.fileno()):
        pytest.skip('this kernel has one inode for all rings')
    cache = kedge.Cache(ring)
    buf = bytearray(PAGE)
    r = cache.get(buf)
    done = in_thread(ring.read, pipe[0], r)
    fd = ring.fileno()
    until_it_waits(fd)
    with pytest.warns(RuntimeWarning, match='4096 bytes of memory are lost'):
        if then == 'closed':
            os.close(fd)
        else:
            os.dup2(other.fileno() if then == 'another ring' else pipe[0], fd)
        with pytest.raises(kedge.Error) as e:
            done()
    assert e.value.errno == errno.EBADF
    assert 'another Uring' in e.value.strerror
    for call in (lambda: ring.read(pipe[0], r), ring.fileno, lambda: kedge.Cache(ring)):
        with pytest.raises(kedge.Error) as e:
            call()
        assert e.value.errno == errno.EBADF
    r.release()
    with pytest.raises(BufferError):
        buf.clear()
    os.write(pipe[1], b'late')
    del r, cache, ring
    gc.collect()
    with pytest.raises(BufferError):
        buf.clear()
    # The other ring was asked for nothing.
    with kedge.Cache(other) as c, c.get(bytearray(PAGE)) as r:
        zero = os.open('/dev/zero', os.O_RDONLY)
        assert other.read(zero, r) == PAGE
        os.close(zero)
    if then != 'closed':
        os.close(fd)


def ring_fds():
    links = {}
    for fd in os.listdir('/proc/self/fd'):
        try:
            links[int(fd)] = os.readlink('/proc/self/fd/' + fd)
        except FileNotFoundError:       # of the list itself
            pass
    return {fd for fd, link in links.items() if 'io_uring' in link}


def test_closing_leaves_others_descriptors_alone(pipe):
    """The program has closed what it did not open, and has files of its own there."""
    gc.collect()
    before = ring_fds()
    try:
        ring = kedge.Uring()
    except kedge.Error as e:
        pytest.skip('no io_uring: %s' % e)
    cache = kedge.Cache('uring')
    fds = ring_fds() - before
    assert len(fds) == 4        # each ring's, and its device's own
    for fd in fds:
        os.dup2(pipe[0], fd)
    cache.close()
    del ring, cache
    for fd in fds:
        assert os.path.sameopenfile(fd, pipe[0])
        os.close(fd)


def test_no_read_into_what_is_read_only(ring, cache):
    zero = os.open('/dev/zero', os.O_RDWR)
    frozen = bytes(b'immutable') * 1000
    with cache.get(frozen) as r:
        with pytest.raises(BufferError):
            ring.read(zero, r)
        assert ring.write(zero, r) == len(frozen)
    buf = bytearray(b'x' * PAGE)
    with cache.get(buf) as wide, cache.get(buf, kedge.ACCESS_LOCAL_READ) as r:
        with pytest.raises(kedge.Error) as e:
            ring.read(zero, r)
        assert e.value.errno == errno.EACCES
        assert isinstance(e.value, PermissionError)
        assert buf[0] == ord('x')
        assert ring.read(zero, wide) == PAGE
    os.close(zero)


REFUSES_ENTER = [(0x20, 0, 0, 0),               # the call's number
                 (0x15, 0, 1, 426),             # io_uring_enter(), on all machines:
                 (0x06, 0, 0, 0x50000 | errno.EAGAIN),
                 (0x06, 0, 0, 0x7fff0000)]      # all others go on


def refuse_enter():
    """From now on the kernel takes no entries from this thread (seccomp(2))."""
    class Program(ctypes.Structure):
        _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]

    code = b''.join(struct.pack('=HBBI', *step) for step in REFUSES_ENTER)
    code = ctypes.create_string_buffer(code, len(code))
    program = Program(len(REFUSES_ENTER), ctypes.addressof(code))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        pytest.skip('no seccomp here: %s' % os.strerror(ctypes.get_errno()))


def test_submissions_that_fail_leave_the_ring_as_it_was(cache, ring):
    """More than it has entries; and the kernel's word comes for each of them later."""
    fd = os.open('/dev/zero', os.O_RDWR)
    buf = bytearray(b'x' * PAGE)

    def fail(r):
        refuse_enter()
        for _ in range(30):
            with pytest.raises(kedge.Error) as e:
                ring.read(fd, r)
            assert e.value.errno == errno.EAGAIN

    for _ in range(3):
        with cache.get(buf) as r:
            in_thread(fail, r)()
            assert buf[0] == ord('x')
            for _ in range(10):
                assert ring.write(fd, r) == PAGE
        buf.append(0)       # it is held by no transfer
        buf.pop()
    os.close(fd)


def test_what_is_no_registration_of_this_ring(ring, cache):
    with kedge.Cache() as other, other.get(bytearray(PAGE)) as r:
        with pytest.raises(ValueError, match='another device'):
            ring.read(0, r)
    with kedge.Cache('uring') as other, other.get(bytearray(PAGE)) as r:
        with pytest.raises(ValueError, match='another device'):
            ring.read(0, r)
    with pytest.raises(TypeError):
        ring.read(0, object())
    r = cache.get(bytearray(PAGE))
    r.release()
    with pytest.raises(ValueError, match='released'):
        ring.read(0, r)


def test_numbers_of_a_ring(ring, cache):
    with cache.get(bytearray(PAGE)) as r:
        for args in ((0, r, -1), (0, r, 1 << 63), (1 << 40, r)):
            with pytest.raises(OverflowError):
                ring.read(*args)
    for args in (dict(slots=1 << 33), dict(entries=-1)):
        with pytest.raises(OverflowError):
            kedge.Uring(**args)
    with pytest.raises(kedge.Error, match='1 to 32768'):
        kedge.Uring(entries=1 << 20)


def test_numbers_of_numpy(ring, cache):
    np = pytest.importorskip('numpy')
    with cache.get(bytearray(PAGE)) as r:
        fd = os.open('/proc/self/exe', os.O_RDONLY)
        assert ring.read(np.int64(fd), r, np.uint64(PAGE)) == PAGE
        os.close(fd)


def test_memory_fails_within_a_devices_protocol(ring):
    testcapi = pytest.importorskip('_testcapi')
    kedge.Cache(ring).close()
    for start in range(12):
        testcapi.set_nomemory(start, start + 1)
        try:
            cache = kedge.Cache(ring)
        except MemoryError:
            cache = None
        finally:
            testcapi.remove_mem_hooks()
        del cache
