"""The world of a round: which pods there are, in which order, with how many processes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from ..api.plan import Settings
from ..api.pods import Slot
from ..api.types import Job, RoleName
from .accelerators import Undecided
from .base import Framework, World
from .objects import template

PORTS = range(20_000, 30_000)
"""Where ports are allotted from: above what services use, below Linux' ephemeral ports (32768 and up)."""


def wanted(job: Job, framework: Framework) -> dict[RoleName, int]:
    """Pods of each role that the spec asks for."""
    found = {role: job.role(role) for role in framework.roles}
    implied = dict.fromkeys(framework.implied, 1)
    return {**implied, **{role: written.replicas for role, written in found.items() if written}}


def slots(sizes: Mapping[RoleName, int], framework: Framework) -> list[Slot]:
    """All slots in order of rank, the leader first."""
    return [Slot(role, number) for role in framework.roles for number in range(sizes.get(role, 0))]


def size(job: Job, places: Sequence[Slot], framework: Framework) -> tuple[int, int]:
    """Training processes a pod, and in the world. Raises Undecided."""
    trains = framework.trains(job)
    trainers = [slot for slot in places if slot.role in trains]
    procs = framework.procs(job, template(job, (trainers or list(places))[-1].role))
    return procs, procs * len(trainers)


def build(
    job: Job, places: Sequence[Slot], rounds: Mapping[Slot, int], framework: Framework, settings: Settings
) -> World:
    """The world with these slots and their rounds. Raises Undecided."""
    procs, total = size(job, places, framework)
    shared = job.spec.network == "Host" or settings.allot_ports
    port = framework.port(job)
    if shared:
        # Pure: a hash of the job's uid and the round, so that a restart never waits for a socket of the world before.
        round_ = 1 if framework.keeps_ports(job) else rounds[places[0]]
        room = len(PORTS) - len(places)
        port = PORTS.start + zlib.crc32(f"{job.metadata.uid}/{round_}".encode()) % max(room, 1)
    return World(
        job=job,
        slots=places,
        ranks={slot: rank for rank, slot in enumerate(places)},
        rounds=rounds,
        procs=procs,
        size=total,
        first_port=port,
        shared=shared,
        renames=framework.renames,
    )


__all__ = ["PORTS", "Undecided", "build", "size", "slots", "wanted"]
