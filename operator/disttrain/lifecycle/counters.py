"""How many pods of each role there are, are ready, have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from ..api import ranges
from ..api.pods import PodView
from ..api.types import ROLES, Job, RoleStatus
from .view import View


def roles(view: View) -> dict[str, RoleStatus]:
    """The role statuses that hold now, of the roles in the world."""
    found: dict[str, RoleStatus] = {}
    for role in dict.fromkeys(slot.role for slot in view.slots):
        pods = [pod for slot, pod in view.current.items() if slot.role == role]
        done = {slot.number for slot in view.completed if slot.role == role}
        found[role] = structs.replace(
            view.job.role_status(role),
            ready=sum(pod.ready and not pod.ended for pod in pods),
            succeeded=len(done),
            failed=sum(pod.failed for pod in pods),
            completed=ranges.pack(done),
        )
    return found


def final(job: Job, pods: Iterable[PodView]) -> dict[str, RoleStatus]:
    """The same for a job that has ended: what has been counted stays, also when its pod is gone."""
    seen = [pod for pod in pods if pod.round == job.status.round]
    found: dict[str, RoleStatus] = {}
    for role in ROLES:
        status: RoleStatus | None = getattr(job.status, role)
        if status is None:
            continue
        mine = [pod for pod in seen if pod.role == role]
        done = ranges.unpack(status.completed) | {pod.index for pod in mine if pod.succeeded}
        found[role] = structs.replace(
            status,
            ready=sum(pod.ready and not pod.ended for pod in mine),
            succeeded=len(done),
            failed=max(status.failed, sum(pod.failed for pod in mine)),
            completed=ranges.pack(done),
        )
    return found


def summary(found: Mapping[str, RoleStatus]) -> str:
    """Ready pods of all: `3/4`."""
    return f"{sum(r.ready for r in found.values())}/{sum(r.replicas for r in found.values())}"
