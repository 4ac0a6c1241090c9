"""TensorFlow jobs on the one-machine cluster: the examples as they stand, lost pods, and a resize."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.cli.shell import Shell, eventually
from tensorflow_python import MARKS, PYTHON, TRAINING

pytestmark = MARKS
EXAMPLES = Path(__file__).parents[3] / "examples"
KUBECTL = Path(sys.executable).with_name("kubectl")


@pytest.fixture(autouse=True)
def _training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TRAINING))


@pytest.mark.parametrize(
    ("name", "world", "pods"),
    [
        ("05-tensorflow-multiworker", 3, ("chief-0", "worker-0", "worker-1")),
        ("06-tensorflow-custom-loop", 3, ("worker-0", "worker-1", "worker-2", "evaluator-0")),
        ("07-tensorflow-parameter-server", 2, ("chief-0", "evaluator-0")),
    ],
)
def test_example(shell: Shell, name: str, world: int, pods: tuple[str, ...]) -> None:
    shell.run("run", EXAMPLES / f"{name}.yaml", "--python", PYTHON)
    run = shell.runs()[-1]
    facts = shell.facts(run)
    assert facts["state"] == "Succeeded"
    assert facts["progress"]["worldSize"] == world
    assert facts["result"]["samples"] == 359
    assert facts["result"]["accuracy"] >= 0.95
    for pod in pods:
        log = (run / "logs" / f"{pod}.log").read_text()
        assert f"weights sha256 {facts['result']['weightsSha256']}" in log, f"{pod} has other weights"
    if "evaluator-0" in pods:
        evaluated = re.findall(r"evaluated step (\d+)/(\d+): .* accuracy (\S+) \(359 images\)", log)
        assert evaluated[-1][0] == evaluated[-1][1]
        assert float(evaluated[-1][2]) == pytest.approx(facts["result"]["accuracy"], abs=1e-4)


class Cluster:
    """A one-machine cluster with the job of one example, and what kubectl shows of it."""

    def __init__(self, shell: Shell, example: str, *flags: str) -> None:
        self.shell, self.state = shell, shell.folder / "state"
        text = (EXAMPLES / f"{example}.yaml").read_text()
        slower, replaced = re.subn(r"(?<=, )--epochs=\d+]", f"{', '.join(flags)}]", text)
        assert replaced == 1
        shell.run("local", "up", "--state", self.state, "--python", PYTHON)
        shell.write("job.yaml", slower)
        self.kubectl("apply", "-f", str(shell.folder / "job.yaml"))
        self.name = re.findall(r"^  name: (\S+)$", text, re.MULTILINE)[0]

    def kubectl(self, *words: str) -> str:
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", self.state / "kubeconfig", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def log(self, pod: str) -> str:
        """The log of a pod, named without the job; empty where there is none yet."""
        name = f"{self.name}-{pod}"
        names = self.kubectl("get", "pods", "-o", "jsonpath={.items[?(@.status.phase!='Pending')].metadata.name}")
        return self.kubectl("logs", name) if name in names.split() else ""

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "dtj", self.name, "-o", "json")).get("status", {})
        return found

    def pods(self) -> dict[str, str]:
        """Uids of the pods that are not on their way out, by role and index."""
        items = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        labels = "disttrain.dev/role", "disttrain.dev/index"
        return {
            "-".join(pod["metadata"]["labels"][label] for label in labels): pod["metadata"]["uid"]
            for pod in items
            if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") in ("Pending", "Running")
        }

    def step(self) -> int:
        """Steps done, as the log of the leader of this round says."""
        newest = self.log(f"chief-0-r{self.status['round']}") or self.log("chief-0")
        lines = re.findall(r'^DISTTRAIN_PROGRESS .*?"step":(\d+)', newest, re.MULTILINE)
        return int(lines[-1]) if lines else 0

    def until(self, holds: Callable[[], bool], words: str) -> None:
        eventually(holds, f"{words}: {self.status.get('message')}")

    def kill(self, role: str, index: int) -> None:
        """SIGKILL to the training process of a pod."""
        [pid] = [pid for pid in _trainings() if _is(pid, self.name, role, index)]
        os.kill(pid, signal.SIGKILL)


def _trainings() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"disttrain_training.tensorflow" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _is(pid: int, job: str, role: str, index: int) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = {f"DISTTRAIN_JOB={job}", f"DISTTRAIN_ROLE={role}", f"DISTTRAIN_INDEX={index}"}
    return wanted <= {entry.decode(errors="replace") for entry in environ}


@pytest.fixture
def down(shell: Shell) -> Iterator[None]:
    yield
    if (shell.folder / "state").exists():
        shell.run("local", "down", "--state", shell.folder / "state")


def recovered(cluster: Cluster, began: float, beyond: int, what: str) -> None:
    """Waits for a step of the new world, and says how long that took: a figure, not a test, since machines differ."""
    cluster.until(lambda: cluster.step() > beyond, f"no step after {what}")
    print(f"{what}: {time.monotonic() - began:.1f} s to the first step of the new world")


@pytest.mark.usefixtures("down")
def test_multiworker_outlives_a_lost_worker_and_a_resize(shell: Shell) -> None:
    flags = ("--epochs=6", "--checkpoint-every=5", "--min-step-seconds=0.1")
    cluster = Cluster(shell, "05-tensorflow-multiworker", *flags)
    cluster.until(lambda: cluster.status.get("state") == "Running" and cluster.step() > 10, "no training")
    before, began, step = cluster.pods(), time.monotonic(), cluster.step()
    cluster.kill("worker", 1)
    cluster.until(lambda: cluster.status["round"] == 2, "no restart")
    recovered(cluster, began, 0, "worker killed")
    cluster.until(lambda: cluster.status["state"] == "Running", "not running again")
    assert "resumed from a checkpoint at step" in cluster.log("chief-0-r2")
    assert cluster.step() > step - 5
    assert cluster.status["restarts"] == 1
    assert not set(before.values()) & set(cluster.pods().values()), "all pods are new ones"

    began = time.monotonic()
    cluster.kubectl("scale", "dtj/digits-tf", "--replicas=3")
    cluster.until(lambda: cluster.status["round"] == 3, "no resize")
    assert cluster.status["roundCause"] == "Resize"
    recovered(cluster, began, 0, "scaled from 2 to 3 workers")
    assert "resumed from a checkpoint at step" in cluster.log("chief-0-r3")
    assert "4 replicas under" in cluster.log("chief-0-r3")
    cluster.until(lambda: cluster.status["state"] == "Succeeded", "no success")
    status = cluster.status
    assert status["restarts"] == 1, "a resize costs nothing"
    assert status["progress"]["worldSize"] == 4
    assert status["result"]["accuracy"] >= 0.95


@pytest.mark.usefixtures("down")
def test_parameter_servers_outlive_lost_pods(shell: Shell) -> None:
    flags = ("--epochs=12", "--checkpoint-every=10", "--min-step-seconds=0.1")
    cluster = Cluster(shell, "07-tensorflow-parameter-server", *flags)
    cluster.until(lambda: cluster.status.get("state") == "Running" and cluster.step() > 10, "no training")
    before, began, step = cluster.pods(), time.monotonic(), cluster.step()
    cluster.kill("worker", 1)
    cluster.until(lambda: cluster.pods().get("worker-1") not in (None, before["worker-1"]), "no new worker")
    assert cluster.status["restarts"] == 1
    after = cluster.pods()
    assert {role for role in after if after[role] != before[role]} == {"worker-1"}, "the others go on"
    cluster.until(lambda: cluster.status["state"] == "Running", "not running again")
    recovered(cluster, began, step + 20, "worker of a parameter server killed")

    before, began = cluster.pods(), time.monotonic()
    cluster.kill("ps", 0)
    cluster.until(lambda: cluster.status["round"] == 3, "no restart")
    recovered(cluster, began, 0, "parameter server killed")
    after = cluster.pods()
    assert {role for role in after if after[role] != before[role]} == {"ps-0", "chief-0"}
    assert "resumed from a checkpoint at step" in cluster.log("chief-0-r3")
    assert cluster.status["restarts"] == 2

    # All start anew, on the ports that the pods before them may still hold.
    cluster.kubectl("scale", "dtj/digits-ps", "--replicas=3")
    cluster.until(lambda: "3 workers and 1 parameter servers" in cluster.log("chief-0-r4"), "no resize")
    cluster.until(lambda: cluster.status["state"] == "Succeeded", "no success")
    cluster.until(lambda: not cluster.pods(), "servers and workers are not ended")
    assert cluster.status["result"]["accuracy"] >= 0.95
    assert cluster.status["restarts"] == 2
