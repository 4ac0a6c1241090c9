"""The chart on a real kube-apiserver: installed, its rights proven by an operator that has no others, and removed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.servers import Api, eventually, kube_server, kube_tool
from api.session import Session
from chart.helm import REPOSITORY

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]
CHART = REPOSITORY / "charts" / "disttrain"
REFUSED = re.compile(r'^authorization_attempts_total\{result="(?!allowed)[\w-]+"\} (\S+)$', re.MULTILINE)


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    if not kube_tool().exists():
        missing = f"no real kube-apiserver at hand: {kube_tool()} is missing (DISTTRAIN_KUBE names its folder)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with kube_server(tmp_path_factory.mktemp("kube")) as server:
        yield server


def refused(api: Api) -> int:
    """How many calls the API server has answered with 403, whoever made them."""
    return sum(int(float(number)) for number in REFUSED.findall(api.must("get", "--raw", "/metrics")))


def helm_must(helm: Path, api: Api, *words: str | Path) -> str:
    done = subprocess.run(
        [helm, f"--kubeconfig={api.kubeconfig}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def operator(api: Api, folder: Path, *words: str) -> Iterator[Path]:
    """An operator with the rights of the chart's service account in `system`. Yields its log."""
    config: dict[str, Any] = yaml.safe_load(api.kubeconfig.read_text())
    token = api.must("create", "token", "disttrain", "--namespace", "system").strip().splitlines()[-1]
    for user in config["users"]:
        user["user"] = {"token": token}
    kubeconfig = folder / "operator-kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    log = folder / "operator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "disttrain", "operator", "--kubeconfig", str(kubeconfig)),
                *("--listen", "none", "--log-level", "debug", *words),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code == 0, log.read_text()


def namespace(api: Api, name: str) -> Session:
    api.must("create", "namespace", name)
    made = Session(api, name)
    eventually(lambda: made.kubectl("get", "serviceaccount", "default").ok)
    return made


def job(name: str, framework: str = "pytorch", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "train", "image": "disttrain/pytorch:0.1"}]}}
    whole = {"framework": framework, "worker": {"replicas": 2}, "template": template, **spec}
    return {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {"name": name},
        "spec": whole,
    }


def live(session: Session) -> None:
    """A job's whole life: runs, fails, is restarted, succeeds, and is deleted when its time is over."""
    pods = session.running(job("life", graceSeconds=0, ttlSecondsAfterFinished=1), 2)
    session.ends(pods[1], code=137)
    eventually(lambda: {one.rpartition("-")[2] for one in session.pods("life")} == {"r2"})
    again = session.has_pods("life", 2)
    session.runs(*again)
    session.is_state("life", "Running")
    session.ends(sorted(again)[0], code=0)
    session.must("wait", "dtj/life", "--for=delete", "--timeout=30s")
    events = session.get("events")["items"]
    assert {one["involvedObject"]["kind"] for one in events} >= {"DistTrainJob"}


def test_installed_it_has_the_rights_that_it_needs(helm: Path, kube: Api, tmp_path: Path) -> None:
    text = helm_must(helm, kube, "install", "disttrain", CHART, "--namespace", "system", "--create-namespace")
    assert "kubectl apply -f examples/01-pytorch-digits.yaml" in text
    team = namespace(kube, "team")
    before = refused(kube)
    words = ("--leader-elect", "--lease-namespace", "system", "--progress-seconds", "1")
    with operator(kube, tmp_path, *words) as log:
        live(team)
        # What MPI jobs need beside: a ConfigMap, and a Secret.
        team.apply(job("spread", "mpi", launcher={}))
        team.has_pods("spread", 2)
        assert len(team.names("configmaps", "-l", "disttrain.dev/job=spread")) == 1
        assert len(team.names("secrets", "-l", "disttrain.dev/job=spread")) == 1
        # What is there already is looked at.
        team.must("create", "service", "clusterip", "taken", "--tcp=80")
        team.apply(job("taken"))
        team.must("wait", "dtj/taken", "--for=condition=Accepted=false", "--timeout=30s")
        assert log.read_text().count("standing by") == 0
    assert refused(kube) == before
    assert " 403 " not in log.read_text()
    assert Session(kube, "system").get("lease", "disttrain")["spec"]["holderIdentity"] == ""  # handed back


def test_what_counts_refusals_counts(kube: Api) -> None:
    before = refused(kube)
    assert not kube.kubectl("get", "configmaps", "--as=nobody").ok
    assert refused(kube) == before + 1


def test_upgraded_with_two_namespaces_only(helm: Path, kube: Api, tmp_path: Path) -> None:
    teams = [namespace(kube, name) for name in ("team-a", "team-b")]
    values = CHART / "ci" / "namespaces-values.yaml"
    # Its values switch the CRD off: it is kept all the same.
    helm_must(helm, kube, "upgrade", "disttrain", CHART, "--namespace", "system", "--values", values)
    assert not kube.kubectl("get", "clusterrole", "system-disttrain").ok
    before = refused(kube)
    with operator(kube, tmp_path, "-n", "team-a", "-n", "team-b", "--progress-seconds", "0") as log:
        for team in teams:
            live(team)
    assert refused(kube) == before
    assert " 403 " not in log.read_text()


def test_rolled_back_and_uninstalled_the_jobs_stay(helm: Path, kube: Api) -> None:
    helm_must(helm, kube, "rollback", "disttrain", "1", "--namespace", "system")
    assert kube.kubectl("get", "clusterrole", "system-disttrain").ok
    helm_must(helm, kube, "uninstall", "disttrain", "--namespace", "system")
    assert not kube.kubectl("get", "deployment", "disttrain", "--namespace", "system").ok
    assert kube.get("disttrainjobs", "spread", "--namespace", "team")["spec"]["framework"] == "mpi"


def test_users_get_their_rights(helm: Path, kube: Api) -> None:
    helm_must(helm, kube, "install", "disttrain", CHART, "--namespace", "system")
    kube.must("create", "rolebinding", "ed", "--clusterrole=edit", "--user=ed", "--namespace=team")
    kube.must("create", "rolebinding", "vi", "--clusterrole=view", "--user=vi", "--namespace=team")

    def may(user: str, *words: str) -> bool:
        return kube.kubectl("auth", "can-i", *words, "--namespace=team", f"--as={user}").ok

    eventually(lambda: may("ed", "create", "disttrainjobs.disttrain.dev"))
    eventually(lambda: may("vi", "watch", "disttrainjobs.disttrain.dev"))
    assert may("ed", "patch", "disttrainjobs.disttrain.dev", "--subresource=scale")
    assert not may("ed", "patch", "disttrainjobs.disttrain.dev", "--subresource=status")
    assert not may("vi", "create", "disttrainjobs.disttrain.dev")


def test_without_helm(kube: Api) -> None:
    """In a namespace that lets in only pods of the `restricted` standard."""
    manifest = str(REPOSITORY / "dist" / "install.yaml")
    text = kube.must("apply", "--server-side", "--force-conflicts", "--filename", manifest)
    assert "violate" not in text
    there = Session(kube, "disttrain-system")
    eventually(lambda: len(there.names("pods")) == 2)
