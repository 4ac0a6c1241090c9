"""Nodes that failed a job again and again."""

from __future__ import annotations

from typing import Any

from jobs import job, settle

from disttrain.lifecycle import avoidance


def failure(node: str, charged: bool = True) -> dict[str, Any]:
    return {"pod": "p", "uid": "u", "role": "worker", "index": 0, "round": 1, "node": node, "charged": charged}


FAILURES = [failure("bad"), failure("good"), failure("bad"), failure("full", False), failure("full", False)]


def test_twice_is_enough_and_evictions_do_not_count() -> None:
    assert avoidance.nodes(job(failures=FAILURES).status) == ["bad"]


def test_the_next_pods_prefer_others() -> None:
    given = job(failures=FAILURES, round=0)
    _, found = settle(given)
    affinity = found.create[0].manifest["spec"]["affinity"]["nodeAffinity"]
    assert affinity == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]},
            }
        ]
    }


def test_no_failures_no_affinity() -> None:
    _, found = settle(job())
    assert "affinity" not in found.create[0].manifest["spec"]
