# SPDX-License-Identifier: BSD-2-Clause
"""Parts that the tests share: memory by the system's own calls, so that no allocator has a
part in it; and a line for each test by which scripts/test.py counts (TAP)."""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import subprocess
import sys
import threading
import time

import kedge
import pytest

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                      ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MAP_FIXED_NOREPLACE = 0x100000

# As pin_alone() of tests/tools/lib.sh: until the tests end.
if os.geteuid():
    fcntl.flock(os.open('/tmp', os.O_RDONLY), fcntl.LOCK_EX)
    time.sleep(0.1)
    MEMLOCK = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if MEMLOCK[0] == resource.RLIM_INFINITY or MEMLOCK[0] > 6 << 20:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (6 << 20, MEMLOCK[1]))


class Memory:
    """Private anonymous pages at an address."""

    def __init__(self, length=16 * PAGE):
        self.len = length
        self.addr = self._map(None, 0)
        ctypes.memset(self.addr, 1, length)

    def _map(self, at, flags):
        got = libc.mmap(at, self.len, mmap.PROT_READ | mmap.PROT_WRITE,
                        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags, -1, 0)
        assert got != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        return got

    @property
    def range(self):
        return self.addr, self.len

    def unmap(self):
        assert libc.munmap(self.addr, self.len) == 0

    def renew(self):
        """munmap(), and other pages at the same address."""
        self.unmap()
        assert self._map(self.addr, MAP_FIXED_NOREPLACE) == self.addr

    def bytes(self, cnt):
        return ctypes.string_at(self.addr, cnt)


@pytest.fixture
def memory():
    m = Memory()
    yield m
    m.unmap()


@pytest.fixture
def notifier():
    """One that sees changes, or there is nothing to test."""
    with kedge.Notifier() as n:
        if n.info()['level'] < kedge.LEVEL_ORDERED:
            pytest.skip('nothing can be watched here: %s' % n.info()['backend'])
        yield n


@pytest.fixture
def cache(notifier):
    with kedge.Cache(notifier=notifier) as c:
        yield c


@pytest.fixture
def ring():
    try:
        return kedge.Uring()
    except kedge.Error as e:
        pytest.skip('no io_uring: %s' % e)


def addresses():
    return {'shm': '@kedge-python-%d-%s' % (os.getpid(), os.urandom(4).hex()),
            'tcp': ('127.0.0.1', 0)}


@pytest.fixture(params=['shm', 'tcp'])
def listener(request):
    with kedge.Listener(addresses()[request.param]) as l:
        yield l


@pytest.fixture
def pair(listener):
    connect = in_thread(kedge.Channel.connect, listener.address, timeout=60)
    with listener.accept(timeout=60) as first, connect() as second:
        yield first, second


def in_thread(fn, *args, **kwargs):
    """fn() in a thread; what is returned waits for it, and returns or raises as it did."""
    out = []

    def run():
        try:
            out.append((fn(*args, **kwargs), None))
        except BaseException as e:
            out.append((None, e))

    def result():
        t.join()
        if out[0][1]:
            raise out[0][1]
        return out[0][0]
    t = threading.Thread(target=run)
    t.start()
    return result


def until_it_waits(channel):
    """Until another thread is in a call of it. info() never lets the GIL go, and so is in
    no call's way."""
    while True:
        try:
            channel.info()
        except kedge.Error as e:
            assert e.errno == errno.EBUSY
            return
        time.sleep(0.001)


def in_child(fn):
    """fn() in a forked child: its status is 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            fn()
            status = 0
        except BaseException as e:      # the child must not run the parent's tests
            print('in the child: %r' % e, file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_python(code, **kwargs):
    """code in an interpreter of its own, with what this one's path has."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run([sys.executable, '-c', code], env=env, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **kwargs)


# ---- the lines that are counted ----

def pytest_runtest_logreport(report):
    if report.when != 'call' and report.outcome == 'passed':
        return
    if report.when == 'teardown' and report.outcome != 'failed':
        return
    name = report.nodeid.split('::', 1)[-1]
    count = pytest_runtest_logreport.count = \
        getattr(pytest_runtest_logreport, 'count', 0) + 1
    if report.outcome == 'skipped':
        line = 'ok %d - %s # SKIP %s' % (count, name, report.longrepr[2])
    else:
        line = '%s %d - %s' % ('ok' if report.outcome == 'passed' else 'not ok', count, name)
    # Past pytest's capture, on lines of their own.
    print('\n' + line, file=sys.__stdout__, flush=True)
