"""Reads how far the training is from the last lines of each job's leader, at a slow and jittered pace."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from urllib.parse import quote

from msgspec.structs import replace

from ..api.pods import PodView
from ..api.progress import parse_progress
from ..api.types import Progress
from .errors import ApiError, Forbidden
from .jobs import Key
from .transport import Api
from .workqueue import Closed, WorkQueue

log = logging.getLogger(__name__)

TAIL = "tailLines=40&limitBytes=16384"
"""What is read at most."""
AT_ONCE = 4
SLOWEST = 600.0
"""Most seconds between two looks at a log in which nothing new is said."""
LOOKS = 4
"""Looks at a log within `progressDeadlineSeconds`: silence that nobody listened to must not pass for a standstill."""


class _Followed:
    __slots__ = ("pause", "pod", "slowest")

    def __init__(self, pod: PodView, pause: float, slowest: float) -> None:
        self.pod = pod
        self.pause = min(pause, slowest)
        self.slowest = slowest


class ProgressReader:
    """Reads logs every `seconds`. `progressed(key, progress)` is told of what is found."""

    def __init__(self, api: Api, seconds: float, progressed: Callable[[Key, Progress], None]) -> None:
        self._api = api
        self._seconds = seconds
        self._progressed = progressed
        self._queue: WorkQueue[Key] = WorkQueue()
        self._followed: dict[Key, _Followed] = {}

    def follow(self, key: Key, pod: PodView | None, deadline: float | None = None) -> None:
        """Reads this pod's log from now on, several times within `deadline` seconds; None: no log of the job."""
        slowest = SLOWEST if deadline is None else min(deadline / LOOKS, SLOWEST)
        known = self._followed.get(key)
        if pod is None:
            if known is not None:
                del self._followed[key]
                self._queue.drop(key)
        elif known is None or known.pod.uid != pod.uid:
            self._followed[key] = followed = _Followed(pod, self._seconds, slowest)
            self._queue.add_after(key, followed.pause * random.uniform(0.5, 1.5))
        elif known.slowest != slowest:
            known.slowest = slowest
            self._queue.add_after(key, min(known.pause, slowest))

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._work(), name=f"progress-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except Closed:
                return
            try:
                await self._read(key)
            finally:
                self._queue.done(key)

    async def _read(self, key: Key) -> None:
        followed = self._followed.get(key)
        if followed is None:
            return
        progress: Progress | None = None
        try:
            progress = await self.read(followed.pod)
        except Forbidden as error:
            log.debug("logs of job %s/%s may not be read: %s", *key, error)
            followed.pause = followed.slowest
        except ApiError as error:
            log.debug("log of pod %s/%s: %s", followed.pod.namespace, followed.pod.name, error)
        except Exception:  # a log holds whatever a user prints: that must not end the operator
            log.exception("log of pod %s/%s: error of the operator", followed.pod.namespace, followed.pod.name)
        if self._followed.get(key) is not followed:
            return
        if progress is None:
            followed.pause = min(followed.pause * 2, followed.slowest)
        else:
            followed.pause = min(self._seconds, followed.slowest)
            self._progressed(key, progress)
        self._queue.add_after(key, followed.pause * random.uniform(0.8, 1.2))

    async def read(self, pod: PodView) -> Progress | None:
        """What the pod's main container printed last. Raises ApiError."""
        path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/log?{TAIL}"
        if pod.main:
            path += f"&container={quote(pod.main)}"
        told = parse_progress((await self._api.call("GET", path)).decode(errors="replace"))
        return told and replace(told, round=pod.round)
