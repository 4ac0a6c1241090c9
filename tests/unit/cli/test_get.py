from __future__ import annotations

from typing import Any

from disttrain.cli.get import describe, listing

NOW = 1_000_000_000.0  # 2001-09-09T01:46:40Z


def job(name: str = "digits", **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": "u", "creationTimestamp": "2001-09-09T01:41:30Z"}
    return {"metadata": meta, "spec": {"framework": "pytorch"}, "status": status}


def test_the_columns_are_kubectls() -> None:
    running = job(state="Running", ready="3/3", restarts=1, progressText="epoch 3/5, 60%")
    fresh = job("fresh")
    del fresh["status"]
    assert listing([running, fresh], NOW).splitlines() == [
        "NAME     FRAMEWORK   STATE     READY   RESTARTS   PROGRESS         AGE",
        "digits   pytorch     Running   3/3     1          epoch 3/5, 60%   5m10s",
        "fresh    pytorch                       0                           5m10s",
    ]
    assert listing([running], NOW, namespaces=True).splitlines()[1].startswith("default     digits ")


def test_one_job_in_full() -> None:
    failure = {"pod": "digits-worker-0", "uid": "x", "role": "worker", "index": 0, "round": 1, "charged": True}
    found = job(
        state="Running", message="All 2 pods run.", ready="2/2", round=2, restarts=1, progressText="step 3",
        failures=[{**failure, "reason": "Error", "exitCode": 7, "node": "", "time": ""}],
    )  # fmt: skip
    labels = {"disttrain.dev/role": "worker", "disttrain.dev/index": "0", "disttrain.dev/round": "2"}
    pod = {
        "metadata": {"name": "digits-worker-0-r2", "uid": "p", "labels": labels},
        "spec": {"containers": [{"name": "train"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    text = describe(found, [pod], NOW)
    for line in (
        "Job:      default/digits (pytorch)",
        "State:    Running",
        "Message:  All 2 pods run.",
        "Restarts: 1 (limit 3 in a row)",
        "Age:      5m10s",
        "digits-worker-0-r2   worker   0       Running   yes     2",
        "digits-worker-0   Error    7           1       yes",
    ):
        assert line in text.splitlines(), text
    assert "not taken it up yet" in describe(job(), [], NOW)
