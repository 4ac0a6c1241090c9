"""A job that is suspended has no pods, and keeps what it has learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from ..api.times import stamp
from ..api.types import ROLES, Job, RoleStatus, Status
from . import deadlines
from .conditions import put

MESSAGE = "The job is suspended; set spec.suspend to false to go on."


def begin(job: Job, now: float) -> Status:
    """The status with which a suspension begins: written before the pods are deleted."""
    status, generation = job.status, job.metadata.generation
    conditions = put(status.conditions, "Suspended", "True", "Suspended", MESSAGE, now, generation)
    conditions = put(conditions, "Running", "False", "Suspended", MESSAGE, now, generation)
    if any(c.type == "Stalled" for c in conditions):
        conditions = put(conditions, "Stalled", "False", "Suspended", MESSAGE, now, generation)
    roles: Mapping[str, Any] = {
        role: RoleStatus() if job.role(role) or getattr(status, role) else None for role in ROLES
    }
    return structs.replace(
        status,
        state="Suspended",
        message=MESSAGE,
        conditions=conditions,
        observed_generation=generation,
        ready="0/0",
        active_seconds=deadlines.active(status, now),
        active_since=None,
        start_time=status.start_time or stamp(now),
        **roles,
    )
