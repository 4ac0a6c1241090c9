"""What Kubernetes deletes by itself: objects whose owners are gone, the contents of a namespace or of a type that goes,
and events after an hour.

Work is queued by the store's events and done in the background, a little at a time; what a stop of the server left
undone is found again at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from disttrain.local.server import crds
from disttrain.local.server.errors import ApiError
from disttrain.local.server.objects import FOREGROUND, ORPHAN, Objects, Write
from disttrain.local.server.resources import CRDS, EVENTS, NAMESPACES, Resource, Types
from disttrain.local.server.store import Event, Json, Record

log = logging.getLogger(__name__)

EVENTS_LIVE = timedelta(hours=1)
SWEEP_SECONDS = 60.0
AT_ONCE = 50  # deletions between two turns of the event loop


class Collector:
    """Follows every change; `run` does the work that they leave."""

    def __init__(self, objects: Objects, types: Types) -> None:
        self._objects, self._store, self._types = objects, objects.store, types
        self._jobs: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._store.after.append(self._hear)

    def _hear(self, resource: Resource, event: Event) -> None:
        """Queue what a change entails. Called within the write, so it must not write itself."""
        record = event.record
        if event.gone:
            if self._store.owned_by(record.uid):
                self._jobs.put_nowait(lambda: self._orphaned(record.uid))
            for owner in record.owners:
                self._jobs.put_nowait(lambda owner=owner: self._foreground(owner))  # type: ignore[misc]
            if resource.namespaced:
                space = self._store.get(NAMESPACES, "", record.namespace)
                if space is not None and space.fields["status.phase"] == "Terminating":
                    self._jobs.put_nowait(lambda: self._empty(record.namespace))
            return
        if event.before is None and record.owners:
            self._jobs.put_nowait(lambda: self._check_owners(record.uid))
        if b'"deletionTimestamp"' in record.raw and (
            event.before is None or b'"deletionTimestamp"' not in event.before.raw
        ):
            self._jobs.put_nowait(lambda: self._terminating(resource, record))

    def _terminating(self, resource: Resource, record: Record) -> None:
        finalizers = record.object()["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            self._orphan(record.uid)
        if FOREGROUND in finalizers:
            for key, owned in self._store.owned_by(record.uid):
                self._delete(key, owned, "Foreground" if self._store.owned_by(owned.uid) else "Background")
            self._foreground(record.uid)
        if resource is NAMESPACES:
            self._empty(record.name)
        elif resource.key == CRDS.key:
            self._clear_type(record)

    # Owners

    def _check_owners(self, uid: str) -> None:
        """Delete an object none of whose owners exists, as one that was made just after its owner went."""
        found = self._store.by_uid(uid)
        if found is None:
            return
        key, record = found
        owners = [self._store.by_uid(owner) for owner in record.owners]
        if not any(owner and owner[1].namespace in ("", record.namespace) for owner in owners):
            self._delete(key, record)

    def _orphaned(self, uid: str) -> None:
        for _, owned in self._store.owned_by(uid):
            self._jobs.put_nowait(lambda uid=owned.uid: self._check_owners(uid))  # type: ignore[misc]

    def _foreground(self, uid: str) -> None:
        """Let an owner go that waits for what it owns, once nothing is left that holds it up."""
        found = self._store.by_uid(uid)
        if found is None or f'"{FOREGROUND}"'.encode() not in found[1].raw:
            return
        for _, owned in self._store.owned_by(uid):
            for owner in owned.object()["metadata"]["ownerReferences"]:
                if owner["uid"] == uid and owner.get("blockOwnerDeletion"):
                    return
        self._drop_finalizer(*found, FOREGROUND)

    def _orphan(self, uid: str) -> None:
        """Take the owner out of what it owns, then let it go alone."""

        def without(obj: Json) -> Json:
            references = [owner for owner in obj["metadata"]["ownerReferences"] if owner["uid"] != uid]
            obj["metadata"]["ownerReferences"] = references
            return obj

        for key, owned in self._store.owned_by(uid):
            self._objects.patch(self._types.named(key), owned.namespace, owned.name, without, Write())
        found = self._store.by_uid(uid)
        if found is not None:
            self._drop_finalizer(*found, ORPHAN)

    def _drop_finalizer(self, key: str, record: Record, finalizer: str) -> None:
        def without(obj: Json) -> Json:
            obj["metadata"]["finalizers"] = [f for f in obj["metadata"].get("finalizers") or () if f != finalizer]
            return obj

        self._objects.patch(self._types.named(key), record.namespace, record.name, without, Write())

    def _delete(self, key: str, record: Record, policy: str = "Background") -> None:
        options = {"propagationPolicy": policy, "preconditions": {"uid": record.uid}}
        try:
            self._objects.delete(self._types.named(key), record, options, Write())
        except ApiError as error:
            log.info("not collected: %s %s/%s: %s", key, record.namespace, record.name, error)

    # Namespaces and types

    def _empty(self, namespace: str) -> None:
        """Delete what is in a terminating namespace, and the namespace once nothing is."""
        left = False
        for resource in self._types:
            if resource.namespaced:
                for record in self._store.all(resource, namespace):
                    if b'"deletionTimestamp"' not in record.raw:
                        self._delete(resource.key, record)
                left = left or bool(self._store.all(resource, namespace))
        space = self._store.get(NAMESPACES, "", namespace)
        if not left and space is not None and b'"deletionTimestamp"' in space.raw:

            def finalized(obj: Json) -> Json:
                obj["spec"]["finalizers"] = []
                return obj

            self._objects.patch(NAMESPACES, "", namespace, finalized, Write(), "finalize")

    def _clear_type(self, crd: Record) -> None:
        """Delete the objects of a CRD that goes, and the CRD once none is left."""
        resource = crds.resource_of(crd.object())
        if resource is not None and resource.key in self._types:
            for record in self._store.all(resource):
                self._delete(resource.key, record)
            if self._store.count(resource):
                self._later(lambda: self._clear_type(crd))
                return
        current = self._store.get(CRDS, "", crd.name)
        if current is not None and current.uid == crd.uid:
            self._drop_finalizer(CRDS.key, current, crds.CLEANUP)

    def _later(self, job: Callable[[], None], seconds: float = 0.1) -> None:
        asyncio.get_running_loop().call_later(seconds, self._jobs.put_nowait, job)

    # The background

    def _resume(self) -> None:
        """Queue what the last run of the server left undone."""
        for resource in self._types:
            for record in self._store.all(resource):
                if record.owners:
                    self._jobs.put_nowait(lambda uid=record.uid: self._check_owners(uid))  # type: ignore[misc]
                if b'"deletionTimestamp"' in record.raw:
                    self._jobs.put_nowait(lambda r=resource, o=record: self._terminating(r, o))  # type: ignore[misc]

    def sweep(self, now: datetime) -> None:
        """Delete events that are older than an hour."""
        oldest = (now - EVENTS_LIVE).strftime("%Y-%m-%dT%H:%M:%SZ")
        for record in self._store.all(EVENTS):
            obj = record.object()
            if (obj.get("lastTimestamp") or obj["metadata"]["creationTimestamp"]) < oldest:
                self._delete(EVENTS.key, record)

    async def run(self) -> None:
        """Do the work, until cancelled."""
        self._resume()
        done = 0
        sweep_at = asyncio.get_running_loop().time() + SWEEP_SECONDS
        while True:
            try:
                async with asyncio.timeout(
                    SWEEP_SECONDS
                ):  # Python 3.11's wait_for swallows a cancellation now and then
                    job = await self._jobs.get()
            except TimeoutError:
                job = None
            try:
                if job is not None:
                    job()
                if asyncio.get_running_loop().time() >= sweep_at:
                    sweep_at += SWEEP_SECONDS
                    self.sweep(datetime.now(UTC))
            except Exception:
                log.exception("a collection failed")
            done += 1
            if self._jobs.empty():
                self._store.flush()
            if done % AT_ONCE == 0:
                await asyncio.sleep(0)
