"""Jobs on the wire: decoding, paths, and the merge patch of a status."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from ..api.constants import GROUP, MANAGED_BY, PLURAL, VERSION
from ..api.plan import Event, Plan
from ..api.times import stamp
from ..api.types import Base, Condition, Job, Metadata, Status

Key = tuple[str, str]
"""Namespace and name of a job."""


class BrokenJob(Struct, kw_only=True):
    """A job that does not fit the types: made before the CRD's rules, or with a newer CRD than ours."""

    metadata: Metadata
    status: Status
    words: str
    """What does not fit, with its path."""
    ours: bool
    """Whether `spec.managedBy` leaves the job to us."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name


AnyJob = Job | BrokenJob


class _Shell(Base):
    metadata: Metadata
    spec: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)


class _Page(Base):
    resource_version: str = "0"
    next: str = field(default="", name="continue")


class JobList(Base):
    """A page of a list of jobs."""

    metadata: _Page
    items: list[msgspec.Raw] = field(default_factory=list)


_job = msgspec.json.Decoder(Job).decode
_shell = msgspec.json.Decoder(_Shell).decode
decode_list = msgspec.json.Decoder(JobList).decode


def decode_job(body: bytes | msgspec.Raw) -> AnyJob:
    """The job in an answer. Raises msgspec.DecodeError where it is no object of the API at all."""
    try:
        return _job(body)
    except msgspec.ValidationError as error:
        return _broken(_shell(body), str(error))


def convert_job(body: Any) -> AnyJob:
    """The job in a decoded object, such as kopf hands out."""
    try:
        return msgspec.convert(body, Job)
    except msgspec.ValidationError as error:
        return _broken(msgspec.convert(body, _Shell), str(error))


def _broken(shell: _Shell, words: str) -> BrokenJob:
    try:
        status = msgspec.convert(shell.status, Status)
    except msgspec.ValidationError:
        status = Status()
    ours = shell.spec.get("managedBy", MANAGED_BY) == MANAGED_BY
    return BrokenJob(metadata=shell.metadata, status=status, words=words, ours=ours)


def broken_plan(job: BrokenJob, now: float) -> Plan:
    """Says in the status what cannot be read, and does nothing else. `now` is seconds since 1970."""
    if not job.ours or job.status.state in ("Succeeded", "Failed"):
        return Plan(finished=True)
    words = f"this version of the operator cannot read the job: {job.words}"[:1024]
    old = next((one for one in job.status.conditions if one.type == "Accepted"), None)
    condition = Condition(
        type="Accepted",
        status="False",
        reason="InvalidSpec",
        message=words,
        last_transition_time=old.last_transition_time if old and old.status == "False" else stamp(now),
        observed_generation=job.metadata.generation,
    )
    others = [one for one in job.status.conditions if one.type != "Accepted"]
    status = msgspec.structs.replace(
        job.status, conditions=[condition, *others], message=words, observed_generation=job.metadata.generation
    )
    if status == job.status:
        return Plan()
    return Plan(status=status, events=[Event(reason="InvalidSpec", message=words, warning=True)])


def jobs_path(namespace: str | None = None) -> str:
    """The collection of the jobs of a namespace, or of all."""
    where = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{where}/{PLURAL}"


def job_path(key: Key) -> str:
    """One job."""
    return f"{jobs_path(key[0])}/{quote(key[1])}"


def merge_diff(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) that makes `new` of `old`: changed fields only, null for those that go."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_diff(before, value):
                patch[name] = inner
        elif before != value or name not in old:
            patch[name] = value
    return patch


def status_patch(job: AnyJob, status: Status) -> bytes | None:
    """The body that makes the job's status this one, guarded by its resourceVersion; None where nothing differs."""
    diff = merge_diff(msgspec.to_builtins(job.status), msgspec.to_builtins(status))
    if not diff:
        return None
    metadata = {"resourceVersion": job.metadata.resource_version, "uid": job.metadata.uid}
    return msgspec.json.encode({"metadata": metadata, "status": diff})


def version(job: AnyJob) -> int:
    """The job's resourceVersion, compared as a number."""
    text = job.metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else 0
