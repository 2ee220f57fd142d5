# SPDX-License-Identifier: BSD-2-Clause
"""Coroutines for asyncio: they wait on a descriptor in place of a call."""
import asyncio
import errno

from ._kedge import Error

# fileno() does not tell that the time of an operation is up, nor that a peer is to be
# given up: so often the channel is looked at while an operation is under way.
LOOK_S = 0.5


def refuse(what):
    raise Error(errno.EBUSY, what)


def runs_elsewhere(loop):
    """True if another thread runs it: what it has is not to be touched here."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    return loop is not here and loop.is_running()


def is_parents(obj):
    """True in a forked child: its loops are the parent's, which shares their epoll sets."""
    try:
        obj.fileno()
    except OSError as e:
        return e.errno == errno.ECHILD
    except ValueError:      # it is closed
        pass
    return False


def wake(future, result=None):
    # A loop that is closed has no tasks any more.
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(result)


class AsyncChannel:
    """The asynchronous half of Channel. One event loop's at a time.

    _waiting has the operations that tasks wait for, _ending those that tasks have given
    up and the peer has not, each with a future and if it is a receive. As long as either
    has one, _loop looks after the channel's descriptor, _fd."""
    _loop = _timer = _fd = None

    async def send_async(self, obj, tag=0, timeout_ms=0):
        """As send(). A task that is cancelled cancels the operation, if it still can."""
        self._enter()
        return await self._finish(self.isend(obj, tag, timeout_ms))

    async def recv_async(self, obj, tag=None, mask=2 ** 64 - 1, timeout_ms=0):
        """As recv(). The memory is the channel's until the operation is done, which a
        cancelled task does not wait for: the operation holds it. A message that comes
        all the same is kept for the next receive that it matches."""
        while True:
            self._enter()
            ending = [future for future, recv in self._ending.values() if recv]
            if not ending:
                break
            await asyncio.wait(ending)      # one of them may be the next message
        return await self._finish(self._irecv(obj, tag, mask, timeout_ms), True)

    def _enter(self):
        """The channel is the running loop's now, or another one has it."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self.__dict__.setdefault('_waiting', {})
            self.__dict__.setdefault('_ending', {})
        elif self._loop is not loop:
            self.fileno()       # fails in a forked child
            if not self._loop.is_closed() and (self._loop.is_running() or any(
                    not future.done() for future, _ in self._waiting.values())):
                refuse('tasks of another event loop wait on this channel: it is one '
                       'loop\'s at a time')
            self._quiet()
            # The tasks of the other one have ended; their operations may not have.
            ending = [(operation, recv) for operation, (_, recv) in self._ending.items()]
            self._ending.clear()
            for operation, (_, recv) in self._waiting.items():
                self._end_early(operation)
                ending.append((operation, recv))
            self._waiting.clear()
            for operation, recv in ending:
                self._ending[operation] = loop.create_future(), recv
            if ending:
                self._watch(loop)
                self._progress(loop)

    async def _finish(self, operation, recv=False):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        try:
            if operation.done:
                await asyncio.sleep(0)      # other tasks have their turn all the same
                if self._loop is None:
                    self._poll()            # what it has begun goes on
                else:
                    self._progress(loop)
            else:
                self._waiting[operation] = future, recv
                self._watch(loop)
                # Soon, not now: the memory is the caller's for one more round otherwise.
                loop.call_soon(self._progress, loop)
                await future
        except BaseException:
            self._waiting.pop(operation, None)
            self._end_early(operation)
            if not operation.done and self._loop is loop:
                self._ending.setdefault(operation, (loop.create_future(), recv))
            self._progress(loop)
            raise
        return operation.result()

    def _end_early(self, operation):
        try:
            self._abandon(operation)
        except (OSError, ValueError):
            pass    # a thread waits in a call of this channel, or it is closed

    def _watch(self, loop):
        if self._loop is None:
            fd = self.fileno()
            loop.add_reader(fd, self._progress, loop)
            self._timer = loop.call_later(LOOK_S, self._look, loop)
            self._loop, self._fd = loop, fd

    def _quiet(self):
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            self._timer.cancel()
            loop.remove_reader(self._fd)

    def _look(self, loop):
        if self._loop is loop:
            self._timer = loop.call_later(LOOK_S, self._look, loop)
            self._progress(loop)

    def _progress(self, loop):
        """Poll, and wake the tasks whose operations are done."""
        if self._loop is not loop:
            return
        for operation in list(self._ending):
            self._end_early(operation)      # where a thread was in the way
        if self._poll():
            self._wake_done()

    def _poll(self):
        """Until there is no more to do. False: a thread waits in a call of this channel."""
        try:
            while not self.closed and (self.poll() or not self.arm()):
                pass
        except OSError as e:
            # Else the channel is at an end, and each operation says so.
            return e.errno != errno.EBUSY
        return True

    def _wake_done(self):
        for operations in self._waiting, self._ending:
            for operation in [o for o in operations if o.done]:
                wake(operations.pop(operation)[0])
        if not self._waiting and not self._ending:
            self._quiet()

    def close(self):
        """End it; operations under way fail with ECANCELED."""
        loop = self._loop
        if loop is None or is_parents(self):
            return super().close()
        if runs_elsewhere(loop):
            refuse('tasks of another thread\'s event loop wait on this channel: close it '
                   'there')
        self._quiet()       # before its descriptor's number is another's
        try:
            super().close()
        except OSError:
            if not loop.is_closed():
                self._watch(loop)
            raise
        self._wake_done()


class Waiters:
    """Tasks that wait until a descriptor is readable. A loop calls one function for each
    descriptor, so it wakes them all, and each looks for itself.

    Several threads' loops may wait at once. Each changes its own entry only, and a list of
    the dict's keys is made in one step, so no lock is needed, which a child that another
    thread forks would find locked."""

    def __init__(self):
        self.fd = None
        self.loops = {}

    async def wait(self, fileno, timeout=None):
        """False: the object that the descriptor is of was closed. fileno() then raises
        ValueError."""
        loop = asyncio.get_running_loop()
        for l in list(self.loops):
            if l.is_closed():
                self.loops.pop(l, None)
        future = loop.create_future()
        timer = None
        fd = fileno()
        try:
            if loop not in self.loops:
                self.fd, self.loops[loop] = fd, set()
                loop.add_reader(fd, self._wake, loop)
            self.loops[loop].add(future)
            try:
                fileno()        # close() may not have seen this loop yet
            except ValueError:
                return False
            if timeout:
                timer = loop.call_later(timeout, wake, future, True)
            return await future
        finally:
            if timer:
                timer.cancel()
            futures = self.loops.get(loop, set())
            futures.discard(future)
            if loop in self.loops and not futures:
                del self.loops[loop]
                loop.remove_reader(fd)

    def _wake(self, loop, result=True):
        for future in list(self.loops.get(loop, ())):
            wake(future, result)

    def _end(self, loop):
        """On that loop's thread: the descriptor is closed."""
        self._wake(loop, False)
        if self.loops.pop(loop, None) is not None:
            loop.remove_reader(self.fd)

    def close(self, close):
        """close(), and wake those that wait for the object that is closed then."""
        loops = [l for l in list(self.loops) if not l.is_closed()]
        if any(runs_elsewhere(loop) for loop in loops):
            refuse('tasks of another thread\'s event loop wait for it: close it there')
        for loop in loops:      # before its descriptor's number is another's
            loop.remove_reader(self.fd)
        try:
            close()
        except OSError:
            for loop in loops:
                loop.add_reader(self.fd, self._wake, loop)
            raise
        for loop in loops:
            self._wake(loop, False)
            self.loops.pop(loop, None)
        for loop in list(self.loops):       # which began to wait meanwhile
            try:
                loop.call_soon_threadsafe(self._end, loop)
            except RuntimeError:            # it has ended
                pass


class Awaited:
    """An object with a descriptor, on which any number of tasks wait."""

    def _waiters(self):
        return self.__dict__.setdefault('_waiters_', Waiters())

    def close(self):
        if is_parents(self):
            return super().close()
        self._waiters().close(super().close)


class AsyncListener(Awaited):
    """The asynchronous half of Listener."""

    async def accept_async(self):
        """As accept(), for as long as it takes. Several tasks may, and each gets a peer;
        close() ends them with ECANCELED."""
        while True:
            try:
                return self.accept(0)
            except OSError as e:
                if e.errno not in (errno.ETIMEDOUT, errno.EBUSY):
                    raise
                # Another thread's call may not have taken what came meanwhile.
                timeout = LOOK_S if e.errno == errno.EBUSY else None
            if not await self._waiters().wait(self.fileno, timeout):
                raise Error(errno.ECANCELED, 'the listener was closed')


class AsyncNotifier(Awaited):
    """The asynchronous half of Notifier."""

    async def events(self):
        """Events as they come, without those of kind EVENT_LAST."""
        while True:
            # One at a time: more would be lost with a task that ends. A read says whether
            # there are any, whatever the descriptor says.
            event, = self.read(1)
            if event.kind:
                yield event
            else:
                await self._waiters().wait(self.fileno, LOOK_S)
