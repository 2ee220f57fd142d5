# SPDX-License-Identifier: BSD-2-Clause
"""Watches, and their events."""
import asyncio
import errno
import mmap
import select

import kedge
import pytest
from conftest import Memory


def test_an_event_names_the_watch(notifier, memory):
    assert notifier.add(memory.range, 7) in (False, True)
    last = notifier.read()[-1]
    assert last.kind == kedge.EVENT_LAST
    assert notifier.unchanged(last.generation)
    memory.renew()
    assert not notifier.unchanged(last.generation)
    assert notifier.generation != last.generation
    assert select.select([notifier], [], [], 60)[0]
    event = notifier.read()[0]
    assert event.kind == kedge.EVENT_UNMAP
    assert (event.cookie, event.start, event.end) == \
        (7, memory.addr, memory.addr + memory.len)
    assert event._asdict()['generation'] == event.generation


def test_an_object_may_go_while_it_is_watched(notifier):
    buf = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    notifier.add(buf, cookie=1)
    buf.close()                     # no export is held
    assert [e.cookie for e in notifier.read() if e.kind] == [1]


def test_removed_watches_are_silent(notifier, memory):
    notifier.add(memory.range, 1)
    notifier.remove(1)
    memory.renew()
    assert not [e for e in notifier.read() if e.kind]


def test_errors(notifier, memory):
    notifier.add(memory.range, 1)
    for call, number in ((lambda: notifier.add(memory.range, 1), errno.EEXIST),
                         (lambda: notifier.remove(2), errno.ENOENT),
                         (lambda: notifier.read(0), errno.EINVAL),
                         (lambda: notifier.add((0, 1), 3), errno.EFAULT),
                         (lambda: kedge.Notifier('abacus'), errno.EINVAL)):
        with pytest.raises(kedge.Error) as e:
            call()
        assert e.value.errno == number
    with kedge.Cache(notifier=notifier):
        with pytest.raises(kedge.Error) as e:
            notifier.close()
        assert e.value.errno == errno.EBUSY
    notifier.close()
    for call in notifier.read, notifier.info, notifier.fileno, lambda: notifier.generation:
        with pytest.raises(ValueError):
            call()


def test_info_and_backends(notifier):
    info = notifier.info()
    assert info['level'] >= kedge.LEVEL_ORDERED and not info['watches']
    assert info['backend'] in [b['name'] for b in kedge.backends() if b['rc'] == 0]


def test_events_by_asyncio(notifier):
    memory = [Memory() for _ in range(3)]

    async def watch():
        seen = []
        async for event in notifier.events():
            seen.append(event.cookie)
            if len(seen) == len(memory):
                return seen

    async def main():
        for i, m in enumerate(memory):
            notifier.add(m.range, i)
        watcher = asyncio.ensure_future(watch())
        for m in memory:
            await asyncio.sleep(0)
            m.unmap()
        return await asyncio.wait_for(watcher, 60)

    assert sorted(asyncio.run(main())) == [0, 1, 2]


def test_a_task_that_reads_no_more_leaves_the_other_events(notifier):
    memory = [Memory() for _ in range(3)]
    for i, m in enumerate(memory):
        notifier.add(m.range, i)
        m.unmap()

    async def first():
        async for event in notifier.events():
            return event.cookie

    async def main():
        return [await asyncio.wait_for(first(), 60) for _ in memory]

    assert sorted(asyncio.run(main())) == [0, 1, 2]
