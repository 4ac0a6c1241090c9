"""A queue of keys, each handled by one worker at a time.

A key waits in it at most once, whatever is added meanwhile; a key that is added while it is handled is handled again
afterwards. Keys are served in the order in which they became due, so none starves.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_RETRY = 0.2
LAST_RETRY = 300.0
OVERTAKEN = 64
"""Entries that may lie in the heap beside as many as count, before it is swept."""


class Closed(Exception):
    """The queue hands out nothing any more."""


class WorkQueue(Generic[K]):
    """The queue. Times are the event loop's, in seconds. `jitter()` scales retries, 0.8 to 1.2 by default."""

    def __init__(self, jitter: Callable[[], float] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._jitter = jitter or (lambda: random.uniform(0.8, 1.2))
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._busy: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Keys that are due and not yet handled."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Has the key handled as soon as a worker is free."""
        if key in self._dirty or self._closed:
            return
        self._dirty.add(key)
        if key not in self._busy:
            self._ready.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Has the key handled after so many seconds, unless it is before."""
        if seconds <= 0:
            self.add(key)
            return
        at = self._loop.time() + seconds
        if key in self._dirty or self._closed or self._due.get(key, at + 1) <= at:
            return
        self._due[key] = at
        self._serial += 1
        heapq.heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 2 * len(self._due) + OVERTAKEN:
            # A key with an alarm far away leaves one behind each time that it is handled.
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
            self._arm()
        elif self._heap[0][2] == key:
            self._arm()

    def retry(self, key: K) -> float:
        """Has the key handled again after its own back-off, which doubles each time. Returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = min(FIRST_RETRY * 2.0 ** min(failures, 20), LAST_RETRY) * self._jitter()
        self.add_after(key, seconds)
        return seconds

    def succeed(self, key: K) -> None:
        """Ends the key's back-off."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Forgets what was planned for the key; one that is being handled is finished."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        if key in self._dirty:
            self._dirty.discard(key)
            if key not in self._busy:
                self._ready.remove(key)

    async def get(self) -> K:
        """The next key, to be handed back with `done`. Raises Closed."""
        while not self._ready:
            if self._closed:
                raise Closed
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                elif self._ready:
                    self._wake()
                raise
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._due.pop(key, None)
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker has finished with the key."""
        self._busy.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake()

    def close(self) -> None:
        """Hands out nothing any more; who waits in `get` is sent away."""
        self._closed = True
        self._ready.clear()
        self._dirty.clear()
        if self._timer:
            self._timer.cancel()
        while self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._ring) if self._heap else None

    def _ring(self) -> None:
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:  # an entry that was overtaken by an earlier one is left where it is
                del self._due[key]
                self.add(key)
        self._timer = None
        self._arm()
