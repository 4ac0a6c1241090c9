"""`disttrain local`, and `get` and `logs` against it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cli.shell import Shell, eventually

pytestmark = pytest.mark.timeout(300)  # each starts clusters, and the machine may be busy
KUBECTL = Path(sys.executable).with_name("kubectl")
JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: hello}
spec:
  framework: pytorch
  worker: {replicas: 2}
  template:
    spec:
      containers:
        - name: train
          image: none
          command:
            - sh
            - -c
            - |
              echo I am $NODE_RANK
              until [ -e /disttrain-test/go ]; do sleep 0.1; done
              printf 'the end'
"""


@pytest.fixture
def state(shell: Shell) -> Iterator[Path]:
    state = shell.folder / "state"
    yield state
    if state.exists():
        shell.run("local", "down", "--state", state)


def test_a_day_with_the_one_machine_cluster(shell: Shell, state: Path) -> None:
    (shell.folder / "data").mkdir()
    out = shell.run("local", "up", "--state", state, "--map", "/disttrain-test=./data")
    assert f"export KUBECONFIG={state}/kubeconfig\n" in out
    assert f"export KUBECONFIG={state}/kubeconfig\n" in shell.run("local", "up", "--state", state)
    facts = json.loads(shell.run("local", "status", "--state", state, "--output", "json"))
    assert facts["running"] is True
    assert facts["kubeconfig"] == f"{state}/kubeconfig"
    cluster = ("--kubeconfig", state / "kubeconfig")

    assert shell.run("get", *cluster) == "no jobs in namespace default\n"
    assert "namespace default has no job hello; it has: none" in shell.run("logs", "hello", *cluster, code=1)
    shell.write("job.yaml", JOB)
    subprocess.run(
        [KUBECTL, "--kubeconfig", state / "kubeconfig", "apply", "-f", shell.folder / "job.yaml"],
        check=True, capture_output=True, env={"HOME": str(shell.folder)},
    )  # fmt: skip
    eventually(lambda: "Running" in shell.run("get", *cluster), "the job does not run")
    assert "hello   pytorch     Running" in shell.run("get", *cluster)
    assert "default     hello" in shell.run("get", "-A", *cluster)
    assert "hello-worker-1   worker   1       Running" in shell.run("get", "hello", *cluster)
    assert json.loads(shell.run("get", "hello", "-o", "json", *cluster))["status"]["state"] == "Running"
    assert "kind: DistTrainJob" in shell.run("get", "hello", "-o", "yaml", *cluster)
    assert shell.run("logs", "hello", *cluster) == "I am 0\n"
    assert shell.run("logs", "hello", "--rank", "1", *cluster) == "I am 1\n"
    assert shell.run("logs", "hello", "--role", "worker", "--index", "1", "--tail", "1", *cluster) == "I am 1\n"
    assert "it has: worker-0 (rank 0), worker-1 (rank 1)" in shell.run("logs", "hello", "--rank", "2", *cluster, code=1)

    following = shell.start("logs", "hello", "--rank", "1", "-f", *cluster)
    following.until("I am 1\n")
    (shell.folder / "data" / "go").touch()
    assert following.wait() == 0
    assert following.out == "I am 1\nthe end\n"
    eventually(lambda: "Succeeded" in shell.run("get", *cluster), "the job does not succeed")

    shell.run("local", "down", "--state", state)
    assert "no one-machine cluster runs in" in shell.run("local", "status", "--state", state, code=1)
    assert "does not answer" in shell.run("get", *cluster, code=1)
    shell.nothing_left()
    shell.run("local", "up", "--state", state)  # what was there is there again
    assert "hello   pytorch     Succeeded" in shell.run("get", *cluster)


def test_a_cluster_that_knows_no_jobs(shell: Shell, state: Path) -> None:
    shell.run("local", "up", "--state", state)
    subprocess.run(
        [KUBECTL, "--kubeconfig", state / "kubeconfig", "delete", "crd", "disttrainjobs.disttrain.dev"],
        check=True, capture_output=True, env={"HOME": str(shell.folder)},
    )  # fmt: skip
    out = shell.run("get", "--kubeconfig", state / "kubeconfig", code=1)
    assert "knows no DistTrainJob: install its CRD and operator" in out


def test_a_state_folder_that_cannot_be(shell: Shell) -> None:
    file = shell.write("file", "")
    out = shell.run("local", "up", "--state", file / "below", code=1)
    assert "disttrain: the state folder" in out
    assert out.count("\n") == 1
