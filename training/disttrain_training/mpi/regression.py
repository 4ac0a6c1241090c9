"""Data-parallel linear regression in numpy, to be copied: each rank has its own samples, and every step's gradient is
the sum over all of them.

On this machine:
    mpirun -np 2 python -m disttrain_training.mpi.regression
In the launcher of a job:
    mpirun python -m disttrain_training.mpi.regression

It checks itself: the weights must be the same on every rank, and those of the least-squares solution over all samples.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from ..sampling import shard
from ..shutdown import Refused
from . import progress, run

Array = npt.NDArray[np.float64]
SAMPLES, FEATURES = 10_000, 20


def make_data() -> tuple[Array, Array]:
    """[samples, features] and [samples]: a known line with noise, the same on every rank."""
    random = np.random.default_rng(0)
    x = random.normal(size=(SAMPLES, FEATURES))
    return x, x @ random.normal(size=FEATURES) + 0.1 * random.normal(size=SAMPLES)


def main(world: MPI.Intracomm) -> None:
    parser = argparse.ArgumentParser(
        prog="disttrain_training.mpi.regression", description="Linear regression with MPI."
    )
    parser.add_argument("--steps", type=int, default=100, help="default: 100")
    parser.add_argument("--lr", type=float, default=0.5, help="default: 0.5")
    options = parser.parse_args()
    reports = progress(world)
    x, y = make_data()
    mine = shard(SAMPLES, world.rank, world.size)
    own_x, own_y = x[mine], y[mine]

    weights = np.zeros(FEATURES)
    sums = np.empty(FEATURES + 1)  # the gradient and, behind it, the loss
    for step in range(1, options.steps + 1):
        residual = own_x @ weights - own_y
        world.Allreduce(np.append(own_x.T @ residual, residual @ residual), sums)
        weights -= options.lr * sums[:-1] / SAMPLES
        reports.report({"step": step, "of": options.steps, "loss": float(sums[-1] / SAMPLES)})

    check(world, weights, x, y)
    loss = float(sums[-1] / SAMPLES)
    reports.say(f"{world.size} processes have found the least-squares solution: loss {loss:.6f}")
    reports.report({"step": options.steps, "of": options.steps, "loss": loss}, final=True)


def check(world: MPI.Intracomm, weights: Array, x: Array, y: Array) -> None:
    """Raises Refused unless all ranks have the same weights, and the right ones."""
    least, most = np.empty_like(weights), np.empty_like(weights)
    world.Allreduce(weights, least, MPI.MIN)
    world.Allreduce(weights, most, MPI.MAX)
    if not np.array_equal(least, most):
        raise Refused(f"the ranks' weights differ, by up to {np.max(most - least):g}")
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    if (off := float(np.max(np.abs(weights - best)))) > 1e-6:
        raise Refused(f"the weights are off the least-squares solution by {off:g}: give more --steps")


if __name__ == "__main__":
    run(main)
