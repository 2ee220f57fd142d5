# SPDX-License-Identifier: BSD-2-Clause
"""Threads, forks, the interpreter's end, and references."""
import errno
import gc
import os
import subprocess
import sys
import threading
import tracemalloc

import kedge
import pytest
from conftest import PAGE, Memory, in_child, in_thread, run_python, until_it_waits


def test_threads_share_a_cache(cache):
    stop, failures = threading.Event(), []

    def get(buf):
        try:
            while not stop.is_set():
                with cache.get(buf) as r:
                    assert r.len == len(buf)
        except BaseException as e:
            failures.append(e)

    shared = bytearray(64 * PAGE)
    threads = [threading.Thread(target=get, args=(b,))
               for b in (shared, shared, bytearray(64 * PAGE))]
    for t in threads:
        t.start()
    for _ in range(50):
        m = Memory()
        with cache.get(m.range) as r:
            old = r.handle
        m.renew()
        with cache.get(m.range) as r:
            assert r.handle != old
        m.unmap()
    stop.set()
    for t in threads:
        t.join()
    assert not failures


def test_a_registration_is_released_by_another_thread(cache):
    buf = bytearray(64 * PAGE)
    r = cache.get(buf)
    t = threading.Thread(target=r.release)
    t.start()
    t.join()
    assert not r.held
    assert cache.flush() == 1


def test_registering_does_not_hold_the_lock(notifier):
    """Two devices wait for each other within reg(), which takes both threads."""
    barrier = threading.Barrier(2)

    class Waits:
        def reg(self, addr, length, access):
            barrier.wait(60)
            return 1

        def dereg(self, handle):
            pass

    def get(m):
        with kedge.Cache(Waits(), notifier=notifier) as c:
            with c.get(m.range):
                pass

    memory = Memory(), Memory()
    threads = [threading.Thread(target=get, args=(m,)) for m in memory]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not barrier.broken
    for m in memory:
        m.unmap()


def test_close_waits_for_no_call(notifier, memory):
    entered, go = threading.Event(), threading.Event()

    class Slow:
        def reg(self, addr, length, access):
            entered.set()
            go.wait(60)
            return 1

        def dereg(self, handle):
            pass

    with kedge.Cache(Slow(), notifier=notifier) as c:
        t = threading.Thread(target=lambda: c.get(memory.range).release())
        t.start()
        entered.wait(60)
        with pytest.raises(kedge.Error) as e:
            c.close()
        assert e.value.errno == errno.EBUSY
        go.set()
        t.join()


def test_a_second_close_does_not_pass_the_first(notifier, memory):
    entered, go = threading.Event(), threading.Event()

    class Slow:
        def reg(self, addr, length, access):
            return 1

        def dereg(self, handle):
            entered.set()
            go.wait(60)

    c = kedge.Cache(Slow(), notifier=notifier)
    c.get(memory.range).release()
    closed = in_thread(c.close)
    entered.wait(60)
    for obj in c, notifier:
        with pytest.raises(kedge.Error) as e:
            obj.close()
        assert e.value.errno == errno.EBUSY
    go.set()
    closed()
    c.close()


def test_a_child_is_told(notifier, cache, memory):
    held = cache.get(memory.range)

    def child():
        for call in (lambda: cache.get(memory.range), cache.stats, cache.flush,
                     lambda: notifier.add(memory.range, 1), notifier.read):
            try:
                call()
            except kedge.Error as e:
                assert e.errno == errno.ECHILD, e
                assert e.strerror
            else:
                raise AssertionError('it worked in the child')
        held.release()
        cache.close()
        # One of its own works.
        with kedge.Notifier() as own, kedge.Cache(notifier=own) as c:
            with c.get(memory.range):
                pass

    assert in_child(child) == 0
    held.release()
    with cache.get(memory.range):
        pass
    assert cache.stats()['hits'] == 1


def test_calls_that_a_child_may_make_and_others(pair, listener, notifier, cache, memory):
    """As docs/python.md lists them."""
    first, buf = pair[0], bytearray(8)
    registration, generation = cache.get(memory.range), notifier.generation
    under_way, done = first.irecv(buf), first.isend(b'x')
    refused = [lambda: cache.get(memory.range), lambda: cache.getv(memory.range),
               lambda: cache.hint(memory.range), cache.resync, cache.flush, cache.stats,
               lambda: notifier.add(memory.range, 1), lambda: notifier.remove(1),
               notifier.read, notifier.fileno, notifier.info,
               lambda: notifier.unchanged(generation), lambda: kedge.Cache(notifier=notifier),
               lambda: first.send(b'x'), lambda: first.recv(buf), lambda: first.isend(b'x'),
               lambda: first.irecv(buf), first.poll, first.arm, first.probe, first.fileno,
               first.info, under_way.wait, under_way.cancel, lambda: listener.accept(0),
               listener.fileno]

    def child():
        for call in refused:
            with pytest.raises(kedge.Error) as e:
                call()
            assert e.value.errno == errno.ECHILD
        assert not (cache.closed or notifier.closed or first.closed or listener.closed)
        assert listener.address and registration.len == memory.len and registration.held
        assert isinstance(notifier.generation, int)
        assert not under_way.done and done.result() == done.wait() and not done.cancel()
        registration.release()
        for obj in first, listener, cache, notifier:
            obj.close()

    assert in_child(child) == 0
    registration.release()


def test_a_channel_in_a_child():
    with kedge.Listener(('127.0.0.1', 0)) as l:
        got = []
        t = threading.Thread(target=lambda: got.append(l.accept(60)))
        t.start()
        with kedge.Channel.connect(l.address, timeout=60) as c:
            t.join()

            def child():
                try:
                    c.send(b'x')
                except kedge.Error as e:
                    assert e.errno == errno.ECHILD, e
                else:
                    raise AssertionError('it worked in the child')
                c.close()

            assert in_child(child) == 0
            c.send(b'parent')
            buf = bytearray(8)
            assert got[0].recv(buf).len == 6
            got[0].close()


def test_a_child_of_a_parent_in_a_call(pair, listener, notifier, memory):
    """A thread of the parent's is in a call of each; it is not there in the child."""
    entered, go = threading.Event(), threading.Event()

    class Slow:
        def reg(self, addr, length, access):
            entered.set()
            go.wait(60)
            return 1

        def dereg(self, handle):
            pass

    cache = kedge.Cache(Slow(), notifier=notifier)
    first, second = pair
    got = in_thread(cache.get, memory.range)
    message = in_thread(first.recv, bytearray(8))
    accepted = in_thread(listener.accept, 60)
    entered.wait(60)
    until_it_waits(first)

    def child():
        for call in (first.info, first.poll, first.fileno, first.probe, listener.fileno,
                     lambda: first.isend(b'x'), lambda: listener.accept(0), cache.stats):
            try:
                call()
            except kedge.Error as e:
                assert e.errno == errno.ECHILD, e
            else:
                raise AssertionError('it worked in the child')
        for obj in first, listener, cache, notifier:
            obj.close()
            obj.close()
            assert obj.closed

    assert in_child(child) == 0
    go.set()
    got().release()
    second.send(b'x')
    assert message().len == 1
    with kedge.Channel.connect(listener.address, timeout=60), accepted():
        pass
    cache.close()


def test_a_child_of_a_parent_that_holds(notifier, memory):
    """A thread of the parent's holds a registration, and is not there to release it."""
    holds, go = threading.Event(), threading.Event()
    cache = kedge.Cache(notifier=notifier)

    def hold():
        with cache.get(memory.range):
            holds.set()
            go.wait(60)

    done = in_thread(hold)
    holds.wait(60)
    own = cache.get(memory.range)

    def child():
        cache.close()
        assert not own.held
        with pytest.raises(ValueError):
            own.handle
        own.release()
        notifier.close()

    assert in_child(child) == 0
    own.release()
    go.set()
    done()
    cache.close()


AT_EXIT = '''
import kedge
cache = kedge.Cache()
ring = None
try:
    ring = kedge.Cache('uring')
except kedge.Error:
    pass
buf = bytearray(1 << 20)
held = [cache.get(buf)] + ([ring.get(buf)] if ring else [])
n = kedge.Notifier()
l = kedge.Listener(('127.0.0.1', 0))
class Loop: pass
loop = Loop(); loop.me = loop; loop.r = cache.get(buf)
'''


def test_the_interpreter_ends_with_all_held():
    r = run_python(AT_EXIT)
    assert (r.returncode, r.stderr) == (0, '')


def test_a_signal_at_the_terminal():
    """KeyboardInterrupt, as a process that waits for a peer gets it."""
    code = ("import kedge\n"
            "l = kedge.Listener(('127.0.0.1', 0))\n"
            "print('waits', flush=True)\n"
            "l.accept()\n")
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    p = subprocess.Popen([sys.executable, '-c', code], env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    assert p.stdout.readline() == b'waits\n'
    p.send_signal(2)
    err = p.communicate(timeout=120)[1]
    assert b'KeyboardInterrupt' in err


SUBINTERPRETER = '''
import _xxsubinterpreters as s
i = s.create()
try:
    s.run_string(i, "import kedge")
except s.RunFailedError as e:
    print(e)
s.destroy(i)
'''


def test_subinterpreters_are_refused():
    r = run_python(SUBINTERPRETER)
    if 'No module named' in r.stderr:
        pytest.skip('this Python has no such module')
    assert 'ImportError' in r.stdout


def use_everything(cache, notifier, memory):
    buf = bytearray(4 * PAGE)
    with cache.get(buf):
        pass
    for r in cache.getv(buf):
        r.release()
    held = [cache.get(buf) for _ in range(100)]
    del held
    for args in ((object(),), (bytearray(),), (b'x', 1)):
        try:
            cache.get(*args)
        except (TypeError, OSError, BufferError):
            pass
    notifier.add(memory.range, 1)
    notifier.read()
    notifier.remove(1)
    cache.stats(), notifier.info(), notifier.fileno(), kedge.backends()
    with kedge.Cache(notifier=notifier) as second:
        second.get(buf).release()


def test_objects_keep_no_references(cache, notifier, memory):
    buf = bytearray(64 * PAGE)
    before = sys.getrefcount(buf), sys.getrefcount(cache)
    for _ in range(100):
        with cache.get(buf):
            pass
        cache.hint(buf)
        del cache.getv(buf)[:]
    # Spare registrations refer to neither.
    assert (sys.getrefcount(buf), sys.getrefcount(cache)) == before


def test_no_memory_is_lost(cache, notifier, memory):
    tracemalloc.start()     # before what stays is allocated, such as spare objects
    for _ in range(10):
        use_everything(cache, notifier, memory)
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    blocks = sys.getallocatedblocks()
    for _ in range(50):
        use_everything(cache, notifier, memory)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    # Less than one small object for each time.
    assert grown < 50 * 32
    assert sys.getallocatedblocks() - blocks < 50


def test_cycles_are_collected(notifier):
    class Buffer(bytearray):
        pass

    class Loop:
        def reg(self, addr, length, access):
            return 1

        def dereg(self, handle):
            pass

    buf = Buffer(64 * PAGE)
    with kedge.Cache(notifier=notifier) as cache:
        buf.registration = cache.get(buf)
        del buf
        gc.collect()        # or close() is refused
    dev = Loop()
    dev.cache = kedge.Cache(dev)
    users = sys.getrefcount(Loop)
    del dev
    gc.collect()
    assert sys.getrefcount(Loop) < users


def test_objects_fail_to_be_made(cache):
    """Each allocation of a get fails in turn: an error, and nothing is held."""
    testcapi = pytest.importorskip('_testcapi')
    buf = bytearray(64 * PAGE)
    with cache.get(buf):
        pass
    held = [cache.get(buf) for _ in range(70)]   # no spare ones
    for start in range(4):
        got = None
        testcapi.set_nomemory(start, start + 1)
        try:
            got = cache.get(buf)
        except MemoryError:
            pass
        finally:
            testcapi.remove_mem_hooks()
        del got
    del held
    buf.clear()
    cache.close()
