"""Pods as the operator sees them: the few fields it acts on, decoded straight from the wire.

A pod of the API is 3 to 30 KB; a `PodView` is well under 1 KB, so that thousands fit into a small operator.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct, field

from .constants import LABEL_INDEX, LABEL_JOB, LABEL_JOB_UID, LABEL_LIVE, LABEL_ROLE, LABEL_ROUND
from .times import seconds
from .types import Base, Metadata

Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class Slot(NamedTuple):
    """One place in a job's world; pods come and go in it."""

    role: str
    number: int
    """Index within the role, from 0."""

    def __str__(self) -> str:
        return f"{self.role}-{self.number}"


MAX_WORDS = 512
"""Characters of a message that are kept: they reach the job's status, which is bounded."""


class PodView(Struct, frozen=True, kw_only=True):
    """One pod of a job. Times are seconds since 1970, messages at most MAX_WORDS long."""

    namespace: str
    name: str
    uid: str
    version: int
    """resourceVersion, compared as a number: the newer of two views of one uid wins."""
    owner: str
    """UID of the controller owner, empty where there is none."""
    job: str
    job_uid: str
    role: str
    index: int
    round: int
    live: bool
    """Whether the pod's name still resolves to it."""
    main: str = ""
    """Name of the main container, the template's first."""
    phase: Phase = "Pending"
    ready: bool = False
    node: str = ""
    deletion: float | None = None
    """When the pod's grace ends, if it is being deleted."""
    reason: str = ""
    """The pod's own reason, such as Evicted."""
    message: str = ""
    """The kubelet's words for it."""
    disrupted: bool = False
    """Whether the DisruptionTarget condition is true: preempted, drained or evicted through the API."""
    unscheduled: str = ""
    """The scheduler's words where it found no node."""
    waiting: str = ""
    """Reason for which a container waits, such as ImagePullBackOff."""
    waiting_message: str = ""
    exit_code: int | None = None
    """Exit code of the main container, or of the init container that failed."""
    signal: int | None = None
    exit_reason: str = ""
    """Reason of that container's end, such as OOMKilled."""
    ended_at: float | None = None
    """When it ended."""
    exit_message: str = ""
    """Its termination message, at most 4 KiB."""

    @property
    def slot(self) -> Slot:
        """The pod's place in the world."""
        return Slot(self.role, self.index)

    @property
    def succeeded(self) -> bool:
        """The main container ended with 0: a sidecar that goes on does not count."""
        return self.phase == "Succeeded" or (self.exit_code == 0 and self.phase != "Failed")

    @property
    def failed(self) -> bool:
        """The main container, an init container or the pod as a whole failed."""
        return self.phase == "Failed" or bool(self.exit_code)

    @property
    def ended(self) -> bool:
        """Succeeded or failed."""
        return self.succeeded or self.failed

    @property
    def terminal(self) -> bool:
        """No container runs any more, so that nothing is left to stop and no name resolves to the pod."""
        return self.phase in ("Succeeded", "Failed")


# The wire's shape, as far as it is read. Unknown fields are skipped by the decoder, which costs nothing.


class _Terminated(Base):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class _Waiting(Base):
    reason: str = ""
    message: str = ""


class _State(Base):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(Base):
    name: str
    state: _State = field(default_factory=_State)


class _Condition(Base):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(Base):
    phase: Phase = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] = field(default_factory=list)
    container_statuses: list[_ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[_ContainerStatus] = field(default_factory=list)


class _Container(Base):
    name: str


class _PodSpec(Base):
    node_name: str = ""
    containers: list[_Container] = field(default_factory=list)


class WirePod(Base):
    """A pod as the API sends it."""

    metadata: Metadata
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _PodStatus = field(default_factory=_PodStatus)


QUIET_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for waiting that every healthy pod passes through."""


def _number(text: str | None, default: int = 0) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else default


def view(pod: WirePod) -> PodView:
    """The view of a pod. A pod whose labels are not ours gets role and job empty and round 0."""
    meta, status = pod.metadata, pod.status
    labels = meta.labels
    main = pod.spec.containers[0].name if pod.spec.containers else ""
    ended: _Terminated | None = None
    waiting = _Waiting()
    for container in status.container_statuses:
        if container.name == main:
            ended = container.state.terminated
        if container.state.waiting and container.state.waiting.reason not in QUIET_WAITS:
            waiting = container.state.waiting
    for container in status.init_container_statuses:
        if container.state.waiting and container.state.waiting.reason not in QUIET_WAITS:
            waiting = container.state.waiting
        broken = container.state.terminated
        if ended is None and status.phase == "Failed" and broken and broken.exit_code:
            ended = broken
    ready = disrupted = False
    unscheduled = ""
    for condition in status.conditions:
        if condition.type == "Ready":
            ready = condition.status == "True"
        elif condition.type == "DisruptionTarget":
            disrupted = condition.status == "True"
        elif condition.type == "PodScheduled" and condition.status == "False" and status.phase in ("", "Pending"):
            unscheduled = (condition.message or condition.reason)[:MAX_WORDS]
    owner = next((o.uid for o in meta.owner_references if o.controller), "")
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=_number(meta.resource_version),
        owner=owner,
        job=labels.get(LABEL_JOB, ""),
        job_uid=labels.get(LABEL_JOB_UID, ""),
        role=labels.get(LABEL_ROLE, ""),
        index=_number(labels.get(LABEL_INDEX), -1),
        round=_number(labels.get(LABEL_ROUND)),
        live=labels.get(LABEL_LIVE) == "true",
        main=main,
        phase=status.phase,
        ready=ready,
        node=pod.spec.node_name,
        deletion=seconds(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        reason=status.reason,
        message=status.message[:MAX_WORDS],
        disrupted=disrupted,
        unscheduled=unscheduled,
        waiting=waiting.reason,
        waiting_message=waiting.message[:MAX_WORDS],
        exit_code=ended.exit_code if ended else None,
        signal=ended.signal if ended else None,
        exit_reason=ended.reason if ended else "",
        ended_at=seconds(ended.finished_at) if ended and ended.finished_at else None,
        exit_message=ended.message[:4096] if ended else "",
    )
