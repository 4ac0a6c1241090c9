"""Carries out what a plan says: makes objects and pods, replaces and deletes pods.

The first pod is made alone and strictly checked, then the others. The order within a slot is: take the `live` label off
(so that the name no longer resolves to the dying pod), delete, make the successor; slots go side by side.
Everything is made with POST: what has the name already is looked at, and left alone unless its controller is this very
job. Changes and deletions carry the uid of what they mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from ..api.constants import KIND, LABEL_JOB_UID, LABEL_LIVE
from ..api.plan import Creation, Deletion, Manifest, Plan
from ..api.pods import WirePod, view
from ..api.types import Base, Job, Metadata
from . import keys
from .errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Refused, ServerError
from .informer import PodCache
from .jobs import AnyJob
from .limiter import FairLimiter
from .transport import MERGE, Api

T = TypeVar("T")

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
}

ObjectName = tuple[str, str]
"""Kind and name."""
Reason = Literal["Invalid", "Forbidden", "NameTaken", "Predecessor"]


class Verdict(Exception):
    """The API server will not have an object, as it stands: for the job's status."""

    def __init__(self, reason: Reason, kind: str, name: str, word: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.kind = kind
        self.name = name
        self.word = word
        self.message = message[:1024]


class NamespaceEnds(Exception):
    """The namespace is being terminated: nothing can be made in it any more."""


class Stopped(Exception):
    """The operator stops: no further call is begun."""


class _Owned(Base):
    metadata: Metadata


_pod = msgspec.json.Decoder(WirePod).decode
_owned = msgspec.json.Decoder(_Owned).decode

WORDS = (
    ("exceeded quota", "QuotaExceeded"),
    ("failed quota", "QuotaExceeded"),
    ("violates PodSecurity", "PodSecurity"),
    ("error looking up service account", "ServiceAccountMissing"),
    ("no PriorityClass with name", "PriorityClassMissing"),
    ("RuntimeClass", "RuntimeClassMissing"),
    ("usage per Pod is", "LimitRange"),
    ("usage per Container is", "LimitRange"),
    ("admission webhook", "AdmissionDenied"),
    ("ValidatingAdmissionPolicy", "AdmissionDenied"),
)
"""What a refusal's words contain, and the condition's reason for it; first match first."""
ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy")
"""Words of admission that a platform team adds: whatever code it answers with, it may change its mind."""


def judge(error: Refused, kind: str, name: str) -> Exception:
    """What a refusal to make an object means: a Verdict, NamespaceEnds, or the error itself. Raises nothing."""
    words = error.message
    reason: Reason = "Forbidden"
    if isinstance(error, Forbidden):
        if "being terminated" in words:
            return NamespaceEnds(words)
        word = next((word for part, word in WORDS if part in words), "Forbidden")
    elif isinstance(error, Invalid) and any(part in words for part in ADMISSION):
        word = "AdmissionDenied"
    elif isinstance(error, Invalid):
        reason, word = "Invalid", "InvalidTemplate"
    elif isinstance(error, ServerError) and "failed calling webhook" in words:
        word = "AdmissionFailed"
    else:
        return error
    return Verdict(reason, kind, name, word, words)


class Applier:
    """Carries out plans. `writes` bounds the calls of all jobs at once, `at_once` those of one job."""

    def __init__(
        self, api: Api, pods: PodCache, clock: Callable[[], float], *, writes: int = 32, at_once: int = 16
    ) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._writes = FairLimiter(writes)
        self._at_once = at_once
        self.stopping = False

    async def act(self, job: Job, plan: Plan, known: set[ObjectName]) -> int:
        """Does what the plan says, as far as it goes; returns how many pods were made.

        `known` holds the names of the objects that are certain to be the job's: it is added to. Objects come before
        the first pod, or beside it where they are known, since then they are merely looked after.
        Raises Verdict, NamespaceEnds, ApiError or Stopped; what was done until then holds.
        """
        names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in plan.objects}
        first = [self._make_object(job, manifest) for manifest in plan.objects]
        made = 0
        if plan.create and names <= known:
            first.append(self._replace(job, plan.create[0], strict=True))
            made = 1
        await self._together(first)
        known |= names

        async def replace(creation: Creation) -> None:
            await self._replace(job, creation, strict=False)

        if plan.create and not made:
            await self._together([self._replace(job, plan.create[0], strict=True)])
            made = 1
        made += await self._each(plan.create[1:], replace)
        await self._each(plan.delete, self._delete)
        return made

    async def look(self, job: AnyJob, names: Sequence[str]) -> list[str]:
        """Which of these pods the job does not have, as it is now. What there is goes into the cache."""
        path = PATHS["Pod"].format(quote(job.metadata.namespace))
        absent: list[str] = []

        async def get(name: str) -> None:
            try:
                pod = view(_pod(await self._api.call("GET", f"{path}/{quote(name)}")))
            except NotFound:
                absent.append(name)
                return
            self._pods.found(pod)
            if pod.job_uid != job.metadata.uid:
                absent.append(name)

        await self._each(names, get)
        return absent

    async def _together(self, calls: Sequence[Awaitable[None]]) -> None:
        """Does all at once; raises the first failure when all have ended."""
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if self.stopping:
            raise Stopped

    async def _each(self, items: Sequence[T], action: Callable[[T], Awaitable[None]]) -> int:
        """Does the action to each, a few at once. After a failure none is begun any more; the first is raised."""
        rest = iter(items)
        failures: list[Exception] = []

        async def runner() -> None:
            for item in rest:
                if failures or self.stopping:
                    return
                try:
                    await action(item)
                except (ApiError, Verdict, NamespaceEnds) as error:
                    failures.append(error)

        if len(items) == 1:
            await runner()
        elif items:
            await asyncio.gather(*(runner() for _ in range(min(self._at_once, len(items)))))
        if failures:
            raise failures[0]
        if self.stopping:
            raise Stopped
        return len(items)

    async def _replace(self, job: Job, creation: Creation, *, strict: bool) -> None:
        """Makes a slot's next pod. One that has ended gives way afterwards: nothing resolves to it any more."""
        old = creation.replaces
        if old is not None and not old.terminal:
            await self._delete(Deletion(pod=old, unlist=True))
        await self._make(job, creation.manifest, strict=strict)
        if old is not None and old.terminal:
            await self._delete(Deletion(pod=old, unlist=False))

    async def _make_object(self, job: Job, manifest: Manifest) -> None:
        await self._make(job, manifest, strict=True)

    async def _make(self, job: Job, manifest: Manifest, *, strict: bool) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        path = PATHS[kind].format(quote(job.metadata.namespace))
        query = f"?fieldManager=disttrain&fieldValidation={'Strict' if strict else 'Ignore'}"
        if keys.wanted(manifest):
            manifest = await asyncio.to_thread(keys.filled, manifest)
        body = msgspec.json.encode(manifest)
        for last in (False, True):
            try:
                async with self._writes.turn(job.key):
                    answer = await self._api.call("POST", path + query, body)
            except AlreadyExists:
                try:
                    answer = await self._api.call("GET", f"{path}/{quote(name)}")
                except NotFound:
                    if last:
                        raise
                    continue  # it went in this very moment
                self._claim(job, kind, name, answer)
            except Refused as error:
                meaning = judge(error, kind, name)
                raise meaning from error if meaning is not error else None
            if kind == "Pod":
                self._pods.answered(view(_pod(answer)))
            return

    def _claim(self, job: Job, kind: str, name: str, body: bytes) -> None:
        """Accepts what has the name if it is this job's; else raises a Verdict."""
        metadata = _owned(body).metadata
        owner = next((one for one in metadata.owner_references if one.controller), None)
        if owner is None:
            words = "exists and belongs to nobody: delete it, or name the job otherwise"
            raise Verdict("NameTaken", kind, name, "NameTaken", words)
        if owner.uid == job.metadata.uid:
            if kind == "Pod" and metadata.labels.get(LABEL_JOB_UID) != job.metadata.uid:
                words = f"it is this job's but has lost its label {LABEL_JOB_UID}: delete it"
                raise Verdict("NameTaken", kind, name, "LabelsLost", words)
            return
        if owner.kind == KIND and owner.name == job.metadata.name:
            words = "the deleted job of the same name still has it"
            raise Verdict("Predecessor", kind, name, "Predecessor", words)
        words = f"exists and belongs to {owner.kind} {owner.name}: name the job otherwise"
        raise Verdict("NameTaken", kind, name, "NameTaken", words)

    async def _delete(self, deletion: Deletion) -> None:
        pod = self._pods.get(deletion.pod.uid)
        if pod is None:
            return
        path = f"{PATHS['Pod'].format(quote(pod.namespace))}/{quote(pod.name)}"
        key = (pod.namespace, pod.job)
        try:
            if deletion.unlist and pod.live and not pod.terminal:
                patch = msgspec.json.encode({"metadata": {"uid": pod.uid, "labels": {LABEL_LIVE: None}}})
                async with self._writes.turn(key):
                    self._take(await self._api.call("PATCH", f"{path}?fieldManager=disttrain", patch, MERGE))
            if pod.deletion is None:
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": pod.uid}}
                async with self._writes.turn(key):
                    self._take(await self._api.call("DELETE", path, msgspec.json.encode(options)))
        except NotFound:
            pass
        except Conflict:
            if await self._is_there(path, pod.uid):
                raise
        self._pods.deleting(pod.uid, self._clock())

    async def _is_there(self, path: str, uid: str) -> bool:
        """Whether the name still belongs to the pod of this uid."""
        try:
            return _owned(await self._api.call("GET", path)).metadata.uid == uid
        except NotFound:
            return False

    def _take(self, body: bytes) -> None:
        """Puts the pod of an answer into the cache; a DELETE may also answer with a bare Status."""
        try:
            pod = view(_pod(body))
        except msgspec.ValidationError:
            return
        if pod.uid:
            self._pods.answered(pod)


__all__ = ["Applier", "NamespaceEnds", "Stopped", "Verdict", "judge"]
