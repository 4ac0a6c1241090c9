"""Horovod's entrypoint with plain processes: the losses of one process, and what the flags do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from horovod_python import MARKS, PYTHON, TRAINING

pytestmark = [*MARKS, pytest.mark.skipif(sys.platform != "linux", reason="reduces over the interface lo")]
TRAIN = "disttrain_training.horovod.train_torch"
STEP = re.compile(r"step (\d+)/\d+  loss (\d\S*)$", re.MULTILINE)


def run(*command: str) -> str:
    """The output of a command that succeeds, in the environment of the Python with Horovod."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DISTTRAIN_", "PYTHON"))}
    env |= {
        "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(TRAINING),
        "OMP_NUM_THREADS": "1",
        "HOROVOD_GLOO_IFACE": "lo",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def losses(output: str) -> dict[int, float]:
    """Losses by step."""
    return {int(step): float(loss) for step, loss in STEP.findall(output)}


def test_the_losses_of_one_process() -> None:
    flags = ("--max-steps=50", "--log-every=1")
    alone = losses(run("python", "-m", "disttrain_training.pytorch.train", *flags))
    assert list(alone) == list(range(1, 51))
    for size in (2, 3):
        output = run("horovodrun", "--gloo", "-np", str(size), "python", "-m", TRAIN, *flags)
        together = losses(output)
        assert list(together) == list(alone)
        assert max(abs(together[step] - loss) for step, loss in alone.items()) < 1e-5
        found = re.findall(r"weights sha256 (\S+) rank \d", output)
        assert len(found) == size
        assert len(set(found)) == 1


def test_micro_batches_change_nothing() -> None:
    flags = ("--max-steps=20", "--log-every=1")
    command = ("horovodrun", "--gloo", "-np", "2", "python", "-m", TRAIN, *flags)
    once, twice = losses(run(*command)), losses(run(*command, "--backward-passes-per-step=2"))
    assert max(abs(twice[step] - loss) for step, loss in once.items()) < 1e-5


def test_adasum_and_a_timeline(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    output = run("mpirun", "-np", "2", "python", "-m", TRAIN, "--epochs=2", "--adasum", f"--timeline={timeline}")
    assert "2 Horovod processes on cpu over MPI" in output
    [accuracy] = re.findall(r"^accuracy (\S+) \(\d+ of 359", output, re.MULTILINE)
    assert float(accuracy) > 0.85
    assert "ADASUM" in timeline.read_text().upper()
    assert json.loads(timeline.read_text().rstrip().rstrip(",").removesuffix("]") + "]")


def test_adasum_without_mpi_is_refused() -> None:
    with pytest.raises(AssertionError, match="--adasum needs MPI or NCCL: start with mpirun"):
        run("horovodrun", "--gloo", "-np", "2", "python", "-m", TRAIN, "--adasum")
