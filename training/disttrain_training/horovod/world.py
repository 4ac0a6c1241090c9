"""The world of a Horovod job, with the same methods as that of torch.distributed, so that what is built on them
(checkpoints, means over all ranks) serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import horovod.torch as hvd
import torch

from ..progress import warn_if_alone
from ..pytorch.distributed import World, pick_device
from ..shutdown import Refused

T = TypeVar("T")


class HorovodWorld(World):
    """Each method must be called by every rank alike."""

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise sums over all ranks, in float64."""
        total = hvd.allreduce(torch.tensor(values, dtype=torch.float64), op=hvd.Sum, name="sum")
        return cast(list[float], total.tolist())

    def on_rank_0(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 alone. Every rank gets its result; if it is Refused or the disk refuses, all raise
        that.
        """
        outcome: T | Exception | None = None
        if self.rank == 0:
            try:
                outcome = work()
            except (Refused, OSError) as error:
                outcome = error
        outcome = hvd.broadcast_object(outcome, root_rank=0, name="on_rank_0")
        if isinstance(outcome, Exception):
            raise outcome
        return cast(T, outcome)

    def gather(self, value: T) -> list[T]:
        """On rank 0 every rank's value, by rank; elsewhere an empty list."""
        values = cast(list[T], hvd.allgather_object(value, name="gather"))
        return values if self.rank == 0 else []


@contextmanager
def joined(device: str = "auto") -> Iterator[HorovodWorld]:
    """Join the world that `horovodrun` or `mpirun` started, and leave it together at the end."""
    hvd.init()
    world = HorovodWorld(hvd.rank(), hvd.local_rank(), hvd.size(), pick_device(device, hvd.local_rank()))
    warn_if_alone(world.size, "Start with disttrain-horovodrun, or with mpirun, in the launcher")
    yield world
    hvd.barrier()
    hvd.shutdown()
