"""What every policy looks at: a job with the pods of its current round, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cached_property

from msgspec import Struct

from ..api import ranges
from ..api.pods import PodView, Slot
from ..api.types import Job, Progress


class View(Struct, frozen=True, kw_only=True, dict=True):
    """A job at one moment."""

    job: Job
    now: float
    """Seconds since 1970."""
    slots: Sequence[Slot]
    """The world's slots in order of rank, the leader first."""
    rounds: Mapping[Slot, int]
    """The round that each slot is in."""
    current: Mapping[Slot, PodView]
    """Pods of the round that their slot is in."""
    departed: Mapping[Slot, PodView] = {}
    """Pods of this round that had ended and are gone since."""
    old: Sequence[PodView]
    """Pods of earlier rounds, or of slots that are no more."""
    progress: Progress | None = None
    """The newest progress known, from the log or the status."""
    reads_progress: bool = True
    """Whether there is news of it while the training runs."""

    @property
    def leader(self) -> Slot:
        """The slot whose success is the job's."""
        return self.slots[0]

    @cached_property
    def completed(self) -> Set[Slot]:
        """Slots that ended with success in this round, also those whose pod has been collected since."""
        known = {
            Slot(role, number)
            for role in dict.fromkeys(slot.role for slot in self.slots)
            for number in ranges.unpack(self.job.role_status(role).completed)
        }
        ended = [*self.departed.items(), *self.current.items()]
        return known | {slot for slot, pod in ended if pod.succeeded}

    @property
    def launched(self) -> bool:
        """Whether every pod of this round has been created once."""
        return self.job.status.launched == self.job.status.round

    @cached_property
    def missing(self) -> list[Slot]:
        """Slots without a pod that have not completed, in order of rank."""
        return [slot for slot in self.slots if slot not in self.current and slot not in self.completed]

    @cached_property
    def running(self) -> int:
        """Slots whose pod runs or has completed."""
        return len(self.completed) + sum(
            pod.phase == "Running" and slot not in self.completed for slot, pod in self.current.items()
        )


def slot_rounds(job: Job, slots: Sequence[Slot]) -> dict[Slot, int]:
    """The round that each slot is in: the job's, unless the status says another."""
    found = dict.fromkeys(slots, job.status.round)
    for role in dict.fromkeys(slot.role for slot in slots):
        for round_, text in job.role_status(role).rounds.items():
            found.update({Slot(role, number): int(round_) for number in ranges.unpack(text)})
    return {slot: found[slot] for slot in slots}
