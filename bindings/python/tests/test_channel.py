# SPDX-License-Identifier: BSD-2-Clause
"""Messages between two ends, in one process and in two."""
import errno
import os
import signal
import sys
import threading

import kedge
import pytest
from conftest import addresses, in_thread, until_it_waits

MIB = 1 << 20


@pytest.mark.parametrize('length', [0, 1, 4096, 3 * MIB])
def test_a_message_arrives_whole(pair, length):
    data = os.urandom(length)
    buf = bytearray(length + 8)
    sent = in_thread(pair[0].send, data, tag=5)
    message = pair[1].recv(buf)
    assert (message.tag, message.len) == (5, length)
    assert isinstance(message.way, str)
    assert sent().len == length
    assert buf[:length] == data


def test_both_at_once_and_by_tags(pair):
    first, second = pair
    ops = [first.isend(b'%d' % i, tag=i) for i in range(10)]
    bufs = {i: bytearray(8) for i in range(10)}
    for i in reversed(range(10)):
        assert second.recv(bufs[i], tag=i).tag == i
        assert bufs[i][:1] == b'%d' % i
    for op in ops:
        assert op.wait().len == 1
        assert op.done and op.result().len == 1


def test_probe_tells_of_a_message(pair):
    first, second = pair
    assert second.probe() is None
    first.send(b'four', tag=3)
    buf = bytearray(4)
    op = second.irecv(bytearray(1), tag=9)
    while second.probe() is None:
        second.poll()
    assert second.probe(3, 2 ** 64 - 1)[:2] == (3, 4)
    assert second.recv(buf).len == 4
    op.cancel()
    with pytest.raises(kedge.Error) as e:
        op.wait()
    assert e.value.errno == errno.ECANCELED


def test_memory_is_held_until_it_is_done(pair):
    first, second = pair
    buf = bytearray(64)
    op = second.irecv(buf)
    with pytest.raises(BufferError):
        buf.clear()
    with pytest.raises(ValueError):
        op.result()
    first.send(b'x')
    op.wait()
    buf.clear()
    with pytest.raises(BufferError):
        second.recv(b'read only')


def test_errors_of_an_operation(pair):
    first, second = pair
    first.send(b'too long')
    with pytest.raises(kedge.Error) as e:
        second.recv(bytearray(1))
    assert e.value.errno == errno.EMSGSIZE
    with pytest.raises(kedge.Error) as e:
        second.recv(bytearray(1), timeout_ms=1)
    assert e.value.errno == errno.ETIMEDOUT
    op = second.irecv(bytearray(1))
    first.close()
    with pytest.raises(kedge.Error) as e:
        op.wait()
    assert e.value.errno == errno.ECONNRESET
    op = None
    second.close()
    with pytest.raises(ValueError):
        second.poll()


def test_closing_ends_operations(pair):
    buf = bytearray(8)
    op = pair[0].irecv(buf)
    pair[0].close()
    with pytest.raises(kedge.Error) as e:
        op.result()
    assert e.value.errno == errno.ECANCELED
    buf.clear()


def test_a_second_thread_is_refused(pair):
    first, second = pair
    got = in_thread(first.recv, bytearray(8))
    until_it_waits(first)
    with pytest.raises(kedge.Error):
        first.close()
    second.send(b'go')
    assert got().len == 2


def test_dropping_a_channel_ends_what_is_under_way(listener):
    connect = in_thread(kedge.Channel.connect, listener.address, timeout=60)
    first, second = listener.accept(timeout=60), connect()
    buf = bytearray(8)
    references = sys.getrefcount(buf)
    op = first.irecv(buf)
    del first
    assert op.done
    with pytest.raises(kedge.Error) as e:
        op.wait()
    assert e.value.errno == errno.ECANCELED
    assert sys.getrefcount(buf) == references
    second.close()


def test_transfers_keep_no_references(pair):
    data, buf = b'0123456789', bytearray(16)
    before = sys.getrefcount(data), sys.getrefcount(buf), sys.getrefcount(pair[0])
    for _ in range(50):
        pair[0].send(data)
        pair[1].recv(buf)
        pair[0].isend(data)
        pair[1].irecv(buf).wait()
    assert (sys.getrefcount(data), sys.getrefcount(buf), sys.getrefcount(pair[0])) == before


class Stop(Exception):
    pass


def test_a_signal_ends_a_wait_and_loses_nothing(pair):
    first, second = pair

    def stop(*args):
        raise Stop

    def kill():
        until_it_waits(second)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    buf = bytearray(8)
    try:
        killed = in_thread(kill)
        with pytest.raises(Stop) as e:
            second.recv(buf)
        killed()
        # It is cancelled, and the memory is free again.
        with pytest.raises(kedge.Error) as cancelled:
            e.value.operation.wait()
        assert cancelled.value.errno == errno.ECANCELED
        # An operation that is waited for stays under way.
        op = second.irecv(buf)
        killed = in_thread(kill)
        with pytest.raises(Stop):
            op.wait()
        killed()
        first.send(b'kept')
        assert op.wait().len == 4
        assert buf[:4] == b'kept'
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_addresses_and_times():
    with pytest.raises(kedge.Error) as e:
        kedge.Channel.connect('@kedge-python-nobody-%s' % os.urandom(4).hex(), timeout=60)
    assert e.value.errno == errno.ECONNREFUSED
    with kedge.Listener(addresses()['tcp']) as l:
        assert l.address[1] > 0
        with pytest.raises(kedge.Error) as e:
            l.accept(timeout=0)
        assert e.value.errno == errno.ETIMEDOUT
        with pytest.raises(kedge.Error) as e:
            kedge.Listener(l.address)
        assert e.value.errno == errno.EADDRINUSE
    for bad in 1, ('x',), ('127.0.0.1', 'x'):
        with pytest.raises(TypeError):
            kedge.Channel.connect(bad)
    with pytest.raises(TypeError):
        kedge.Channel.connect('@x', colour=1)


def test_options():
    secret = b'0123456789abcdef'
    with kedge.Listener(('127.0.0.1', 0), secret=secret) as l:
        t = in_thread(kedge.Channel.connect, l.address, timeout=60, secret=secret,
                      eager_max=1024)
        with l.accept(timeout=60) as c, t() as peer:
            assert c.info()['transport'] == 'tcp'
            assert peer.info()['eager_max'] <= 1024


def test_two_processes(listener):
    pid = os.fork()
    if pid == 0:
        try:
            # The parent's listener is not for the child; its address is.
            with kedge.Channel.connect(listener_address, timeout=60) as c:
                buf = bytearray(MIB)
                n = c.recv(buf).len
                c.send(buf[:n][::-1])
            os._exit(0)
        finally:
            os._exit(1)
    with listener.accept(timeout=60) as c:
        data = os.urandom(MIB)
        c.send(data)
        buf = bytearray(MIB)
        c.recv(buf)
        assert buf == data[::-1]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture(autouse=True)
def remember_address(request):
    global listener_address
    if 'listener' in request.fixturenames:
        listener_address = request.getfixturevalue('listener').address
