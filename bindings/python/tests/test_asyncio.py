# SPDX-License-Identifier: BSD-2-Clause
"""Channels in event loops."""
import asyncio
import errno
import os

import kedge
import pytest

MIB = 1 << 20


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
