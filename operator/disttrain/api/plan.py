"""What the core says to the control loop: `reconcile(job, seen, now) -> Plan`.

The core decides, the loop acts. A plan either *commits* (one guarded status write, after which the loop plans again)
or *acts* (objects, pods, then at most one status write). So nothing is done on the strength of a decision that has
not been written down: restarts are charged once, whoever is leader and whenever the operator dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from .pods import PodView
from .types import Job, Progress, Status

Manifest = dict[str, Any]


class Settings(Struct, frozen=True, kw_only=True):
    """What a platform engineer chose for all jobs."""

    allot_ports: bool = False
    """Give every job ports of its own also under `network: Pod`: several pods share one machine's addresses."""
    reads_progress: bool = True
    """Whether the leaders' logs are read: without that, no progress is no sign of a standstill."""


class Refusal(Struct, frozen=True, kw_only=True):
    """The API server's answer to an object that we tried to make, while it stands."""

    reason: Literal["Invalid", "Forbidden", "NameTaken", "Predecessor"]
    """`Invalid`: 400 or 422, final until the spec changes. `Forbidden`: 403 and what others can repair. `NameTaken`:
    an object of that name is not ours. `Predecessor`: it belongs to a deleted job of the same name."""
    kind: str
    """Kind of the object that was refused: Pod, Service, ..."""
    name: str
    word: str
    """The condition's reason: InvalidTemplate, QuotaExceeded, PodSecurity, ServiceAccountMissing, Forbidden, ..."""
    message: str
    """The API server's own words."""
    generation: int
    """Generation of the spec that was refused."""
    retry_at: float
    """When to try again, seconds since 1970."""


class Seen(Struct, frozen=True, kw_only=True):
    """What the loop knows of a job beside the object itself."""

    pods: Sequence[PodView] = ()
    """Every pod that carries the job's uid, also of older rounds and being deleted."""
    absent: Mapping[str, int] = {}
    """Names of pods that are known not to exist, with the resourceVersion as of which: that of the deletion that was
    watched, or that of the job in hand when a GET found nothing."""
    departed: Sequence[PodView] = ()
    """Pods of the newest round that had ended and have been deleted since, as they were last seen: how they ended must
    not be lost with them."""
    refusal: Refusal | None = None
    progress: Progress | None = None
    """What the leader printed last, if its log was read."""


class Creation(Struct, frozen=True, kw_only=True):
    """A pod to make."""

    manifest: Manifest
    replaces: PodView | None = None
    """The slot's pod of an older round: its name is taken off and it is deleted first."""


class Deletion(Struct, frozen=True, kw_only=True):
    """A pod to delete, by uid."""

    pod: PodView
    unlist: bool
    """Whether to take its `live` label off first, so that its name never resolves to the dying."""


class Event(Struct, frozen=True, kw_only=True):
    """An event on the job. The loop coalesces equal reasons."""

    reason: str
    message: str
    warning: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """What to do next."""

    commit: Status | None = None
    """Write this status, guarded by the job's resourceVersion, and plan again; do nothing else before it holds."""
    stale: bool = False
    """The job in hand is older than its pods: GET it and plan again."""
    look: Sequence[str] = ()
    """GET these pods, which should exist and are not in the cache, and plan again with what was found: a cache that is
    older than the job in hand must not pass for a loss."""
    objects: Sequence[Manifest] = ()
    """Services (later ConfigMaps, Secrets) to make before the pods; those that exist and are ours are left."""
    create: Sequence[Creation] = ()
    """Pods to make. The first is made alone and strictly checked; the others follow at once."""
    delete: Sequence[Deletion] = ()
    """Pods to delete that have no successor."""
    status: Status | None = None
    """The status that holds now, if it differs from the job's."""
    write_after: float = 0.0
    """Seconds since the job's last status write before this one is worth a call: 0 for what people wait for, more for
    counters, so that the number of writes does not grow with the number of pods."""
    events: Sequence[Event] = ()
    """Events to send once the status holds (at once, where there is none to write)."""
    wake: float | None = None
    """When to plan again at the latest, seconds since 1970."""
    read_progress: PodView | None = None
    """The leader, while it runs and its log may say how far the training is."""
    remove: bool = False
    """Delete the job itself, by uid: its time to live is over."""
    finished: bool = False
    """The job has ended and nothing is left to do for it."""


class Reconcile(Protocol):
    """The core's signature."""

    def __call__(self, job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
        """Pure: no I/O, no clock, no randomness."""
