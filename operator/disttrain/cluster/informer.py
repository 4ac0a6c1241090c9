"""Every pod of every job, kept current by one LIST and then a WATCH per namespace (or one for the whole cluster).

Source of the protocol: Kubernetes API concepts, "Efficient detection of changes". The newer resourceVersion of two
views of one pod wins, so answers to our own calls go into the cache at once and watch events may come later.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import field

from ..api.constants import LABEL_JOB_UID
from ..api.pods import PodView, WirePod, view
from ..api.types import Base
from .errors import ApiError, Gone, WireStatus, from_status
from .transport import Api

PAGE = 500
SILENCE = 70.0
"""Seconds without any event after which a watch is taken for dead: bookmarks come every 60 s."""
WATCH_SECONDS = 270

log = logging.getLogger(__name__)

Changed = Callable[[PodView | None, PodView], None]
"""Told of the old view of a pod (None where it is new) and the new one. Called only where they differ."""
Vanished = Callable[[PodView, int], None]
"""Told of a pod's last view, and of the resourceVersion as of which it is gone."""


class _ListMeta(Base):
    resource_version: str = "0"
    # `continue` is a keyword of Python.
    next: str = field(default="", name="continue")


class _PodList(Base):
    metadata: _ListMeta
    items: list[WirePod] = field(default_factory=list)


class _Event(Base):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Versioned(Base):
    metadata: _ListMeta


_list = msgspec.json.Decoder(_PodList).decode
_event = msgspec.json.Decoder(_Event).decode
_pod = msgspec.json.Decoder(WirePod).decode
_bookmark = msgspec.json.Decoder(_Versioned).decode
_status = msgspec.json.Decoder(WireStatus).decode


class WatchFailed(Exception):
    """The watch was ended by an ERROR event."""


class PodCache:
    """The pods by uid and by job."""

    def __init__(self, changed: Changed, vanished: Vanished) -> None:
        self._changed = changed
        self._vanished = vanished
        self._pods: dict[str, PodView] = {}
        self._jobs: dict[str, dict[str, PodView]] = {}
        self.horizons: dict[str | None, int] = {}
        """Namespace (None for all) to the resourceVersion up to which every change has been seen."""

    def __len__(self) -> int:
        return len(self._pods)

    def of(self, job_uid: str) -> list[PodView]:
        """The pods that carry the job's uid."""
        return list(self._jobs.get(job_uid, {}).values())

    def get(self, uid: str) -> PodView | None:
        """The pod of this uid, if it is known."""
        return self._pods.get(uid)

    def inside(self, namespace: str | None) -> list[PodView]:
        """The pods of a namespace, or of all (None)."""
        return [pod for pod in self._pods.values() if namespace in (None, pod.namespace)]

    def answered(self, pod: PodView) -> None:
        """Takes a view from an answer to our own call; nobody is told.

        An answer may come late. A pod that is unknown although every change up to its version has been seen was
        deleted meanwhile, and stays so.
        """
        horizon = self.horizons.get(None) or self.horizons.get(pod.namespace, 0)
        if pod.uid in self._pods or pod.version > horizon:
            self._put(pod)

    def found(self, pod: PodView) -> None:
        """Takes a view from a GET, made because the cache may be old; nobody is told."""
        self._put(pod)

    def put(self, pod: PodView) -> None:
        """Takes a view from a list or watch, unless a newer one is known."""
        old = self._pods.get(pod.uid)
        if self._put(pod) and (old is None or not _same(old, pod)):
            self._changed(old, pod)

    def _put(self, pod: PodView) -> bool:
        if not pod.job_uid:
            return False
        old = self._pods.get(pod.uid)
        if old is not None:
            if old.version >= pod.version:
                return False
            if old.job_uid != pod.job_uid:
                self._unlink(old)
        self._pods[pod.uid] = pod
        self._jobs.setdefault(pod.job_uid, {})[pod.uid] = pod
        return True

    def deleting(self, uid: str, now: float) -> None:
        """A DELETE of this pod was accepted at `now`: it is not live for long, whatever the watch still says."""
        old = self._pods.get(uid)
        if old is not None and old.deletion is None:
            new = msgspec.structs.replace(old, deletion=now)
            self._pods[uid] = self._jobs[old.job_uid][uid] = new

    def remove(self, last: PodView, version: int) -> None:
        """The pod is gone as of this version; `last` is how it was."""
        old = self._pods.pop(last.uid, None)
        if old is not None:
            self._unlink(old)
            self._vanished(last, version)

    def _unlink(self, pod: PodView) -> None:
        siblings = self._jobs.get(pod.job_uid)
        if siblings is not None:
            siblings.pop(pod.uid, None)
            if not siblings:
                del self._jobs[pod.job_uid]


def _same(old: PodView, new: PodView) -> bool:
    return msgspec.structs.replace(old, version=new.version) == new


class Stream:
    """One LIST and WATCH: of a namespace, or of all (None)."""

    def __init__(self, api: Api, cache: PodCache, namespace: str | None, *, silence: float = SILENCE) -> None:
        self._api = api
        self._cache = cache
        self._namespace = namespace
        self._silence = silence
        where = f"/api/v1/namespaces/{quote(namespace)}/pods" if namespace else "/api/v1/pods"
        self._path = f"{where}?labelSelector={quote(LABEL_JOB_UID)}"
        self._version = ""
        self._failures = 0
        self._asked = 1
        self._listed = 0
        """How often it was told to list, and which of those the last list answers."""
        self._until: asyncio.Timeout | None = None
        """Ends the watch."""
        self._clock = asyncio.get_running_loop().time
        self.name = f"pods/{namespace}" if namespace else "pods"
        self.synced = asyncio.Event()
        """Whether it has listed once."""
        self.current = asyncio.Event()
        """Whether it has listed since it was told to last."""
        self.heard = self._clock()
        """When the API server was last heard of, in the loop's time."""

    async def run(self) -> None:
        """Keeps the cache current until cancelled. Nothing that the API server says ends it."""
        while True:
            try:
                if self._listed != self._asked or not self._version:
                    await self._relist()
                    continue
                try:
                    async with asyncio.timeout(None) as self._until:
                        await self._watch()
                finally:
                    self._until = None
            except TimeoutError:
                pass  # told to list anew
            except Gone:
                self._version = ""
            except WatchFailed as error:
                log.warning("watch of %s: %s; listing again", self.name, error)
                self._version = ""
                await self._back_off()
            except ApiError as error:
                # The watch goes on where it was: only an answer that says so (410) costs a new list.
                self._failures += 1
                log.log(logging.WARNING if self._failures > 2 else logging.DEBUG, "%s: %s", self.name, error)
                await self._back_off()
            except (msgspec.MsgspecError, ValueError) as error:
                log.error("%s: what the API server sent cannot be read: %s; listing again", self.name, error)
                self._version = ""
                self._failures += 1
                await self._back_off()
            else:
                await asyncio.sleep(0.02)  # a server that ends each watch at once is not asked in a tight loop

    def renew(self) -> None:
        """Has it list anew, now; `current` is set when it has."""
        self._asked += 1
        self.current.clear()
        if self._until is not None:
            self._until.reschedule(self._clock())

    async def _back_off(self) -> None:
        await asyncio.sleep(min(0.1 * 2 ** min(self._failures, 10), 30.0) * random.uniform(0.8, 1.2))

    async def _relist(self) -> None:
        """Takes every pod that is there, then drops those that are not."""
        listed: set[str] = set()
        page, version = "", ""
        asked = self._asked
        while True:
            query = f"&limit={PAGE}" + (f"&continue={quote(page)}" if page else "")
            answer = _list(await self._api.call("GET", self._path + query))
            self.heard = self._clock()
            version = version or answer.metadata.resource_version
            for pod in answer.items:
                listed.add(pod.metadata.uid)
                self._cache.put(view(pod))
            page = answer.metadata.next
            if not page:
                break
            await asyncio.sleep(0)
        newest = int(version)
        for known in self._cache.inside(self._namespace):
            # A pod made after the list was taken is not in it: the watch from here on tells of its end.
            if known.uid not in listed and known.version <= newest:
                self._cache.remove(known, newest)
        self._advance(version)
        self._failures = 0
        self.synced.set()
        self._listed = asked
        if asked == self._asked:
            self.current.set()

    def _advance(self, version: str) -> None:
        self._version = version
        self._cache.horizons[self._namespace] = int(version)

    async def _watch(self) -> None:
        seconds = random.randint(WATCH_SECONDS - 30, WATCH_SECONDS)
        path = (
            f"{self._path}&watch=true&allowWatchBookmarks=true&resourceVersion={self._version}&timeoutSeconds={seconds}"
        )
        async for line in self._api.watch(path, self._silence):
            if not line:
                continue
            event = _event(line)
            self.heard = self._clock()
            if event.type == "BOOKMARK":
                self._advance(_bookmark(event.object).metadata.resource_version)
            elif event.type == "ERROR":
                status = _status(event.object)
                error = from_status(status.code, status)
                if isinstance(error, Gone):
                    raise error
                self._failures += 1
                raise WatchFailed(str(error))
            else:
                pod = view(_pod(event.object))
                if event.type == "DELETED":
                    self._cache.remove(pod, pod.version)
                else:
                    self._cache.put(pod)
                self._advance(str(pod.version))
            self._failures = 0


class PodInformer:
    """The cache and the streams that feed it."""

    def __init__(
        self,
        api: Api,
        changed: Changed,
        vanished: Vanished,
        namespaces: Iterable[str] = (),
        *,
        silence: float = SILENCE,
    ) -> None:
        self.cache = PodCache(changed, vanished)
        scopes: list[str | None] = [*namespaces]
        self.streams = [Stream(api, self.cache, scope, silence=silence) for scope in scopes or [None]]

    @property
    def synced(self) -> bool:
        """Whether every stream has listed once."""
        return all(stream.synced.is_set() for stream in self.streams)

    async def wait(self) -> None:
        """Returns when every stream has listed once."""
        for stream in self.streams:
            await stream.synced.wait()

    async def renew(self) -> None:
        """Has every stream list anew; returns when all have. What the cache holds then is no older than the call."""
        for stream in self.streams:
            stream.renew()
        for stream in self.streams:
            await stream.current.wait()

    async def run(self) -> None:
        """Runs every stream until cancelled."""
        async with asyncio.TaskGroup() as group:
            for stream in self.streams:
                group.create_task(stream.run(), name=stream.name)

    def ages(self) -> dict[str, float]:
        """Seconds since each stream last heard of the API server."""
        now = asyncio.get_running_loop().time()
        return {stream.name: now - stream.heard for stream in self.streams}
