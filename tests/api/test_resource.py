"""The resource as kubectl shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from api.jobs import job
from api.servers import Api


@pytest.fixture
def digits(api: Api) -> Iterator[Api]:
    """A job whose status somebody has written."""
    api.must("apply", "-f", "-", manifest=job(worker={"replicas": 4}))
    status = {
        "state": "Running",
        "ready": "3/4",
        "progressText": "epoch 3/5, 60%",
        "worker": {"replicas": 4, "ready": 3},
        "selector": "disttrain.dev/job=digits",
        "conditions": [{"type": "Running", "status": "False", "reason": "Starting"}],
        "failures": [{"pod": "a", "uid": "b", "role": "worker", "index": 0, "round": 1, "exitCode": None}],
        "result": {"accuracy": 0.97, "notes": {"deep": [1, 2]}},
        "notAField": 1,
    }
    patch = json.dumps({"status": status, "spec": {"worker": {"replicas": 9}}})
    api.must("patch", "dtj/digits", "--subresource=status", "--type=merge", "-p", patch)
    yield api
    api.must("delete", "dtj", "--all")


def test_columns(digits: Api) -> None:
    head, row = digits.must("get", "dtj").splitlines()
    assert head.split() == ["NAME", "FRAMEWORK", "STATE", "READY", "RESTARTS", "PROGRESS", "AGE"]
    assert row.split()[:8] == ["digits", "pytorch", "Running", "3/4", "0", "epoch", "3/5,", "60%"]


def test_names_and_category(digits: Api) -> None:
    for name in ("dtj", "disttrainjob", "disttrainjobs", "disttrainjobs.disttrain.dev", "all"):
        assert "disttrainjob.disttrain.dev/digits" in digits.must("get", name, "-o", "name").splitlines()


def test_status_is_apart_and_keeps_what_the_types_say(digits: Api) -> None:
    found = digits.get("dtj/digits")
    assert found["spec"]["worker"] == {"replicas": 4}, "a write of the status leaves the spec alone"
    assert found["status"] == {
        "state": "Running",
        "ready": "3/4",
        "restarts": 0,
        "progressText": "epoch 3/5, 60%",
        "worker": {"replicas": 4, "ready": 3},
        "selector": "disttrain.dev/job=digits",
        "conditions": [{"type": "Running", "status": "False", "reason": "Starting"}],
        "failures": [{"pod": "a", "uid": "b", "role": "worker", "index": 0, "round": 1}],
        "result": {"accuracy": 0.97, "notes": {"deep": [1, 2]}},
    }
    digits.must("patch", "dtj/digits", "--type=merge", "-p", '{"status": {"state": "Failed"}}')
    assert digits.get("dtj/digits")["status"]["state"] == "Running", "a write of the job leaves the status alone"


def test_scale_subresource(digits: Api) -> None:
    scale = digits.get("dtj/digits", "--subresource=scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 4}
    assert scale["status"] == {"replicas": 4, "selector": "disttrain.dev/job=digits"}


def test_explain(api: Api) -> None:
    text = " ".join(api.must("explain", "disttrainjob.spec.restart").split())
    assert "FIELD: restart <Object>" in text
    assert "What happens when a pod fails." in text
    assert "limit <integer> Restarts in a row without progress before the job fails." in text
    assert "scope <string> enum: Auto, Job, Pod What restarts: the whole `Job`, the one `Pod`" in text
    assert "worker <Object>" in api.must("explain", "dtj.spec").replace("\t", " ")
