"""The status changes that are written before anything is done: the start of a round, and the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import structs

from ..api import progress as progress_
from ..api import ranges
from ..api.constants import KEPT_FAILURES, LABEL_JOB_UID, LABEL_ROLE
from ..api.pods import PodView, Slot
from ..api.times import stamp
from ..api.types import (
    ROLES,
    Condition,
    ConditionType,
    Failure,
    Job,
    Progress,
    RoleName,
    RoleStatus,
    RoundCause,
    State,
    Status,
)
from . import counters, deadlines
from .conditions import ConditionStatus, put
from .restart import Verdict, step
from .view import View

STATE_OF: Mapping[RoundCause, State] = {
    "Start": "Starting",
    "Restart": "Restarting",
    "Resize": "Resizing",
    "Resume": "Starting",
}
"""The state of a round whose pods do not all run yet, by the cause of the round."""


def begin(
    job: Job,
    now: float,
    *,
    round_: int,
    cause: RoundCause,
    slots: Sequence[Slot],
    stay: Mapping[Slot, int],
    world_size: int,
    message: str,
) -> Status:
    """The status with which a round begins.

    `slots` are all of the new world; those in `stay` keep their pod, of the round given there.
    """
    status, generation = job.status, job.metadata.generation
    state = STATE_OF[cause]
    conditions: list[Condition] = status.conditions
    for kind in ("Running", "Stalled", "Suspended"):
        if kind == "Running" or any(c.type == kind for c in conditions):
            conditions = put(conditions, kind, "False", state, message, now, generation)
    roles: dict[str, Any] = {role: _role(job, role, slots, stay) for role in ROLES}
    return structs.replace(
        status,
        state=state,
        message=message,
        conditions=conditions,
        observed_generation=generation,
        round=round_,
        round_cause=cause,
        round_time=stamp(now),
        active_since=status.active_since or stamp(now),
        world_size=world_size,
        selector=f"{LABEL_JOB_UID}={job.metadata.uid},{LABEL_ROLE}=worker",
        ready=counters.summary({role: found for role, found in roles.items() if found}),
        start_time=status.start_time or stamp(now),
        **roles,
    )


def _role(job: Job, role: RoleName, slots: Sequence[Slot], stay: Mapping[Slot, int]) -> RoleStatus | None:
    """A role's status at the start of a round; None for a role that the world does not have."""
    mine = [slot for slot in slots if slot.role == role]
    if not mine and job.role(role) is None:
        return None
    rounds: dict[int, list[int]] = {}
    for slot in mine:
        if slot in stay:
            rounds.setdefault(stay[slot], []).append(slot.number)
    kept = {slot.number for slot in mine if slot in stay}
    before = job.role_status(role)
    return RoleStatus(
        replicas=len(mine),
        ready=min(before.ready, len(kept)),
        completed=ranges.pack(ranges.unpack(before.completed) & kept),
        rounds={str(number): ranges.pack(indexes) for number, indexes in sorted(rounds.items())},
    )


def restarted(view: View, verdict: Verdict, status: Status) -> Status:
    """The status with a loss and, where it is one, its charge."""
    status = structs.replace(status, failures=_failures(view, verdict))
    if not verdict.charged:
        return status
    return structs.replace(
        status,
        restarts=status.restarts + 1,
        restarts_in_a_row=verdict.in_a_row,
        restart_checkpoint=max(step(view), status.restart_checkpoint),
    )


def _failures(view: View, verdict: Verdict) -> list[Failure]:
    loss, pod = verdict.loss, verdict.loss.pod
    failure = Failure(
        pod=pod.name if pod else "",
        uid=pod.uid if pod else "",
        role=loss.slot.role,
        index=loss.slot.number,
        round=view.rounds[loss.slot],
        node=pod.node if pod else "",
        reason=loss.reason,
        exit_code=loss.exit_code,
        time=stamp(view.now),
        charged=verdict.charged,
    )
    return [*view.job.status.failures, failure][-KEPT_FAILURES:]


def end(job: Job, now: float, state: Literal["Succeeded", "Failed"], reason: str, message: str) -> Status:
    """The one terminal status, whatever the reason."""
    generation = job.metadata.generation
    conditions = job.status.conditions
    changes: list[tuple[ConditionType, ConditionStatus]] = [("Running", "False"), (state, "True")]
    if any(c.type == "Stalled" for c in conditions):
        changes.insert(0, ("Stalled", "False"))
    for kind, value in changes:
        conditions = put(conditions, kind, value, reason, message, now, generation)
    return structs.replace(
        job.status,
        state=state,
        message=message,
        conditions=conditions,
        observed_generation=generation,
        active_seconds=deadlines.active(job.status, now),
        active_since=None,
        completion_time=stamp(now),
    )


def with_progress(status: Status, seen: Progress | None, now: float) -> Status:
    """The status with the newest progress."""
    if seen is None or seen == status.progress:
        return status
    moved = stamp(now) if deadlines.further(status.progress, seen) else status.progress_time
    return structs.replace(status, progress=seen, progress_text=progress_.summary(seen), progress_time=moved)


def with_result(status: Status, leader: PodView | None, now: float) -> Status:
    """The status with the final numbers that the leader left in its termination message."""
    found: dict[str, Any] | None = progress_.parse(leader.exit_message) if leader and leader.exit_message else None
    if found is None:
        return status
    told = structs.replace(progress_.progress_of(found), round=status.round)
    return structs.replace(with_progress(status, told, now), result=progress_.result(found) or None)
