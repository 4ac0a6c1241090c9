"""Events on jobs, as `kubectl describe` shows them: coalesced, bounded, best effort.

Equal reasons with equal words (numbers aside) become one Event with a count, as client-go's correlator does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from ..api.constants import API_VERSION, KIND
from ..api.plan import Event
from ..api.times import stamp as format_time
from .errors import ApiError, NotFound
from .jobs import AnyJob
from .transport import MERGE, Api

log = logging.getLogger(__name__)

COMPONENT = "disttrain"
BURST = 25
"""Events of one job that are sent at once."""
REFILL_SECONDS = 30.0
"""Seconds in which a job may send one more."""
REMEMBERED = 4096
"""Events that may still be counted up; older ones start anew."""
WAITING = 1024
"""Events that wait to be sent; more are dropped."""
MAX_MESSAGE = 1024

_NUMBER = re.compile(r"\d+")

Id = tuple[str, str, str]


class _Entry:
    __slots__ = ("body", "count", "dirty", "made", "namespace")

    def __init__(self, namespace: str, body: dict[str, Any]) -> None:
        self.namespace = namespace
        self.body = body
        self.count = 1
        self.made = False
        self.dirty = False


class Recorder:
    """Sends events from one task of its own (`run`). `now()` is seconds since 1970."""

    def __init__(self, api: Api, now: Callable[[], float]) -> None:
        self._api = api
        self._now = now
        self._known: OrderedDict[Id, _Entry] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._queue: asyncio.Queue[_Entry] = asyncio.Queue(WAITING)
        self._named = 0

    def record(self, job: AnyJob, event: Event) -> None:
        """Takes an event. Never blocks; drops what is too much."""
        meta, stamp = job.metadata, format_time(self._now())
        message = event.message[:MAX_MESSAGE]
        if not self._allowed(meta.uid):
            return
        key = (meta.uid, event.reason, _NUMBER.sub("#", message))
        entry = self._known.get(key)
        if entry is None:
            entry = self._known[key] = _Entry(
                meta.namespace,
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"{meta.name}.{self._serial():016x}", "namespace": meta.namespace},
                    "involvedObject": {
                        "apiVersion": API_VERSION,
                        "kind": KIND,
                        "name": meta.name,
                        "namespace": meta.namespace,
                        "uid": meta.uid,
                    },
                    "reason": event.reason,
                    "message": message,
                    "type": "Warning" if event.warning else "Normal",
                    "source": {"component": COMPONENT},
                    "reportingComponent": COMPONENT,
                    "reportingInstance": "",
                    "firstTimestamp": stamp,
                    "lastTimestamp": stamp,
                    "count": 1,
                },
            )
        else:
            entry.count += 1
            entry.body |= {"message": message, "lastTimestamp": stamp, "count": entry.count}
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        if not entry.dirty:
            try:
                self._queue.put_nowait(entry)
                entry.dirty = True
            except asyncio.QueueFull:
                log.debug("too many events wait: one of job %s/%s is dropped", *job.key)

    async def run(self) -> None:
        """Sends what was taken until cancelled."""
        while True:
            entry = await self._queue.get()
            entry.dirty = False
            try:
                await self._send(entry)
            except ApiError as error:
                log.debug("event %s: %s", entry.body["metadata"]["name"], error)
            except Exception:
                log.exception("event %s: error of the operator", entry.body["metadata"]["name"])

    async def drain(self) -> None:
        """Sends what waits, as the operator stops."""
        while not self._queue.empty():
            entry = self._queue.get_nowait()
            try:
                await self._send(entry)
            except ApiError:
                return

    async def _send(self, entry: _Entry) -> None:
        path = f"/api/v1/namespaces/{quote(entry.namespace)}/events"
        if entry.made:
            patch = {name: entry.body[name] for name in ("message", "lastTimestamp", "count")}
            name = entry.body["metadata"]["name"]
            try:
                await self._api.call("PATCH", f"{path}/{quote(name)}", msgspec.json.encode(patch), MERGE)
                return
            except NotFound:
                pass  # it has expired
        await self._api.call("POST", path, msgspec.json.encode(entry.body))
        entry.made = True

    def _serial(self) -> int:
        """Nanoseconds since 1970, never the same twice: events of one second are listed in their order, by name."""
        self._named = max(self._named + 1, int(self._now() * 1e9))
        return self._named

    def _allowed(self, uid: str) -> bool:
        now = self._now()
        tokens, since = self._tokens.get(uid, (float(BURST), now))
        tokens = min(tokens + max(now - since, 0.0) / REFILL_SECONDS, BURST)
        allowed = tokens >= 1
        self._tokens[uid] = (tokens - allowed, now)
        self._tokens.move_to_end(uid)
        if len(self._tokens) > REMEMBERED:
            self._tokens.popitem(last=False)
        return allowed
