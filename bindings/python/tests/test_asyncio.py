# SPDX-License-Identifier: BSD-2-Clause
"""Channels, listeners and notifiers in event loops: tasks that come, go and give up."""
import asyncio
import errno
import os
import random
import threading
import time

import kedge
import pytest
from conftest import Memory, addresses, in_child, in_thread, until_it_waits
from kedge._aio import Waiters

MIB = 1 << 20


async def until_posted():
    """Until tasks that were just made have begun what they are to wait for."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_asyncio_round_trips(listener):
    async def echo():
        c = await listener.accept_async()
        buf = bytearray(2 * MIB)
        while True:
            m = await c.recv_async(buf)
            if not m.len:
                break
            await c.send_async(memoryview(buf)[:m.len], tag=m.tag)
        c.close()

    async def main():
        server = asyncio.ensure_future(echo())
        c = await asyncio.get_running_loop().run_in_executor(
            None, lambda: kedge.Channel.connect(listener.address, timeout=60))
        for length in 1, 5000, 2 * MIB:
            data, buf = os.urandom(length), bytearray(length)
            got, _ = await asyncio.gather(c.recv_async(buf, tag=length),
                                          c.send_async(data, tag=length))
            assert got.len == length and buf == data
        await c.send_async(b'')
        await server
        c.close()

    asyncio.run(asyncio.wait_for(main(), 300))


def test_asyncio_cancels(pair):
    first, second = pair

    async def main():
        buf = bytearray(8)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(second.recv_async(buf), 0.01)
        first.send(b'later')
        # The cancelled receive did not take it.
        assert (await second.recv_async(bytearray(8))).len == 5
        buf.clear()
        # Closing wakes what waits.
        waiting = asyncio.ensure_future(second.recv_async(bytearray(8)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.close()
        with pytest.raises(kedge.Error) as e:
            await waiting
        assert e.value.errno == errno.ECANCELED

    asyncio.run(main())


def test_operations_that_are_done_at_once_watch_no_descriptor(pair):
    first, second = pair
    calls = []

    async def main():
        loop = asyncio.get_running_loop()
        for name in 'add_reader', 'remove_reader':
            setattr(loop, name, lambda *args: calls.append(args))
        turns = []
        loop.call_soon(turns.append, 1)
        await first.send_async(b'x', tag=1)
        assert turns    # other tasks have had theirs

    asyncio.run(main())
    assert not calls
    assert second.recv(bytearray(8)).tag == 1


def test_a_loop_that_cannot_watch_keeps_no_operation(pair):
    """A proactor's, or one that is full: the call fails, and the next ones go on."""
    first, second = pair

    async def fail():
        def refuse(*args):
            raise NotImplementedError

        asyncio.get_running_loop().add_reader = refuse
        buf = bytearray(8)
        with pytest.raises(NotImplementedError):
            await first.recv_async(buf)
        buf.clear()

    async def receive():
        second.send(b'x')
        return await asyncio.wait_for(first.recv_async(bytearray(8)), 60)

    asyncio.run(fail())
    assert asyncio.run(receive()).len == 1


# ---- loops ----

def test_a_second_loop_goes_on_where_the_first_ended(pair):
    first, second = pair

    async def leave():
        asyncio.ensure_future(first.recv_async(bytearray(8), tag=1))
        asyncio.ensure_future(first.send_async(bytes(MIB), tag=1))
        await until_posted()
        # asyncio.run() cancels them at its end.

    async def receive():
        task = asyncio.ensure_future(first.recv_async(bytearray(8), tag=2))
        await until_posted()
        second.send(b'x', tag=2)
        return await asyncio.wait_for(task, 60)

    asyncio.run(leave())
    for _ in range(3):
        assert asyncio.run(receive()).tag == 2


def test_a_loop_that_was_closed_with_tasks_is_no_ones(pair):
    first, second = pair
    buf = bytearray(8)
    loop = asyncio.new_event_loop()
    task = loop.create_task(first.recv_async(buf, tag=1))
    loop.run_until_complete(until_posted())
    second.send(b'kept', tag=1)
    while first.probe(1, 2 ** 64 - 1) is None and not first.poll():
        pass
    loop.close()

    async def receive():
        return await asyncio.wait_for(first.recv_async(bytearray(8), tag=1), 60)

    assert asyncio.run(receive()).len == 4
    task._log_destroy_pending = False


def test_two_loops_at_once_are_refused(pair):
    first, second = pair
    waits = threading.Event()

    async def wait():
        task = asyncio.ensure_future(first.recv_async(bytearray(8)))
        await until_posted()
        waits.set()
        return await task

    other = in_thread(lambda: asyncio.run(wait()))
    waits.wait(60)
    for call in first.recv_async, first.send_async:
        with pytest.raises(kedge.Error, match='another event loop') as e:
            asyncio.run(call(bytearray(8)))
        assert e.value.errno == errno.EBUSY
    with pytest.raises(kedge.Error, match='another thread') as e:
        first.close()
    assert e.value.errno == errno.EBUSY
    second.send(b'x')
    assert other().len == 1
    # It is at rest: any loop's.
    second.send(b'yy')
    assert asyncio.run(first.recv_async(bytearray(8))).len == 2


# ---- messages of receives that were given up ----

async def give_up_receives_that_are_done(first, second, *messages, tag=1):
    """The messages are in the tasks' memory when the tasks are cancelled."""
    bufs = [bytearray(64) for _ in messages]
    tasks = [asyncio.ensure_future(first.recv_async(buf, tag=tag)) for buf in bufs]
    await until_posted()
    done = 0
    for data in messages:
        second.send(data, tag=tag)
    while done < len(messages):
        done += first.poll()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError)
    for buf in bufs:
        buf[:] = bytes(64)      # and is the program's again


RECEIVES = {
    'recv_async': lambda c, buf: c.recv_async(buf, tag=1),
    'recv': lambda c, buf: asyncio.to_thread(c.recv, buf, tag=1),
    'irecv': lambda c, buf: asyncio.to_thread(c.irecv(buf, tag=1).wait),
}


@pytest.mark.parametrize('how', RECEIVES)
def test_a_message_of_a_cancelled_receive_is_the_next_ones(pair, how):
    first, second = pair

    async def main():
        await give_up_receives_that_are_done(first, second, b'one', b'two')
        task = asyncio.ensure_future(first.recv_async(bytearray(8)))
        await asyncio.sleep(0)      # and one that has the first of them
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert first.probe()[:2] == (1, 3)
        assert first.probe(2, 2 ** 64 - 1) is None
        with pytest.raises(kedge.Error) as e:       # of another tag
            first.recv(bytearray(8), tag=2, timeout_ms=1)
        assert e.value.errno == errno.ETIMEDOUT
        second.send(b'three', tag=1)
        for data in b'one', b'two', b'three':
            buf = bytearray(8)
            message = await RECEIVES[how](first, buf)
            assert (message.tag, message.len) == (1, len(data))
            assert buf[:message.len] == data

    asyncio.run(main())


def test_the_memory_of_a_message_is_held_until_its_task_has_it(pair):
    """The message of a task that is cancelled is copied from there."""
    first, second = pair
    data = os.urandom(2000)

    async def main():
        for cancelled in False, True:
            buf = bytearray(MIB)
            task = asyncio.ensure_future(first.recv_async(buf, tag=1))
            await until_posted()
            second.send(data, tag=1)
            while not first.poll():
                pass
            with pytest.raises(BufferError):
                buf.clear()
            if cancelled:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled() == cancelled
            buf.clear()
        buf = bytearray(MIB)
        op = first.irecv(buf, tag=1)    # which has it at once
        assert (op.done, op.result().len) == (True, len(data))
        assert buf[:len(data)] == data
        buf.clear()

    asyncio.run(main())


async def cancel_in_order(tasks, order):
    for i in order:
        tasks[i].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)


@pytest.mark.parametrize('order', [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_kept_messages_stay_in_order(pair, order):
    """However the tasks that had them end, and however often."""
    first, second = pair
    sent = b'one', b'two', b'three'

    async def main():
        tasks = [asyncio.ensure_future(first.recv_async(bytearray(8), tag=1)) for _ in sent]
        await until_posted()
        for data in sent:
            second.send(data, tag=1)
        done = 0
        while done < len(sent):
            done += first.poll()
        for _ in range(2):
            await cancel_in_order(tasks, order)
            tasks = [asyncio.ensure_future(first.recv_async(bytearray(8))) for _ in sent]
            await asyncio.sleep(0)      # they have them, and do not know
        for data, task in zip(sent, tasks):
            assert (await task).len == len(data)

    asyncio.run(main())


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_kept_messages_of_several_tags_stay_in_order(pair, order):
    first, second = pair

    async def main():
        tasks = [asyncio.ensure_future(first.recv_async(bytearray(8), tag=i)) for i in (0, 1)]
        await until_posted()
        done = 0
        for tag in 1, 0:
            second.send(b'x', tag=tag)
        while done < 2:
            done += first.poll()
        await cancel_in_order(tasks, order)
        assert [(await first.recv_async(bytearray(8))).tag for _ in (1, 0)] == [1, 0]

    asyncio.run(main())


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_a_large_message_is_kept_before_a_later_small_one(pair, order):
    """It is complete last, but was sent first."""
    first, second = pair

    async def main():
        tasks = [asyncio.ensure_future(first.recv_async(bytearray(3 * MIB))) for _ in order]
        await until_posted()
        sent = second.isend(bytes(3 * MIB), tag=1), second.isend(b'x', tag=2)
        done = 0
        while done < 2:
            done += first.poll()
            second.poll()
        await cancel_in_order(tasks, order)
        got = [(await first.recv_async(bytearray(3 * MIB))).tag for _ in sent]
        assert got == [1, 2]
        while not all(op.done for op in sent):
            second.poll()

    asyncio.run(main())


def give_up_the_first(first, second, tasks, message):
    """The first of the tasks is cancelled with the message in its memory."""
    second.send(message, tag=1)
    while not first.poll():
        pass
    tasks[0].cancel()


def test_a_posted_receive_gets_what_an_earlier_one_gave_up(pair):
    first, second = pair

    async def main():
        for _ in range(3):
            bufs = [bytearray(8) for _ in range(3)]
            tasks = [asyncio.ensure_future(first.recv_async(bufs[i], tag=1)) for i in (0, 1)]
            other = asyncio.ensure_future(first.recv_async(bytearray(8), tag=2))
            await until_posted()
            op = first.irecv(bufs[2], tag=1)
            give_up_the_first(first, second, tasks, b'one')
            assert (await asyncio.wait_for(tasks[1], 60)).len == 3
            assert bufs[1][:3] == b'one'
            assert tasks[0].cancelled() and not op.done and first.probe() is None
            second.send(b'three', tag=1)
            assert op.wait().len == 5
            second.send(b'x', tag=2)
            assert (await asyncio.wait_for(other, 60)).tag == 2

    asyncio.run(main())


def until_done(op):
    while not op.done:
        time.sleep(0.001)


def test_what_is_given_up_goes_to_the_receive_of_a_thread_that_waits(pair):
    first, second = pair

    async def main():
        task = asyncio.ensure_future(first.recv_async(bytearray(8), tag=1))
        await until_posted()
        second.send(b'one', tag=1)
        while not first.poll():
            pass
        op = first.irecv(bytearray(8), tag=1)
        got = in_thread(first.recv, bytearray(8), tag=2)
        until_it_waits(first)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(until_done, op)
        assert op.result().len == 3
        second.send(b'x', tag=2)
        assert got().tag == 2

    asyncio.run(main())


def test_a_posted_receive_that_is_cancelled_leaves_the_message(pair):
    """The program's cancellation, and that of a task, of a receive that could have it."""
    first, second = pair

    async def main():
        tasks = [asyncio.ensure_future(first.recv_async(bytearray(8), tag=1)) for _ in range(2)]
        await until_posted()
        op = first.irecv(bytearray(2), tag=1)
        assert op.cancel()
        tasks[1].cancel()
        give_up_the_first(first, second, tasks, b'one')
        await asyncio.gather(*tasks, return_exceptions=True)
        assert is_cancelled(op)
        assert first.probe()[:2] == (1, 3)
        assert (await first.recv_async(bytearray(8))).len == 3

    asyncio.run(main())


@pytest.mark.parametrize('steps', range(8))
def test_a_kept_message_comes_before_a_large_one_on_its_way(pair, steps):
    """The receive that it goes to has matched the large one, which is received later or
    its sender is told."""
    first, second = pair
    data = os.urandom(3 * MIB)

    async def main():
        bufs = [bytearray(len(data)) for _ in range(2)]
        tasks = [asyncio.ensure_future(first.recv_async(buf)) for buf in bufs]
        await until_posted()
        second.send(b'one', tag=1)
        while not first.poll():
            pass
        op = second.isend(data, tag=7)
        done = 0
        for _ in range(steps):
            second.poll()
            done += first.poll()
        if done:
            return          # it was received before
        tasks[0].cancel()
        while not tasks[1].done():
            second.poll()
            await asyncio.sleep(0)
        assert tasks[1].result()[:2] == (1, 3)
        assert bufs[1][:3] == b'one'
        task = asyncio.ensure_future(first.recv_async(bufs[0]))
        while not task.done():
            second.poll()
            await asyncio.sleep(0)
            if op.done and is_cancelled(op):
                op = second.isend(data, tag=7)
        assert task.result()[:2] == (7, len(data))
        assert bufs[0] == data
        assert first.probe() is None

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_kept_message_that_is_too_long(pair):
    first, second = pair

    async def main():
        await give_up_receives_that_are_done(first, second, b'too long')
        with pytest.raises(kedge.Error) as e:
            await first.recv_async(bytearray(4))
        assert e.value.errno == errno.EMSGSIZE
        assert first.probe() is None
        await give_up_receives_that_are_done(first, second, b'closed with it')

    asyncio.run(main())


def test_timeouts_lose_no_message(pair):
    """However the time of a receive and the coming of a message meet."""
    first, second = pair
    cnt, rnd, got = 300, random.Random(1), []

    def send():
        for i in range(cnt):
            second.send(b'%d' % i, tag=i)

    async def main():
        while len(got) < cnt:
            buf = bytearray(8)
            try:
                m = await asyncio.wait_for(first.recv_async(buf), rnd.random() * 0.002)
            except asyncio.TimeoutError:
                continue
            assert int(buf[:m.len]) == m.tag
            got.append(m.tag)

    sent = in_thread(send)
    asyncio.run(asyncio.wait_for(main(), 300))
    sent()
    assert got == list(range(cnt))


def is_cancelled(op):
    try:
        return not op.result()
    except kedge.Error as e:
        assert e.errno == errno.ECANCELED
        return True


@pytest.mark.parametrize('steps', range(8))
def test_a_large_message_is_received_or_its_sender_is_told(pair, steps):
    """It is on its way, so far, when the receive is cancelled."""
    first, second = pair
    data = os.urandom(3 * MIB)

    async def main():
        task = asyncio.ensure_future(first.recv_async(bytearray(len(data))))
        await until_posted()
        op = second.isend(data, tag=7)
        for _ in range(steps):
            second.poll()
            first.poll()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        buf = bytearray(len(data))
        task = asyncio.ensure_future(first.recv_async(buf))
        while not task.done():
            second.poll()
            await asyncio.sleep(0)
            if op.done and is_cancelled(op):
                op = second.isend(data, tag=7)
        assert task.result()[:2] == (7, len(data))
        assert buf == data
        assert first.probe() is None

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_thread_in_the_way_of_a_cancellation(pair):
    """A call of another thread's waits, so the cancellation has to."""
    first, second = pair

    async def main():
        buf = bytearray(8)
        task = asyncio.ensure_future(first.recv_async(buf, tag=1))
        await until_posted()
        done = in_thread(first.recv, bytearray(8), tag=2)
        until_it_waits(first)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        second.send(b'x', tag=2)
        assert done().len == 1
        second.send(b'yy', tag=1)
        assert (await asyncio.wait_for(first.recv_async(bytearray(8), tag=1), 60)).len == 2
        buf.clear()

    asyncio.run(main())


# ---- accepting ----

def test_two_tasks_accept(listener):
    async def main():
        tasks = [asyncio.ensure_future(listener.accept_async()) for _ in range(2)]
        await until_posted()
        peers = [await asyncio.to_thread(kedge.Channel.connect, listener.address, 60)
                 for _ in tasks]
        for c in await asyncio.wait_for(asyncio.gather(*tasks), 60):
            c.close()
        for c in peers:
            c.close()

    asyncio.run(main())


def test_a_task_accepts_beside_a_thread(listener):
    """While a call of the thread's waits, the task waits as well."""
    def accept(timeout):
        while True:
            try:
                return listener.accept(timeout)
            except kedge.Error as e:
                if e.errno != errno.EBUSY:
                    raise
                time.sleep(0.001)

    def until_it_accepts():
        while True:
            try:
                listener.accept(0)
            except kedge.Error as e:
                if e.errno == errno.EBUSY:
                    return
            time.sleep(0.001)

    async def main():
        by_thread = in_thread(accept, 60)
        await asyncio.to_thread(until_it_accepts)
        task = asyncio.ensure_future(listener.accept_async())
        await until_posted()
        assert not task.done()
        peers = [await asyncio.to_thread(kedge.Channel.connect, listener.address, 60)
                 for _ in range(2)]
        for c in [await task, await asyncio.to_thread(by_thread)] + peers:
            c.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_closing_a_listener_ends_what_accepts():
    async def main():
        listener = kedge.Listener(addresses()['shm'])
        tasks = [asyncio.ensure_future(listener.accept_async()) for _ in range(2)]
        cancelled = asyncio.ensure_future(listener.accept_async())
        await until_posted()
        cancelled.cancel()
        await until_posted()
        listener.close()
        for task in tasks:
            with pytest.raises(kedge.Error) as e:
                await asyncio.wait_for(task, 60)
            assert e.value.errno == errno.ECANCELED
        with pytest.raises(ValueError):
            await listener.accept_async()

    asyncio.run(main())


def test_a_loop_begins_to_accept_while_another_does(listener):
    """At the worst moment: the second is there when the first one looks at all loops."""
    hooks, others = [], []

    class Loop(asyncio.SelectorEventLoop):
        def is_closed(self):
            if hooks:
                hooks.pop()()
            return super().is_closed()

    def begin():
        others.append(in_thread(lambda: asyncio.run(listener.accept_async())))
        while len(listener._waiters().loops) < 2:
            pass

    async def main():
        tasks = [asyncio.ensure_future(listener.accept_async())]
        await until_posted()
        hooks.append(begin)
        tasks.append(asyncio.ensure_future(listener.accept_async()))
        await until_posted()
        peers = [await asyncio.to_thread(kedge.Channel.connect, listener.address, 60)
                 for _ in range(3)]
        accepted = await asyncio.gather(*tasks) + [await asyncio.to_thread(others[0])]
        for c in accepted + peers:
            c.close()

    loop = Loop()
    loop.run_until_complete(main())
    loop.close()


@pytest.fixture
def silent():
    """A descriptor that is never readable."""
    ends = os.pipe()
    yield ends[0]
    for fd in ends:
        os.close(fd)


def test_closing_meets_a_task_that_begins_to_wait(silent):
    """In another thread's loop: close() sees it, or it sees the close()."""
    waiters, waits = Waiters(), []

    def begin():
        waits.append(in_thread(lambda: asyncio.run(waiters.wait(lambda: silent))))
        while not waiters.loops:
            pass

    waiters.close(begin)
    assert waits[0]() is False
    assert not waiters.loops

    async def main():
        def fileno(calls=[]):
            calls.append(1)
            if len(calls) == 2:
                raise ValueError('closed')
            return silent

        assert await waiters.wait(fileno) is False
        assert not asyncio.get_running_loop().remove_reader(silent)

    asyncio.run(main())
    assert not waiters.loops


def test_a_listener_of_another_threads_loop_is_not_closed(listener):
    waits = threading.Event()

    async def accept():
        task = asyncio.ensure_future(listener.accept_async())
        await until_posted()
        waits.set()
        return await task

    accepted = in_thread(lambda: asyncio.run(accept()))
    waits.wait(60)
    with pytest.raises(kedge.Error, match='another thread') as e:
        listener.close()
    assert e.value.errno == errno.EBUSY
    with kedge.Channel.connect(listener.address, timeout=60), accepted():
        pass


def test_closing_a_notifier_ends_its_events(notifier):
    async def main():
        n = kedge.Notifier()
        task = asyncio.ensure_future(n.events().__anext__())
        await until_posted()
        with kedge.Cache(notifier=n):
            with pytest.raises(kedge.Error):
                n.close()
        memory = Memory()
        n.add(memory.range, 1)      # it waits as before
        memory.unmap()
        assert (await asyncio.wait_for(task, 60)).cookie == 1
        task = asyncio.ensure_future(n.events().__anext__())
        await until_posted()
        n.close()
        with pytest.raises(ValueError):
            await asyncio.wait_for(task, 60)

    asyncio.run(main())


@pytest.mark.filterwarnings('ignore::DeprecationWarning')   # of os.fork() beside threads
def test_a_child_of_a_loop_leaves_its_parents_tasks_alone(pair, listener, notifier):
    first, second = pair

    async def main():
        tasks = [asyncio.ensure_future(first.recv_async(bytearray(8))),
                 asyncio.ensure_future(listener.accept_async()),
                 asyncio.ensure_future(notifier.events().__anext__())]
        await until_posted()

        def child():
            with pytest.raises(kedge.Error) as e:
                asyncio.run(first.recv_async(bytearray(8)))
            assert e.value.errno == errno.ECHILD
            for obj in first, listener, notifier:
                obj.close()
                assert obj.closed

        assert in_child(child) == 0
        memory = Memory()
        notifier.add(memory.range, 1)
        memory.unmap()
        second.send(b'x')
        with await asyncio.to_thread(kedge.Channel.connect, listener.address, 60):
            message, accepted, event = await asyncio.wait_for(asyncio.gather(*tasks), 60)
        accepted.close()
        assert (message.len, event.cookie) == (1, 1)

    asyncio.run(main())
