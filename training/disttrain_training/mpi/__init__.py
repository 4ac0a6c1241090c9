"""For those who bring their own MPI code: the little that an MPI program needs to be a good citizen of a job."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from mpi4py import MPI

from ..progress import Progress, warn_if_alone
from ..shutdown import Refused


def environment() -> dict[str, str]:
    """The environment without DISTTRAIN_LEADER. The leader is the launcher's pod, whose log shows what rank 0 prints,
    whatever pod that runs in."""
    return {name: value for name, value in os.environ.items() if name != "DISTTRAIN_LEADER"}


def progress(world: MPI.Intracomm) -> Progress:
    """Progress as rank 0 reports it; says so where this world is smaller than the job."""
    warn_if_alone(world.size, "Start with mpirun in the launcher")
    return Progress(rank=world.rank, local_rank=world.rank, world_size=world.size, environ=environment())


def run(main: Callable[[MPI.Intracomm], object]) -> None:
    """Run `main` on every rank. A rank that fails ends them all: the others would wait for it for ever."""
    try:
        main(MPI.COMM_WORLD)
    except BaseException as error:
        if isinstance(error, Refused):
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
