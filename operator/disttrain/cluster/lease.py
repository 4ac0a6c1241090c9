"""Which of several operators acts: the one that holds a Lease (coordination.k8s.io/v1).

Clocks are never compared between machines. Whoever waits measures with its own clock how long the lease has not
changed; the holder counts from before the call that renewed it. So the holder stops 3 s before another may begin.
Source of the protocol: the Kubernetes API's Lease, and how its own controllers use it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import field

from ..api.types import Base, Metadata
from .errors import AlreadyExists, ApiError, Conflict, NotFound
from .transport import MERGE, Api

log = logging.getLogger(__name__)

DURATION = 13
"""Seconds without a renewal after which another may take the lease. With two looks: at most 15 s after SIGKILL."""
DEADLINE = 10.0
"""Seconds without a renewal after which the holder gives up."""
RETRY = 2.0
"""Seconds between two renewals, or two tries."""
LOOK = 0.8
"""Seconds between two looks of who waits: bounds how long a lease that was handed back lies about."""
ANSWER = 4.0
"""Seconds that a renewal may take before it is tried anew, on a connection that is not dead."""
RELEASE = 1.0


class LeaseLost(Exception):
    """Another operator holds the lease, or the API server could not be told in time that we still do."""


class _Spec(Base):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Base):
    metadata: Metadata
    spec: _Spec = field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Lease).decode


def identity() -> str:
    """A name that no other operator has: a process that starts anew in the same pod is another one."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


class Lease:
    """The lease and whether it is ours. `now()` is seconds since 1970, for people to read; the loop's time decides."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str, now: Callable[[], float]) -> None:
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self._path = f"{self._folder}/{quote(name)}"
        self._name = name
        self._holder = holder
        self._now = now
        self._clock = asyncio.get_running_loop().time
        self._renewed = 0.0
        """Before the call that renewed it last, in the loop's time."""
        self._version = ""
        self._seen: _Spec | None = None
        self._changed = 0.0
        """When the lease was last seen to change, in the loop's time."""
        self.held = False
        self.words = f"lease {namespace}/{name}"

    async def acquire(self) -> None:
        """Returns once the lease is ours."""
        said = ""
        while True:
            try:
                async with asyncio.timeout(ANSWER):
                    if await self._take():
                        self.held = True
                        return
                holder = (self._seen and self._seen.holder_identity) or "nobody"
                if holder != said:
                    log.info("%s is held by %s: standing by", self.words, holder)
                    said = holder
            except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
                log.warning("%s: %s", self.words, error or "no answer in time")
            await asyncio.sleep(LOOK * random.uniform(0.9, 1.1))

    async def hold(self) -> None:
        """Renews the lease until it is lost; then raises LeaseLost."""
        try:
            while True:
                await asyncio.sleep(RETRY)
                await self._keep()
        finally:
            self.held = False

    async def release(self) -> None:
        """Hands the lease back, so that another need not wait; does nothing where it is not ours any more."""
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
        try:
            async with asyncio.timeout(RELEASE):
                await self._change(spec)
                log.info("%s handed back", self.words)
        except (ApiError, TimeoutError, LeaseLost) as error:
            log.info("%s was not handed back: %s", self.words, error or "no answer in time")

    async def _keep(self) -> None:
        """Renews once, trying until the deadline. Raises LeaseLost."""
        end = self._renewed + DEADLINE
        while self._clock() < end:
            sent = self._clock()
            try:
                async with asyncio.timeout(min(ANSWER, end - sent)):
                    await self._change({"renewTime": self._stamp()})
                self._renewed = sent
                return
            except NotFound:
                raise LeaseLost(f"{self.words} was deleted") from None
            except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
                log.warning("%s was not renewed: %s", self.words, error or "no answer in time")
                await asyncio.sleep(min(RETRY, max(end - self._clock(), 0)) / 2)
        raise LeaseLost(f"{self.words} could not be renewed for {DEADLINE:.0f} s")

    async def _take(self) -> bool:
        """Makes the lease ours if it is free. Raises ApiError."""
        sent = self._clock()
        try:
            found = _decode(await self._api.call("GET", self._path))
        except NotFound:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": self._ours(0),
            }
            try:
                answer = await self._api.call("POST", self._folder, msgspec.json.encode(body))
            except AlreadyExists:
                return False
            self._version = _decode(answer).metadata.resource_version
        else:
            spec = found.spec
            if spec != self._seen:
                self._seen, self._changed = spec, self._clock()
            other = bool(spec.holder_identity) and spec.holder_identity != self._holder
            if other and self._clock() < self._changed + (spec.lease_duration_seconds or DURATION):
                return False
            self._version = found.metadata.resource_version
            sent = self._clock()
            try:
                await self._patch(self._ours((spec.lease_transitions or 0) + 1))
            except (Conflict, NotFound):
                return False  # another was faster
        self._renewed = sent
        return True

    def _ours(self, transitions: int) -> dict[str, Any]:
        stamp = self._stamp()
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": DURATION,
            "acquireTime": stamp,
            "renewTime": stamp,
            "leaseTransitions": transitions,
        }

    async def _change(self, spec: dict[str, Any]) -> None:
        """Changes the lease that is ours. Raises LeaseLost where it is not, and ApiError."""
        while True:
            try:
                return await self._patch(spec)
            except Conflict:
                # Somebody wrote: an answer of ours may have been lost, a person may have set a label.
                found = _decode(await self._api.call("GET", self._path))
                if found.spec.holder_identity != self._holder:
                    raise LeaseLost(f"{self.words} is held by {found.spec.holder_identity or 'nobody'}") from None
                self._version = found.metadata.resource_version

    async def _patch(self, spec: dict[str, Any]) -> None:
        """Changes the lease unless somebody else has, since we saw it. Raises ApiError."""
        body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        answer = await self._api.call("PATCH", self._path, msgspec.json.encode(body), MERGE)
        self._version = _decode(answer).metadata.resource_version

    def _stamp(self) -> str:
        """A MicroTime."""
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
