"""Real worlds of real processes: starts `disttrain_training.pytorch.train`, reads what it prints, ends what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).parents[2] / "training"
TRAIN = "disttrain_training.pytorch.train"
PATIENCE = 100.0
"""Seconds that a run may take on a busy machine."""


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what tells of a world or a job, buffered, and with one thread a process."""
    ours = ("PYTHONUNBUFFERED", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith(("DISTTRAIN_", "PET_", "TORCH"))}
    return kept | {"PYTHONPATH": str(TRAINING), "OMP_NUM_THREADS": "1"} | extra


class Run:
    """One started program and, as far as it has come, its output (stdout and stderr as they came)."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def progress(self) -> list[dict[str, Any]]:
        mark = "DISTTRAIN_PROGRESS "
        return [json.loads(line.removeprefix(mark)) for line in self.lines if line.startswith(mark)]

    @property
    def losses(self) -> list[float]:
        """The loss of each step, of a run with --log-every=1."""
        return [float(m[1]) for line in self.lines if (m := re.match(r"step \d+/\d+  loss (\S+)$", line))]

    @property
    def weights(self) -> dict[int, str]:
        """SHA-256 of the weights by rank."""
        found = (re.match(r"weights sha256 ([0-9a-f]{64}) rank (\d+)$", line) for line in self.lines)
        return {int(m[2]): m[1] for m in found if m}

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds that the running program brings about."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before that:\n{self.output}"
            assert time.monotonic() < end, f"did not come about in {PATIENCE} s:\n{self.output}"
            time.sleep(0.02)

    def pid_of_rank(self, rank: int) -> int:
        """Of a worker that torchrun started."""
        for pid in children(self.process.pid):
            if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
        raise LookupError(f"no child of {self.process.pid} has rank {rank}")

    def end(self) -> None:
        """Leave nothing running: torchrun's workers are in sessions of their own and outlive its death."""
        if self.process.poll() is None:
            for pid in [*children(self.process.pid), self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()


class Launcher:
    """Starts runs whose logs lie in one folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Run] = []

    def start(self, command: list[str], **env: str) -> Run:
        run = Run([sys.executable, *command], self.folder / f"run-{len(self.runs)}.log", clean_environment(**env))
        self.runs.append(run)
        return run

    def torchrun(self, world: int, *flags: str, **env: str) -> Run:
        """A world of so many processes on this machine; 1 is a plain process, without torchrun."""
        if world == 1:
            return self.start(["-m", TRAIN, *flags], **env)
        return self.start(
            ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", "-m", TRAIN, *flags], **env
        )

    def plain(self, world: int, *command: str, **env: str) -> list[Run]:
        """A world of plain Python processes, by rank, as in pods without torchrun."""
        address = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        return [self.start(list(command), **address, RANK=str(rank), **env) for rank in range(world)]

    def end(self) -> None:
        for run in self.runs:
            run.end()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
