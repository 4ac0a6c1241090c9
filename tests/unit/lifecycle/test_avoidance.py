"""Nodes that failed a job again and again."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import job, settle

from disttrain.lifecycle import avoidance


def failure(node: str, charged: bool = True) -> dict[str, Any]:
    return {"pod": "p", "uid": "u", "role": "worker", "index": 0, "round": 1, "node": node, "charged": charged}


FAILURES = [failure("bad"), failure("good"), failure("bad"), failure("full", False), failure("full", False)]


def test_twice_is_enough_and_evictions_do_not_count() -> None:
    assert avoidance.nodes(job(failures=FAILURES).status) == ["bad"]


def not_on(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


@pytest.mark.parametrize("bad", [["bad"], ["bad", "worse"]])
def test_the_next_pods_prefer_others(bad: list[str]) -> None:
    """The API server refuses a requirement on a field with several values."""
    given = job(failures=[*FAILURES, *(failure(node) for node in bad for _ in range(2))], round=0)
    _, found = settle(given)
    affinity = found.create[0].manifest["spec"]["affinity"]["nodeAffinity"]
    assert affinity == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": [not_on(node) for node in bad]}}
        ]
    }


def test_no_failures_no_affinity() -> None:
    _, found = settle(job())
    assert "affinity" not in found.create[0].manifest["spec"]
