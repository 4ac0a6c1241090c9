"""What a framework must say so that its pods find each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..api import names
from ..api.plan import Manifest
from ..api.pods import Slot
from ..api.types import Job, RoleName
from .accelerators import processes


class World(Struct, frozen=True, kw_only=True):
    """The pods of one round: sizes that have been written to the status, not those that the spec may ask for by now."""

    job: Job
    slots: Sequence[Slot]
    """All slots in order of rank, the leader first."""
    ranks: Mapping[Slot, int]
    """Each slot's place in that order."""
    rounds: Mapping[Slot, int]
    """The round that each slot's pod belongs to."""
    procs: int
    """Training processes a pod."""
    size: int
    """Processes that train together."""
    first_port: int
    """The leader's port; where `shared`, the slot of rank n has the n-th from it."""
    shared: bool
    """Whether pods share addresses (the node's network, one machine), so that each needs a port of its own."""
    renames: bool
    """Whether a pod's host name tells its round."""

    @property
    def leader(self) -> Slot:
        """The slot whose success and progress are the job's."""
        return self.slots[0]

    def hostname(self, slot: Slot) -> str:
        """Host name of the slot's pod, the same for each pod that is ever in it unless the world `renames`."""
        return names.hostname(slot.role, slot.number, self.rounds[slot] if self.renames else 1)

    def address(self, slot: Slot) -> str:
        """DNS name of the slot's pod, as stable as its host name."""
        return names.address(*self.job.key, slot.role, slot.number, self.rounds[slot] if self.renames else 1)

    def port(self, slot: Slot) -> int:
        """Port on which the slot's pod listens for its peers."""
        return self.first_port + (self.ranks[slot] if self.shared else 0)


class Framework(ABC):
    """One framework. Add one by writing a module with a subclass and listing it in `frameworks.FRAMEWORKS`.

    All methods are pure. Only what differs from the defaults need be written.
    """

    roles: Sequence[RoleName]
    """Roles that it has a use for, in order of rank: the first that has pods leads."""
    implied: Collection[RoleName] = ()
    """Roles that have one pod also where the spec does not write them."""
    renames: bool = False
    """Whether a pod's host name tells its round, for what remembers failed hosts by name."""

    @abstractmethod
    def port(self, job: Job) -> int:
        """The port that its processes listen on where each pod has an address of its own."""

    @abstractmethod
    def env(self, world: World, slot: Slot) -> Mapping[str, str]:
        """Environment of every container of the slot's pod, beside what all frameworks share."""

    @abstractmethod
    def ports(self, world: World, slot: Slot) -> Sequence[int]:
        """Ports that the slot's pod listens on for its peers."""

    def trains(self, job: Job) -> Collection[RoleName]:
        """Roles whose processes make up the world."""
        return self.roles

    def procs(self, job: Job, template: dict[str, Any]) -> int:
        """Training processes of a pod that is made from a template. Raises accelerators.Undecided."""
        return processes(job.spec, template)

    def defaults(self, world: World, slot: Slot) -> Mapping[str, str]:
        """Environment of the slot's containers that the template may set otherwise."""
        return {}

    def endless(self, job: Job) -> Collection[RoleName]:
        """Roles that serve until they are stopped: nobody waits for their end, and they go when the job has ended."""
        return ()

    def late(self, job: Job) -> Collection[RoleName]:
        """Roles whose pods are made once those of all others are Ready: what would fail at once without its peers."""
        return ()

    def objects(self, world: World) -> Sequence[Manifest]:
        """Objects beside the Service and the pods (ConfigMaps, Secrets), made before each round's pods. They are never
        changed: what differs from round to round carries the round in its name."""
        return ()

    def complete(self, world: World, slot: Slot, spec: dict[str, Any]) -> dict[str, Any]:
        """The slot's pod spec with what the framework needs in it: volumes, a probe, a default command."""
        return spec

    def restarts(self, job: Job, lost: Slot, slots: Sequence[Slot]) -> Collection[Slot]:
        """The slots that need a new pod when one is lost: all of them, unless the others can go on."""
        return slots

    def keeps_ports(self, job: Job) -> bool:
        """Whether ports must outlive rounds, since the others go on when a pod is replaced."""
        return False

    def debug_env(self) -> Mapping[str, str]:
        """Environment of `debug: true`."""
        return {}

    def warnings(self, job: Job) -> Sequence[str]:
        """What in the job's templates will not work as the user may think, each with the cure."""
        return ()
