"""One watch: changes of a resource as a stream of events, as its client asked for them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import web

from disttrain.local.server.errors import ApiError
from disttrain.local.server.resources import Resource
from disttrain.local.server.selectors import Test
from disttrain.local.server.store import Event, Record, Store, encode

BOOKMARK_SECONDS = 10.0
BACKLOG = 20_000  # events that a slow client may lag behind before its watch is ended

Render = Callable[[Record], bytes]


class Watch:
    """A stream under way. `start` decides what it begins with, `run` writes until it ends."""

    verb = "watch"

    def __init__(
        self,
        store: Store,
        resource: Resource,
        namespace: str | None,
        name: str,
        test: Test,
        render: Render,
        bookmarks: bool,
    ) -> None:
        self._store, self._resource, self._namespace = store, resource, namespace
        self._test, self._render, self._bookmarks = test, render, bookmarks
        self.target = (resource.plural, namespace or "", name)
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = self._frozen = self.dropped = False
        self._stop_listening: Callable[[], None] = lambda: None
        self._seen = 0

    # What it sends

    def start(self, version: str, *, initial: bool) -> None:
        """Begin at a version ("" or "0": with all objects as they are now); raises 410 if that is too long ago."""
        if initial or version in ("", "0"):
            for record in self._store.all(self._resource, self._namespace, name=self.target[2]):
                if self._test(record):
                    self._send("ADDED", record)
            if initial and self._bookmarks:
                self._bookmark({"k8s.io/initial-events-end": "true"})
        else:
            for event in self._store.since(self._resource, int(version)):
                self._hear(event)
        self._seen = self._store.version
        self._stop_listening = self._store.listen(self._resource, self._hear)

    def _hear(self, event: Event) -> None:
        """Turn a change into what this client sees of it: an object that no longer matches is DELETED for it."""
        if self._namespace is not None and event.record.namespace != self._namespace:
            return
        is_in = not event.gone and self._test(event.record)
        was_in = event.before is not None and self._test(event.before)
        if is_in:
            self._send("MODIFIED" if was_in else "ADDED", event.record)
        elif was_in:
            # The state that left the selection is not the client's to see; the version is, to go on from.
            last = event.record if event.gone else self._store.at_version(self._resource, event.before, event.version)
            self._send("DELETED", last)

    def _send(self, kind: str, record: Record) -> None:
        self._line(b'{"type":"%s","object":%s}\n' % (kind.encode(), self._render(record)))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> None:
        self._seen = self._store.version
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        self._line(encode({"type": "BOOKMARK", "object": obj}) + b"\n")

    def _line(self, line: bytes) -> None:
        if not self._frozen and not self._ended:
            self._lines.append(line)
            self._news.set()
            if len(self._lines) > BACKLOG:
                self.drop()

    # How it ends

    def drop(self) -> None:
        """End it now, as a connection lost: what was not sent yet is not sent."""
        self._ended = self.dropped = True
        self._lines.clear()
        self._news.set()

    def freeze(self) -> None:
        """Send nothing more, and stay open."""
        self._frozen = True
        self._lines.clear()

    def fail(self, status: dict[str, Any]) -> None:
        """Send an ERROR event, then end."""
        self._line(encode({"type": "ERROR", "object": status}) + b"\n")
        self._ended = True

    def refuse(self, error: ApiError) -> None:
        self.fail(error.status())

    async def run(self, response: web.StreamResponse, timeout: float | None) -> None:
        """Write events until the time is up, the client goes away or something ends it."""
        end = time.monotonic() + (timeout if timeout is not None else random.uniform(1800, 3600))
        while True:
            if self._lines:
                chunk = b"".join(self._lines)
                self._lines.clear()
                self._store.flush()
                await response.write(chunk)
                continue
            left = end - time.monotonic()
            if self._ended or left <= 0:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                    await self._news.wait()
            except TimeoutError:
                if self._bookmarks:
                    self._bookmark()

    def close(self) -> None:
        """Hear no more changes."""
        self._stop_listening()
