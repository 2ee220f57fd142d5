# SPDX-License-Identifier: BSD-2-Clause
"""What asyncio adds: coroutines that wait on a descriptor in place of a call."""
import asyncio
import errno
import warnings

# fileno() does not tell that the time of an operation is up, nor that a peer is to be
# given up: so often the channel is looked at while an operation is under way.
LOOK_S = 0.5


class Closes:
    """What ends with a block of `with`."""

    def __exit__(self, kind=None, value=None, trace=None):
        try:
            self.close()
        except OSError as e:
            if kind is None:
                raise
            # The block's own exception says more.
            warnings.warn('it stays open: %s' % e, ResourceWarning, stacklevel=2)


class AsyncChannel(Closes):
    """The asynchronous half of Channel. One event loop's at a time."""

    async def send_async(self, obj, tag=0, timeout_ms=0):
        """As send(). A task that is cancelled cancels the operation."""
        return await self._finish(self.isend(obj, tag, timeout_ms))

    async def recv_async(self, obj, tag=None, mask=2 ** 64 - 1, timeout_ms=0):
        """As recv(). The memory is the channel's until the operation is done, which a
        cancelled task does not wait for: the operation holds it."""
        return await self._finish(self.irecv(obj, tag, mask, timeout_ms))

    async def _finish(self, operation):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        waiting = self.__dict__.setdefault('_waiting', {})
        waiting[operation] = future
        if len(waiting) == 1:
            loop.add_reader(self.fileno(), self._progress, loop)
            self._timer = loop.call_later(LOOK_S, self._look, loop)
        # Soon, not now: the memory is the caller's for one more round otherwise.
        loop.call_soon(self._progress, loop)
        try:
            await future
        except asyncio.CancelledError:
            if not operation.done and not self.closed:
                operation.cancel()
            raise
        return operation.result()

    def _look(self, loop):
        if self._waiting:
            self._timer = loop.call_later(LOOK_S, self._look, loop)
            self._progress(loop)

    def _progress(self, loop):
        """Poll until there is no more to do, and wake the tasks of what is done."""
        if not self._waiting:
            return
        try:
            while not self.closed and (self.poll() or not self.arm()):
                pass
        except OSError as e:
            if e.errno == errno.EBUSY:      # a thread waits in a call of this channel
                return
            # The channel is at an end, and each operation says so.
        for operation in [o for o in self._waiting if o.done]:
            future = self._waiting.pop(operation)
            if not future.done():
                future.set_result(None)
        if not self._waiting:
            self._quiet(loop)

    def _quiet(self, loop):
        self._timer.cancel()
        if not self.closed:
            loop.remove_reader(self.fileno())

    def close(self):
        """End it; operations under way fail with ECANCELED."""
        waiting = self.__dict__.get('_waiting')
        if waiting:
            loop = next(iter(waiting.values())).get_loop()
            if not self.closed:
                loop.remove_reader(self.fileno())
            super().close()
            self._progress(loop)
        else:
            super().close()


class AsyncListener:
    """The asynchronous half of Listener."""

    async def accept_async(self):
        """As accept(), for as long as it takes."""
        while True:
            try:
                return self.accept(0)
            except OSError as e:
                if e.errno != errno.ETIMEDOUT:
                    raise
            await readable(self.fileno())


class AsyncNotifier:
    """The asynchronous half of Notifier."""

    async def events(self):
        """Events as they come, without those of kind EVENT_LAST."""
        while True:
            # A read says which are left, whatever the descriptor says.
            for event in self.read():
                if event.kind:
                    yield event
            await readable(self.fileno(), LOOK_S)


async def readable(fd, timeout=None):
    """Wait until fd is readable, or the time is up."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def wake():
        if not future.done():
            future.set_result(None)
    timer = loop.call_later(timeout, wake) if timeout else None
    loop.add_reader(fd, wake)
    try:
        await future
    finally:
        loop.remove_reader(fd)
        if timer:
            timer.cancel()
