"""A change of the number of pods, for a job that cannot train through it: one restart of the world at the new size."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.types import Job, RoleName


def committed(job: Job, roles: Mapping[RoleName, int]) -> dict[RoleName, int]:
    """The sizes that the current round has been started with."""
    return {role: job.role_status(role).replicas for role in roles}


def asked(job: Job, sizes: Mapping[RoleName, int]) -> str | None:
    """What is to change, in plain words, where the spec asks for other sizes than the round has."""
    now = committed(job, sizes)
    changes = [f"{role} from {now[role]} to {size}" for role, size in sizes.items() if size != now[role]]
    return ", ".join(changes) or None
