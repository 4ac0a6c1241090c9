"""Compute pi together: each rank integrates its part of 4 / (1 + x^2) over 0 to 1, and a reduction adds them up.

On this machine:
    mpirun -np 2 python -m disttrain_training.mpi.pi
In the launcher of a job, whose environment says where the slots are:
    mpirun python -m disttrain_training.mpi.pi
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from mpi4py import MPI

from ..sampling import shard
from ..shutdown import Refused
from . import progress, run


def part(intervals: int, rank: int, size: int) -> float:
    """This rank's part of the integral by the midpoint rule, whose error is about 1 / (12 intervals^2)."""
    x = (shard(intervals, rank, size) + 0.5) / intervals
    return float(np.sum(4 / (1 + x * x)) / intervals)


def main(world: MPI.Intracomm) -> None:
    parser = argparse.ArgumentParser(prog="disttrain_training.mpi.pi", description="Computes pi with MPI.")
    parser.add_argument("--intervals", type=int, default=1_000_000, help="default: 1,000,000")
    options = parser.parse_args()
    reports = progress(world)
    hosts = world.gather(MPI.Get_processor_name())
    found = world.allreduce(part(options.intervals, world.rank, world.size))
    error = abs(found - math.pi)
    if error > 1 / options.intervals**2 + 1e-12:
        raise Refused(f"pi came out as {found}, which is off by {error:g}: a rank's part is missing or counted twice")
    reports.say(f"pi is {found:.12f} (error {error:.1e}) by {world.size} processes on {len(set(hosts or []))} hosts")
    reports.report({"step": 1, "of": 1, "result": {"pi": found, "error": error}}, final=True)


if __name__ == "__main__":
    run(main)
