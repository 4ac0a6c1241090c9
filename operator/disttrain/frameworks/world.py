"""The world of a round: which pods there are, in which order, with how many processes."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.plan import Settings
from ..api.pods import Slot
from ..api.types import Job, RoleName
from .accelerators import Undecided, processes
from .base import Framework, World
from .objects import port, template


def wanted(job: Job, framework: Framework) -> dict[RoleName, int]:
    """Pods of each role that the spec asks for."""
    found = {role: job.role(role) for role in framework.roles}
    return {role: written.replicas for role, written in found.items() if written}


def slots(sizes: Mapping[RoleName, int], framework: Framework) -> list[Slot]:
    """All slots in order of rank, the leader first."""
    return [Slot(role, number) for role in framework.roles for number in range(sizes.get(role, 0))]


def procs(job: Job, places: list[Slot]) -> int:
    """Training processes a pod. Raises Undecided."""
    return processes(job.spec, template(job, places[-1].role))


def build(job: Job, round_: int, places: list[Slot], framework: Framework, settings: Settings) -> World:
    """The world of a round with these slots. Raises Undecided."""
    return World(
        job=job,
        round=round_,
        slots=places,
        procs=procs(job, places),
        ranks={slot: rank for rank, slot in enumerate(places)},
        port=port(job, round_, framework, settings),
    )


__all__ = ["Undecided", "build", "procs", "slots", "wanted"]
