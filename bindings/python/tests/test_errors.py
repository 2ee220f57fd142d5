# SPDX-License-Identifier: BSD-2-Clause
"""Refusals: their words, their classes, and how the end of a block treats them."""
import errno
import pathlib
import pickle

import kedge
import pytest
from conftest import PAGE, Memory, addresses, in_thread, until_it_waits


# ---- classes and texts ----

def test_an_error_is_of_the_interpreters_class_as_well():
    with kedge.Listener(addresses()['tcp']) as l:
        with pytest.raises(TimeoutError) as e:
            l.accept(timeout=0)
        assert isinstance(e.value, kedge.Error) and e.value.errno == errno.ETIMEDOUT
        with pytest.raises(TimeoutError):
            with l:
                raise pickle.loads(pickle.dumps(e.value))
    with pytest.raises(ConnectionRefusedError) as e:
        kedge.Channel.connect(addresses()['shm'], timeout=60)
    assert isinstance(e.value, kedge.Error)
    with pytest.raises(FileNotFoundError) as e:
        kedge.Listener('/nowhere/%s' % addresses()['shm'])
    assert isinstance(e.value, kedge.Error)
    with pytest.raises(kedge.Error) as e:
        kedge.Cache(max_regions=1 << 30)
    assert type(e.value) is kedge.Error


@pytest.mark.parametrize('shift', range(4))
def test_a_text_that_is_cut_within_a_character(shift):
    class Device:
        def reg(self, addr, length, access):
            raise OSError(errno.ENODEV, 'a' * shift + '€' * 3000)

        def dereg(self, handle):
            pass

    for call in (lambda: kedge.Notifier('a' * shift + 'ü' * 3000),
                 lambda: kedge.Listener('@' + 'a' * shift + '€' * 200),
                 lambda: kedge.Channel.connect(('a' * shift + '€' * 500, 1), timeout=0.2),
                 lambda: kedge.Cache(Device()).get(bytearray(PAGE))):
        with pytest.raises(kedge.Error) as e:
            call()
        assert e.value.strerror


# ---- numbers ----

def test_numbers_that_do_not_fit(pair, notifier, memory):
    first = pair[0]
    buf = bytearray(8)
    notifier.add(memory.range, 1 << 64 - 1)
    for call in (lambda: first.send(b'x', tag=1 << 64), lambda: first.send(b'x', tag=-1),
                 lambda: first.recv(buf, tag=1 << 64), lambda: first.recv(buf, mask=-1),
                 lambda: first.recv(buf, timeout_ms=1 << 40),
                 lambda: first.isend(b'x', timeout_ms=-1),
                 lambda: first.probe(-1), lambda: first.probe(0, 1 << 64),
                 lambda: notifier.add(memory.range, -1),
                 lambda: notifier.add(memory.range, 1 << 64),
                 lambda: notifier.remove(-1), lambda: notifier.unchanged(1 << 64),
                 lambda: kedge.Notifier(min_level=1 << 32),
                 lambda: kedge.Cache(max_bytes=-1), lambda: kedge.Cache(max_regions=1 << 64),
                 lambda: kedge.Cache(chunk_bytes=-1), lambda: kedge.Cache(merge_bytes=-1),
                 lambda: kedge.Cache(hint_threads=1 << 32),
                 lambda: kedge.Cache().get(buf, 1 << 32),
                 lambda: kedge.Listener(('127.0.0.1', 1 << 16)),
                 lambda: kedge.Listener(('127.0.0.1', -1)),
                 lambda: kedge.Listener(addresses()['shm'], timeout_ms=1 << 40),
                 lambda: kedge.Channel.connect(addresses()['shm'], eager_max=-1)):
        with pytest.raises(OverflowError, match='from 0 to'):
            call()
    for call in lambda: first.send(b'x', tag=1.5), lambda: notifier.remove('1'):
        with pytest.raises(TypeError):
            call()
    assert first.probe() is None


def test_a_device_whose_numbers_do_not_fit(notifier, memory):
    class Device:
        def reg(self, addr, length, access):
            return self.result

        def dereg(self, handle):
            self.gone = handle

    dev = Device()
    with kedge.Cache(dev, notifier=notifier) as cache:
        for dev.result in -1, 1 << 64, (1, -1), (1 << 64, 1):
            with pytest.raises(kedge.Error) as e:
                cache.get(memory.range)
            assert isinstance(e.value.__cause__, OverflowError)
        dev.result = (1 << 64) - 1, 3
        with cache.get(memory.range) as r:
            assert (r.handle, r.offset) == dev.result


def test_numbers_of_numpy(pair, cache, memory):
    np = pytest.importorskip('numpy')
    first, second = pair
    first.send(b'x', tag=np.uint8(5), timeout_ms=np.int64(60000))
    assert second.recv(bytearray(8), tag=np.int16(5)).tag == 5
    with cache.get((np.uint64(memory.addr), np.int32(memory.len)), np.uint32(1)) as r:
        assert (r.addr, r.len) == memory.range


def test_times_that_are_none(listener):
    for call in (lambda: listener.accept(timeout=float('nan')),
                 lambda: kedge.Channel.connect(listener.address, timeout=float('nan'))):
        with pytest.raises(ValueError, match='NaN'):
            call()


def test_paths(tmp_path):
    path = pathlib.Path(tmp_path) / 'socket'
    with kedge.Listener(path) as l:
        assert l.address == str(path)
        connect = in_thread(kedge.Channel.connect, path, timeout=60)
        with l.accept(timeout=60), connect():
            pass
    for call in lambda: kedge.Listener('@a\0b'), lambda: kedge.Channel.connect('@a\0b'):
        with pytest.raises(ValueError, match='null'):
            call()


def test_memory_that_another_notifier_watches(cache):
    if cache.stats()['regions']:
        pytest.fail('a new cache has regions')
    memory = Memory()
    with kedge.Notifier('uffd') as first, kedge.Notifier('uffd') as second:
        first.add(memory.range, 1)
        with pytest.raises(kedge.Error, match='notifier=') as e:
            second.add(memory.range, 1)
        assert e.value.errno == errno.EBUSY
    memory.unmap()


# ---- the end of a block ----

def test_a_blocks_exception_is_not_replaced(pair):
    first, second = pair
    cache, notifier = kedge.Cache(), kedge.Notifier()
    held = cache.get(bytearray(PAGE))
    user = kedge.Cache(notifier=notifier)
    done = in_thread(first.recv, bytearray(8))
    until_it_waits(first)
    for obj in cache, notifier, first:
        with pytest.warns(ResourceWarning, match='stays open: .*Errno 16'):
            with pytest.raises(KeyError):
                with obj:
                    raise KeyError('the program')
        assert not obj.closed
        with pytest.raises(kedge.Error) as e:       # where there was none
            with obj:
                pass
        assert e.value.errno == errno.EBUSY
    held.release()
    user.close()
    second.send(b'x')
    done()
    for obj in cache, notifier, first:
        with pytest.raises(KeyError):
            with obj:
                raise KeyError('the program')
        assert obj.closed


def objects_with_blocks(pair):
    return (kedge.Cache(), kedge.Notifier(), kedge.Listener(addresses()['shm']), pair[0])


@pytest.mark.filterwarnings('error')
def test_closing_twice_is_closing_once(pair):
    for obj in objects_with_blocks(pair):
        with obj as entered:
            assert entered is obj
            obj.close()
        for _ in range(2):
            obj.close()
            assert obj.__exit__(None, None, None) is None
            assert obj.__exit__() is None
            assert not obj.__exit__(KeyError, KeyError(), None)
        assert obj.closed
        with pytest.raises(ValueError, match='is closed'):
            with obj:
                pass


def test_a_blocks_end_is_the_close_of_its_class(pair):
    class Counts(kedge.Listener):
        closes = 0

        def close(self):
            self.closes += 1
            super().close()
            if self.closes == 2:
                raise KeyboardInterrupt

    with Counts(addresses()['shm']) as l:
        pass
    assert l.closes == 1
    with pytest.raises(KeyboardInterrupt):      # no word of the library's
        l.__exit__(KeyError, KeyError(), None)


@pytest.mark.filterwarnings('error')
def test_a_warning_that_is_an_error_does_not_replace_it_either(monkeypatch, pair):
    told = []
    monkeypatch.setattr('sys.unraisablehook', lambda args: told.append(args.exc_value))
    cache, notifier = kedge.Cache(), kedge.Notifier()
    held, user = cache.get(bytearray(PAGE)), kedge.Cache(notifier=notifier)
    done = in_thread(pair[0].recv, bytearray(8))
    until_it_waits(pair[0])
    for obj in cache, notifier, pair[0]:
        with pytest.raises(KeyError):
            with obj:
                raise KeyError('the program')
        assert isinstance(told.pop(), ResourceWarning)
    pair[1].send(b'x')
    done()
    held.release()
    user.close()
    cache.close()
    notifier.close()


# ---- exceptions of a device in Python ----

class Raises:
    def __init__(self, exception=None):
        self.exception = exception

    def reg(self, addr, length, access):
        if self.exception:
            raise self.exception
        return 1

    def dereg(self, handle):
        pass


@pytest.mark.parametrize('call', ['get', 'getv', 'hint'])
@pytest.mark.parametrize('kind', [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_programs_comes_out_of_a_call(notifier, memory, kind, call):
    dev = Raises(kind('by the user'))
    with kedge.Cache(dev, notifier=notifier) as cache:
        with pytest.raises(kind, match='by the user') as e:
            getattr(cache, call)(memory.range)
        assert e.value is dev.exception
        assert e.traceback[-1].name == 'reg'
        dev.exception = None
        with cache.get(memory.range):
            pass


@pytest.mark.parametrize('exception', [ValueError('a mistake'), KeyError(), MemoryError(),
                                       OSError(errno.ENODEV, 'the cable is out')])
def test_other_exceptions_are_the_cause(notifier, memory, exception):
    with kedge.Cache(Raises(exception), notifier=notifier) as cache:
        for call in cache.get, cache.getv, cache.hint:
            with pytest.raises(kedge.Error) as e:
                call(memory.range)
            assert e.value.__cause__ is exception
            assert e.value.errno == {OSError: errno.ENODEV, MemoryError: errno.ENOMEM
                                     }.get(type(exception), errno.EIO)
            assert len(e.value.strerror) > len('reg() of the device: ')


def test_a_device_over_another_cache(notifier, memory):
    """The exception of the inner reg() is the inner get()'s, and so the outer one's."""
    inner = Raises(ValueError('within'))
    with kedge.Cache(inner, notifier=notifier) as below:
        class Over(Raises):
            def reg(self, addr, length, access):
                return below.get((addr, length)).handle

        with kedge.Cache(Over(), notifier=notifier) as cache:
            with pytest.raises(kedge.Error) as e:
                cache.get(memory.range)
            assert isinstance(e.value.__cause__, kedge.Error)
            assert e.value.__cause__.__cause__ is inner.exception
            inner.exception = KeyboardInterrupt()
            with pytest.raises(KeyboardInterrupt):
                cache.get(memory.range)


@pytest.mark.filterwarnings('error')
def test_an_attempt_that_goes_well_after_all(notifier, memory):
    """A device that is full: the cache evicts, and asks again."""
    class Full(Raises):
        def reg(self, addr, length, access):
            e, self.exception = self.exception, None
            if e:
                raise e
            return 1

    dev = Full()
    with kedge.Cache(dev, notifier=notifier) as cache:
        other = Memory()
        with cache.get(other.range):
            pass
        dev.exception = OSError(errno.ENOSPC, 'full')
        with cache.get(memory.range):
            pass
        assert cache.stats()['evictions'] == 1
        other.unmap()
