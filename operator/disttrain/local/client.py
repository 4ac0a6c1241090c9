"""A small Kubernetes client for the one-machine cluster: JSON over HTTP, and a watch that never gives up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import aiohttp
import msgspec

Json = dict[str, Any]
log = logging.getLogger(__name__)

_WATCH_SECONDS = 600  # how long one watch request lasts
_SILENT_SECONDS = 60  # no event and no bookmark for as long: the connection is dead


class ApiError(Exception):
    """The server's answer was an error: its HTTP `code`, `reason` and words."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{message or reason} ({code})")
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


class Change(NamedTuple):
    """One step of a watch. `SYNCED`, without an object, says that all that was there has been told."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: Json


class Client:
    """An async context manager. Paths are the API's (`/api/v1/pods`); answers are decoded objects."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    async def __aenter__(self) -> Self:
        # No limit: a watch holds its connection, and all is on this machine.
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        media: str = "application/json",
        timeout: float = 30,
        **query: str,
    ) -> Json:
        """One request; raises ApiError for an error answer, ClientError and TimeoutError where there is none."""
        async with self._session.request(
            method,
            self._url + path,
            params=query,
            data=None if body is None else msgspec.json.encode(body),
            headers={"Content-Type": media} if body is not None else None,
            timeout=aiohttp.ClientTimeout(timeout),
        ) as response:
            data = await response.read()
            if response.status >= 400:
                raise _error(response, data)
            decoded: Json = msgspec.json.decode(data)
            return decoded

    async def get(self, path: str, **query: str) -> Json:
        return await self.call("GET", path, None, media="", timeout=30, **query)

    async def post(self, path: str, body: Json) -> Json:
        return await self.call("POST", path, body)

    async def patch(self, path: str, body: Json) -> Json:
        """A JSON merge patch."""
        return await self.call("PATCH", path, body, media="application/merge-patch+json")

    async def delete(self, path: str, options: Json | None = None) -> Json:
        return await self.call("DELETE", path, options or {})

    async def watch(self, path: str) -> AsyncIterator[Change]:
        """Follow a collection for ever.

        Lists it, then goes on from there; resumes where a connection broke; lists anew where that is too long ago
        (410), and then tells what was missed as if it had just happened, deletions included. Never raises for a
        failing server.
        """
        known: dict[str, Json] = {}  # uid -> object
        pause = 0.05
        version = ""
        while True:
            try:
                if not version:
                    listing = await self.get(path)
                    version = listing["metadata"]["resourceVersion"]
                    for change in _difference(known, listing.get("items") or []):
                        yield change
                    yield Change("SYNCED", {})
                async for change in self._stream(path, version):
                    pause = 0.05
                    version = change.object["metadata"]["resourceVersion"]
                    if change.kind == "DELETED":
                        known.pop(change.object["metadata"]["uid"], None)
                    elif change.kind != "SYNCED":
                        known[change.object["metadata"]["uid"]] = change.object
                    if change.kind != "SYNCED":
                        yield change
                continue
            except ApiError as error:
                if error.code == 410:
                    version = ""
                log.debug("watch of %s: %s", path, error)
                wait = max(pause, error.retry_after or 0)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.debug("watch of %s: %r", path, error)
                wait = pause
            await asyncio.sleep(wait)
            pause = min(pause * 2, 2.0)

    async def _stream(self, path: str, version: str) -> AsyncIterator[Change]:
        """One watch request. A bookmark comes as SYNCED, with its object."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_SILENT_SECONDS)
        async with self._session.get(self._url + path, params=query, timeout=timeout) as response:
            if response.status >= 400:
                raise _error(response, await response.read())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = msgspec.json.decode(line)
                    kind, obj = event["type"], event["object"]
                    if kind == "ERROR":
                        raise ApiError(obj.get("code", 500), obj.get("reason", ""), obj.get("message", ""))
                    yield Change("SYNCED" if kind == "BOOKMARK" else kind, obj)


async def insist(call: Callable[[], Awaitable[Json]]) -> bool:
    """Make a call until it holds, whatever comes between; False if the object is not as thought (404, 409)."""
    pause = 0.05
    while True:
        try:
            await call()
            return True
        except ApiError as error:
            if error.code in (404, 409):
                return False
            log.info("%s", error)
            pause = max(pause, error.retry_after or 0)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("%r", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 2.0)


def _difference(known: dict[str, Json], items: list[Json]) -> list[Change]:
    """What happened between `known`, which is brought up to date, and a new list."""
    now = {item["metadata"]["uid"]: item for item in items}
    changes = [Change("DELETED", obj) for uid, obj in known.items() if uid not in now]
    for uid, obj in now.items():
        if uid not in known:
            changes.append(Change("ADDED", obj))
        elif known[uid]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            changes.append(Change("MODIFIED", obj))
    known.clear()
    known.update(now)
    return changes


def _error(response: aiohttp.ClientResponse, data: bytes) -> ApiError:
    status: Json = {}
    with contextlib.suppress(msgspec.DecodeError):
        decoded = msgspec.json.decode(data)
        status = decoded if isinstance(decoded, dict) else {}
    retry_after = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        status.get("reason", response.reason or ""),
        status.get("message", ""),
        float(retry_after) if retry_after.isdecimal() else None,
    )
