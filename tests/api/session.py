"""What a user has in hand: kubectl in one namespace, the operator at work there, and a stand-in for the kubelet.

The real kube-apiserver of the tests has no nodes, and our own is started without its kubelet: on both the pods' status
is patched, so that the same story can be told on both.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from api.servers import KUBECTL, Answer, Api, Manifest, eventually

CHANGING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r'(?i)(resource ?version"?:?\s*"?)\d+'), r"\1VERSION"),
    (re.compile(r"(?<![\w.-])\d+(\.\d+)?(ms|s)\b"), "AGE"),
    (re.compile(r"<(invalid|unknown)>"), "AGE"),
    (re.compile(r"\.[0-9a-f]{16}\b"), ".RANDOM"),
    (re.compile(r"  +"), "  "),
)
"""What no two runs have in common, and what stands for it in a comparison."""


def stable(text: str) -> str:
    """The text without what changes from run to run."""
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


class Session:
    """kubectl in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def kubectl(
        self, *words: str, manifest: Manifest | None = None, environment: Mapping[str, str] | None = None
    ) -> Answer:
        """Runs kubectl, with a manifest on its standard input if there is one."""
        done = subprocess.run(
            self._words(*words),
            input=json.dumps(manifest) if manifest else "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | dict(environment or {}),
        )
        return Answer(done.returncode == 0, done.stdout)

    def _words(self, *words: str) -> list[str]:
        home = self.api.kubeconfig.parent
        flags = (
            f"--kubeconfig={self.api.kubeconfig}",
            f"--cache-dir={home / 'cache'}",
            f"--namespace={self.namespace}",
        )
        return [str(KUBECTL), *flags, *words]

    def must(self, *words: str, manifest: Manifest | None = None) -> str:
        """What kubectl printed; it must succeed."""
        answer = self.kubectl(*words, manifest=manifest)
        assert answer.ok, answer.text
        return answer.text

    def refused(self, *words: str, manifest: Manifest | None = None) -> str:
        """What kubectl printed; it must fail."""
        answer = self.kubectl(*words, manifest=manifest)
        assert not answer.ok, answer.text
        return answer.text

    def apply(self, manifest: Manifest, *flags: str) -> str:
        """`kubectl apply`."""
        return self.must("apply", *flags, "-f", "-", manifest=manifest)

    def get(self, *words: str) -> Manifest:
        """One object, or a list."""
        found: Manifest = json.loads(self.must("get", *words, "-o", "json"))
        return found

    def names(self, *words: str) -> set[str]:
        """Names of objects, as `kubectl get -o name` prints them."""
        return set(self.must("get", *words, "-o", "name").split())

    def pods(self, job: str) -> list[str]:
        """The job's pods that are not being deleted."""
        items = self.get("pods", "-l", f"disttrain.dev/job={job}")["items"]
        return [one["metadata"]["name"] for one in items if "deletionTimestamp" not in one["metadata"]]

    @contextmanager
    def background(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """kubectl in the background; ended with the block where it does not end before."""
        process = subprocess.Popen(
            self._words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)

    # ---- the stand-in for the kubelet

    def runs(self, *pods: str) -> None:
        """The pods run and are ready."""
        self._report(pods, "Running", ready=True, state={"running": {"startedAt": "2026-01-01T00:00:00Z"}})

    def ends(self, *pods: str, code: int) -> None:
        """The pods' main containers end."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": "2026-01-01T00:00:01Z"}
        self._report(pods, "Failed" if code else "Succeeded", ready=False, state={"terminated": ended})

    def _report(self, pods: tuple[str, ...], phase: str, *, ready: bool, state: Manifest) -> None:
        container = {"name": "train", "ready": ready, "restartCount": 0, "image": "i", "imageID": "i", "state": state}
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        }
        patch = json.dumps({"status": status})
        self.must("patch", "pod", *pods, "--subresource=status", "--type=merge", "-p", patch)

    # ---- a job, to a point of its story

    def has_pods(self, job: str, number: int) -> list[str]:
        """The job's pods, once there are so many."""
        eventually(lambda: len(self.pods(job)) == number)
        return self.pods(job)

    def is_state(self, job: str, state: str) -> None:
        """Waits for the job's state."""
        self.must("wait", f"dtj/{job}", f"--for=jsonpath={{.status.state}}={state}", "--timeout=30s")

    def running(self, manifest: Manifest, number: int) -> list[str]:
        """Applies a job, and has all its pods run. Returns their names."""
        name = manifest["metadata"]["name"]
        self.apply(manifest)
        pods = self.has_pods(name, number)
        self.runs(*pods)
        self.is_state(name, "Running")
        return pods


@contextmanager
def session(api: Api, namespace: str, folder: Path) -> Iterator[Session]:
    """A new namespace, with the operator, a process of its own, at work in it."""
    made = Session(api, namespace)
    api.must("create", "-f", "-", manifest={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    if api.kind == "kube":
        eventually(lambda: made.kubectl("get", "serviceaccount", "default").ok)
    with (folder / f"operator-{namespace}.log").open("wb") as log:
        operator = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "disttrain", "operator", "--kubeconfig", str(api.kubeconfig)),
                *("--namespace", namespace, "--listen", "none", "--progress-seconds", "0"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield made
    finally:
        api.kubectl("delete", "namespace", namespace, "--ignore-not-found")
        operator.send_signal(signal.SIGTERM)
        code = operator.wait(30)
    assert code == 0, Path(log.name).read_text()
