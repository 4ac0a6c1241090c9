"""Horovod and mpi4py jobs on the one-machine cluster: the examples as they stand, and a lost worker."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from horovod_python import MARKS, PYTHON, TRAINING
from local.cli.shell import Shell, processes

pytestmark = MARKS
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TRAINING))


def log(shell: Shell, pod: str = "launcher-0") -> str:
    """A pod's log in the last run."""
    return (shell.runs()[-1] / "logs" / f"{pod}.log").read_text()


def weights(text: str) -> dict[int, str]:
    """Hashes of the weights by rank."""
    return {int(rank): digest for digest, rank in re.findall(r"weights sha256 ([0-9a-f]{64}) rank (\d+)", text)}


def test_mpi_pi(shell: Shell) -> None:
    shell.run("run", EXAMPLES / "10-mpi-pi.yaml", "--python", PYTHON)
    assert re.search(r"^pi is 3\.14159265\d+ \(error \S+\) by 4 processes on 2 hosts$", log(shell), re.MULTILINE)
    assert shell.facts(shell.runs()[-1])["progress"]["worldSize"] == 4


def test_regression(shell: Shell) -> None:
    text = (EXAMPLES / "10-mpi-pi.yaml").read_text().replace("mpi.pi]", "mpi.regression]")
    shell.run("run", shell.write("job.yaml", text), "--python", PYTHON)
    assert "4 processes have found the least-squares solution" in log(shell)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("11-horovod-torch", "2 Horovod processes on cpu over gloo, 300 steps"),
        ("12-horovod-torch-mpirun", "2 Horovod processes on cpu over MPI, 300 steps"),
        ("13-horovod-tensorflow", "2 Horovod processes with Keras, 300 steps"),
    ],
)
def test_example(shell: Shell, name: str, says: str) -> None:
    shell.run("run", EXAMPLES / f"{name}.yaml", "--python", PYTHON)
    facts, text = shell.facts(shell.runs()[-1]), log(shell)
    assert says in text
    assert facts["state"] == "Succeeded"
    assert facts["progress"]["worldSize"] == 2
    assert facts["progress"]["step"] == facts["progress"]["of"] == 300
    assert facts["progress"]["accuracy"] >= 0.95
    found = weights(text)
    assert set(found) == {0, 1}
    assert len(set(found.values())) == 1
    if "mpirun" not in name:  # disttrain-horovodrun leaves the launcher's termination message
        assert facts["result"]["samples"] == 359
        assert facts["result"]["weightsSha256"] == found[0]


@pytest.mark.parametrize("name", ["11-horovod-torch", "13-horovod-tensorflow"])
def test_a_lost_worker_resumes_from_the_checkpoint(shell: Shell, name: str) -> None:
    flags = "--epochs=2, --checkpoint-every=5, --log-every=1, --min-step-seconds=0.1]"
    text = (EXAMPLES / f"{name}.yaml").read_text().replace("--epochs=5]", flags)
    running = shell.start("run", shell.write("job.yaml", text), "--python", PYTHON)
    running.until("step 20/120  loss")
    port = re.findall(r"worker-1 +\| disttrain: sshd listens on port (\d+)", running.out)[-1]
    [sshd] = [pid for pid in processes(f"-p {port} ") if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd"]
    os.kill(sshd, signal.SIGKILL)
    assert running.wait() == 0, running.out
    resumed = re.findall(r"resumed .*step (\d+)/120", log(shell, "launcher-0") + running.out)
    assert resumed, running.out
    assert int(resumed[-1]) >= 15
    progress = shell.facts(shell.runs()[-1])["progress"]
    assert (progress["step"], progress["worldSize"]) == (120, 2)
