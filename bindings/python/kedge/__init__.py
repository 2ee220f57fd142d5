# SPDX-License-Identifier: BSD-2-Clause
"""kedge: registration caches that are never stale, events of the address space, and
channels between processes. docs/python.md of kedge describes it."""
from . import _kedge
from ._aio import AsyncChannel, AsyncListener, AsyncNotifier
from ._kedge import *  # noqa: F401,F403: the numbers
from ._kedge import (Cache, Error, Event, Message, Operation, Registration,
                     backends, version)

__version__ = version()
__all__ = ['Cache', 'Channel', 'Error', 'Event', 'Listener', 'Message', 'Notifier',
           'Operation', 'Registration', 'Uring', 'backends', 'version']
__all__ += [name for name in dir(_kedge) if name.isupper()]


class Channel(AsyncChannel, _kedge.Channel):
    """Messages to one peer and from it: tagged, whole, in order."""

    @classmethod
    def connect(cls, address, timeout=None, **opts):
        """A channel to who listens at a path (shared memory) or (host, port) (TCP).

        timeout is in seconds. opts are those of struct kedge_channel_opts."""
        return cls._connect(address, timeout, opts)


class Listener(AsyncListener, _kedge.Listener):
    """Listener(address, **opts): waits for peers at a path, or (host, port)."""

    def accept(self, timeout=None, cls=Channel):
        """The next peer's channel. Fails with ETIMEDOUT after that many seconds."""
        return self._accept(cls, timeout)


class Notifier(AsyncNotifier, _kedge.Notifier):
    __doc__ = _kedge.Notifier.__doc__


def __getattr__(name):
    # Late: libkedge-uring and liburing are loaded by programs that use them.
    if name == 'Uring':
        from ._uring import Uring
        return Uring
    raise AttributeError('module %r has no attribute %r' % (__name__, name))
