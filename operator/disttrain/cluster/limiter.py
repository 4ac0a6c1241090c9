"""Bounds what is done at once, and lets those who wait in by turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairLimiter:
    """At most `limit` at once. A key with a thousand waiters does not hold up a key with one."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Waits for the key's turn, and holds it."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: Hashable) -> None:
        if self._free > 0:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            key, waiters = next(iter(self._waiting.items()))
            waiter = waiters.popleft()
            if waiters:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
