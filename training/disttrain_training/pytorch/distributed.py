"""Joining and leaving the world of processes that train together; a process that was given no world trains alone.

Reads what torchrun sets, or an operator for plain `python`: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK
(0 where it is not set). gloo on CPU, NCCL on CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from ..progress import warn_if_alone
from ..shutdown import Refused

T = TypeVar("T")

ALONE = "Start with torchrun, without --standalone, --nnodes or --node-rank: the job sets them"
"""What a pod that trains alone is told."""


@dataclass(frozen=True)
class World:
    """This process's place among all, and what they do together. Each method must be called by every rank alike."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise sums over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return cast(list[float], tensor.tolist())

    def on_rank_0(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 alone. Every rank gets its result; if it is Refused or the disk refuses, all raise
        that.
        """
        outcome: list[T | Exception | None] = [None]
        if self.rank == 0:
            try:
                outcome[0] = work()
            except (Refused, OSError) as error:
                outcome[0] = error
        if self.size > 1:
            dist.broadcast_object_list(outcome, src=0, device=self.device)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return cast(T, outcome[0])

    def gather(self, value: T) -> list[T]:
        """On rank 0 every rank's value, by rank; elsewhere an empty list."""
        if self.size == 1:
            return [value]
        values: list[T | None] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, values, dst=0)
        return cast(list[T], values or [])


@contextmanager
def joined(
    device: str = "auto",
    *,
    start_timeout: float = 1800,
    step_timeout: float = 300,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[World]:
    """Join the world, and leave it together at the end: nobody goes while a peer may still need them.

    `start_timeout` (seconds) bounds the wait for the peers, `step_timeout` that for a silent peer in any later
    collective. After an exception the process group is left as it is: tearing it down can wait for peers that are
    gone, and the process is about to end (`shutdown.run`), which they notice at once.
    """
    rank, local_rank, size = place(environ)
    world = World(rank, local_rank, size, pick_device(device, local_rank))
    warn_if_alone(world.size, ALONE, environ)
    if size == 1:
        yield world
        return
    try:
        dist.init_process_group(
            backend="nccl" if world.device.type == "cuda" else "gloo",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=start_timeout),
            device_id=world.device if world.device.type == "cuda" else None,
        )
        world.sum([1.0])  # the first collective opens the connections
    except RuntimeError as error:
        raise Refused(
            f"the {size} processes did not all meet at {environ['MASTER_ADDR']}:{environ['MASTER_PORT']} "
            f"within {start_timeout:g} s (this is rank {rank}): {error}"
        ) from error
    # Private, but the only way to wait long for peers to start and not so long for one that fell silent.
    _set_pg_timeout(timedelta(seconds=step_timeout))
    yield world
    dist.barrier()
    dist.destroy_process_group()


def place(environ: Mapping[str, str]) -> tuple[int, int, int]:
    """(rank, local rank, world size). A world that is half described is refused: guessing would train alone or hang."""
    given = {name: environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    lacking = [name for name, value in given.items() if not value]
    if not given["RANK"] and not given["WORLD_SIZE"]:
        if given["MASTER_ADDR"]:
            raise Refused(
                f"MASTER_ADDR is {given['MASTER_ADDR']!r} but RANK and WORLD_SIZE are not set: "
                "with more than one process a pod, start with torchrun; to train alone, unset MASTER_ADDR"
            )
        return 0, 0, 1
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    local_rank = _number(environ, "LOCAL_RANK") if environ.get("LOCAL_RANK") else 0
    if rank >= size:
        raise Refused(f"RANK is {rank} and WORLD_SIZE {size}: ranks are 0 to WORLD_SIZE - 1")
    if size > 1 and lacking:
        raise Refused(f"WORLD_SIZE is {size} but {' and '.join(lacking)} not set: start with torchrun, or set all four")
    return rank, local_rank, size


def pick_device(device: str, local_rank: int) -> torch.device:
    """`auto` (CUDA where there is any), `cpu` or `cuda`; one GPU a process, by local rank."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise Refused(
            f"local rank {local_rank} finds {torch.cuda.device_count()} CUDA devices: "
            "start as many processes a machine as it has GPUs, or give --device=cpu"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    if not value.isdigit():
        raise Refused(f"{name} is {value!r}, must be a whole number: start with torchrun, or set RANK and WORLD_SIZE")
    return int(value)
