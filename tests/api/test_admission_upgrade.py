"""A stricter CRD never refuses the status of a job that runs, and fields that come later have their rules already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.jobs import Manifest, job, template
from api.servers import Api, eventually
from api.test_admission import refused
from disttrain.api import crd
from disttrain.api.constants import KIND, PLURAL, VERSION


def in_group(group: str, definition: Manifest) -> Manifest:
    """The same resource in a group of its own, so that one API server can have it beside the real one."""
    spec = definition["spec"] | {"group": group}
    spec["names"] = {"kind": KIND, "plural": PLURAL, "singular": KIND.lower()}
    return definition | {"metadata": {"name": f"{PLURAL}.{group}"}, "spec": spec}


def without_rules(node: Any) -> Any:
    """A schema as it was before there were rules, and before anything but their type was asked of values."""
    if isinstance(node, list):
        return [without_rules(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {"x-kubernetes-validations", "minLength", "maxLength", "pattern", "minimum", "maximum", "enum", "minItems"}
    return {key: without_rules(value) for key, value in node.items() if key not in strict}


@contextmanager
def resource(api: Api, group: str, definition: Manifest) -> Iterator[str]:
    """Serves the resource in a group; gives its name for kubectl."""
    api.install(in_group(group, definition))
    try:
        yield f"{PLURAL}.{VERSION}.{group}"
    finally:
        api.must("delete", "crd", f"{PLURAL}.{group}", "--timeout=60s")


BROKEN = {
    "framework": "tensorflow",
    "managedBy": "",
    "master": {"replicas": 2, "restartPolicy": "Pod", "template": template(pod={"restartPolicy": "Always"})},
    "chief": {"replicas": 3},
    "ps": {"replicas": 1},
    "evaluator": {"replicas": 2},
    "launcher": {"replicas": 2},
    "worker": {
        "replicas": 20_000,
        "template": template(
            env=[{"name": "RANK", "value": "0"}],
            init=[{"name": "data", "image": "x", "env": [{"name": "WORLD_SIZE", "value": "2"}]}],
        ),
    },
    "template": None,
    "procsPerNode": "4",
    "checkpoints": {"claimName": "Ä", "volume": {"emptyDir": {}}, "mountPath": "x", "resumeFrom": "../x"},
    "elastic": {"minReplicas": 3, "maxReplicas": 2},
    "restart": {"limit": -1, "scope": "Pod", "total": 1, "backoff": {"initial": 1}, "rules": [{"action": "Fail"}]},
    "ttlSecondsAfterFinished": 1,
    "activeDeadlineSeconds": 1,
    "startupDeadlineSeconds": 1,
    "progressDeadlineSeconds": 1,
    "captureLogs": True,
    "suspend": True,
    "sharedMemory": "lots",
    "mpi": {"sshPort": 22},
    "scheduling": {"gang": True},
}
"""The spec of a job that breaks all there is to break."""


def test_a_stricter_crd_still_takes_the_status_of_what_runs(api: Api) -> None:
    group = "upgrade.disttrain.dev"
    broken = job("9lives", **BROKEN) | {"apiVersion": f"{group}/{VERSION}"}
    fresh = broken | {"metadata": {"name": "9lives-too"}}
    before, after = crd.definition(), in_group(group, crd.definition())
    version = before["spec"]["versions"][0]
    version["schema"] = without_rules(version["schema"])
    with resource(api, group, before) as name:
        api.must("apply", "-f", "-", manifest=broken)
        api.must("apply", "-f", "-", manifest=after)
        eventually(lambda: not api.apply(fresh, "--dry-run=server").ok)

        def patch(body: Manifest, *flags: str) -> Any:
            return api.kubectl("patch", name, "9lives", "--type=merge", "-p", json.dumps(body), *flags)

        status = {"status": {"state": "Running", "restarts": 1, "worker": {"replicas": 20_000, "ready": 7}}}
        answer = patch(status, "--subresource=status")
        assert answer.ok, answer.text
        assert api.get(name, "9lives")["status"] == status["status"]

        labelled = api.kubectl("label", name, "9lives", "team=vision")
        assert labelled.ok, labelled.text
        mended = patch({"spec": {"captureLogs": False, "worker": {"replicas": 3}}})
        assert mended.ok, f"what is broken may be mended piece by piece: {mended.text}"
        answer = patch({"spec": {"sharedMemory": "more"}})
        refused(answer, "spec.sharedMemory", "more given: write auto or a size such as 8Gi")
        refused(patch({"spec": {"captureLogs": True}}), "spec.captureLogs", "not in this version of DistTrainJob yet")


@pytest.fixture(scope="module")
def future(bare_api: Api) -> Iterator[tuple[Api, str]]:
    """The resource as it will be when every field is built, and its API version."""
    group = "future.disttrain.dev"
    with resource(bare_api, group, crd.definition(later=False)):
        yield bare_api, f"{group}/{VERSION}"


FUTURE_BAD: dict[str, tuple[Manifest, str, str]] = {
    "min above max": (
        job(elastic={"minReplicas": 5, "maxReplicas": 4}),
        "spec.elastic.minReplicas",
        "5 given, which is more than maxReplicas, 4: lower the one or raise the other",
    ),
    "no max": (job(elastic={"minReplicas": 1}), "spec.elastic.maxReplicas", "Required value"),
    "min of zero": (job(elastic={"minReplicas": 0, "maxReplicas": 4}), "spec.elastic.minReplicas", "or equal to 1"),
    "workers below min": (
        job(elastic={"minReplicas": 2, "maxReplicas": 4}),
        "spec.worker.replicas",
        "1 given, but spec.elastic allows 2 to 4: choose from these or change spec.elastic",
    ),
    "workers above max": (
        job(elastic={"maxReplicas": 4}, worker={"replicas": 5}),
        "spec.worker.replicas",
        "5 given, but spec.elastic allows 1 to 4",
    ),
    "unknown rule": (job(restart={"rules": [{"action": "Retry"}]}), "spec.restart.rules[0].action", '"Retry"'),
    "exit code 256": (
        job(restart={"rules": [{"action": "Fail", "exitCodes": [256]}]}),
        "spec.restart.rules[0].exitCodes[0]",
        "less than or equal to 255",
    ),
    "signal by number": (
        job(restart={"rules": [{"action": "Fail", "signals": ["9"]}]}),
        "spec.restart.rules[0].signals[0]",
        "should match",
    ),
    "two chiefs": (
        job(framework="tensorflow", chief={"replicas": 2}),
        "spec.chief.replicas",
        "2 given, but a job has at most one chief: set it to 0 or 1",
    ),
    "two evaluators": (
        job(framework="tensorflow", evaluator={"replicas": 2}),
        "spec.evaluator.replicas",
        "2 given, but a job has at most one evaluator",
    ),
    "no launcher": (
        job(framework="mpi", launcher={"replicas": 0}),
        "spec.launcher.replicas",
        "0 given, but a job has one launcher: set it to 1 or leave it out",
    ),
    "a launcher and no workers": (
        job(framework="mpi", launcher={}, worker={"replicas": 0}),
        "spec.worker.replicas",
        "0 given, but only a job with a master",
    ),
    "unknown mpi": (job(framework="mpi", mpi={"implementation": "LAM"}), "spec.mpi.implementation", '"LAM"'),
    "a deadline of nothing": (job(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds", "or equal to 1"),
}

FUTURE_GOOD: dict[str, Manifest] = {
    "elastic": job(elastic={"minReplicas": 2, "maxReplicas": 8}, worker={"replicas": 8}),
    "tensorflow": job(framework="tensorflow", chief={}, ps={"replicas": 2}, evaluator={}, worker={"replicas": 0}),
    "horovod": job(framework="horovod", launcher={}, worker={"replicas": 4}),
    "mpi": job(framework="mpi", mpi={"implementation": "Intel", "slotsPerWorker": 2}),
    "rules": job(restart={"scope": "Pod", "rules": [{"action": "Fail", "exitCodes": [3], "signals": ["SIGKILL"]}]}),
    "suspended": job(suspend=True, captureLogs=True, ttlSecondsAfterFinished=0, scheduling={"gang": True}),
}


@pytest.mark.parametrize("name", FUTURE_BAD)
def test_rules_of_later_fields(future: tuple[Api, str], name: str) -> None:
    api, version = future
    manifest, path, words = FUTURE_BAD[name]
    refused(api.apply(manifest | {"apiVersion": version}), path, words)


@pytest.mark.parametrize("name", FUTURE_GOOD)
def test_later_fields_will_be_taken(future: tuple[Api, str], name: str) -> None:
    api, version = future
    answer = api.apply(FUTURE_GOOD[name] | {"apiVersion": version}, "--dry-run=server")
    assert answer.ok, answer.text


def test_scale_past_the_elastic_bounds(future: tuple[Api, str]) -> None:
    api, version = future
    elastic = job(elastic={"minReplicas": 2, "maxReplicas": 8}, worker={"replicas": 4})
    name = f"{PLURAL}.{VERSION}.{version.split('/')[0]}/digits"
    api.must("apply", "-f", "-", manifest=elastic | {"apiVersion": version})
    api.must("scale", name, "--replicas=8")
    for replicas in (1, 9):
        refused(
            api.kubectl("scale", name, f"--replicas={replicas}"),
            "spec.worker.replicas",
            f"{replicas} given, but spec.elastic allows 2 to 8",
        )
