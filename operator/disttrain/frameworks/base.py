"""What a framework must say so that its pods find each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ..api.names import address
from ..api.pods import Slot
from ..api.types import Job, RoleName


class World(Struct, frozen=True):
    """The pods of one round: sizes that have been written to the status, not those that the spec may ask for by now."""

    job: Job
    round: int
    slots: Sequence[Slot]
    """All slots in order of rank, the leader first."""
    procs: int
    """Training processes a pod."""
    ranks: Mapping[Slot, int]
    """Each slot's place in that order."""
    port: int
    """Port on which the leader is found; its neighbours where a framework needs more."""

    @property
    def leader(self) -> Slot:
        """The slot whose success and progress are the job's."""
        return self.slots[0]

    @property
    def size(self) -> int:
        """Processes that train together."""
        return self.procs * len(self.slots)

    def address(self, slot: Slot) -> str:
        """DNS name of the slot's pod, the same for each pod that is ever in it."""
        return address(*self.job.key, slot.role, slot.number)


class Framework(Protocol):
    """One framework. Add one by writing a module with these and listing it in `frameworks.FRAMEWORKS`."""

    roles: Sequence[RoleName]
    """Roles that it has a use for, in order of rank: the first that has pods leads."""
    restarts_whole: bool
    """Whether the peers of a lost member cannot go on without it."""
    port: int
    """The port that its leader usually listens on."""

    def env(self, world: World, slot: Slot) -> Mapping[str, str]:
        """Environment of every container of the slot's pod, beside what all frameworks share."""

    def ports(self, world: World, slot: Slot) -> Sequence[int]:
        """Ports that the slot's pod listens on for its peers."""

    def debug_env(self) -> Mapping[str, str]:
        """Environment of `debug: true`."""

    def warnings(self, job: Job) -> Sequence[str]:
        """What in the job's templates will not work as the user may think, each with the cure."""
