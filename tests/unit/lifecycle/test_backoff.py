"""The pause before a restart."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import NOW, failed, job, plan, pod, settle, started

from disttrain.api.times import stamp
from disttrain.lifecycle import backoff


@pytest.mark.parametrize(("in_a_row", "pause"), [(0, 10), (1, 10), (2, 20), (3, 40), (4, 60), (20, 60), (1000, 60)])
def test_doubles_up_to_the_most_within_its_jitter(in_a_row: int, pause: float) -> None:
    spec = {"restart": {"backoff": {"initial": 10, "max": 60}}}
    given = job(spec, round=2, roundCause="Restart", roundTime=stamp(NOW), restartsInARow=in_a_row)
    due = backoff.due(given)
    assert due is not None
    assert 0.8 * pause <= due - NOW <= 1.2 * pause
    assert due == backoff.due(given)


@pytest.mark.parametrize("status", [{"roundCause": "Start"}, {"roundCause": "Resize"}, {"roundCause": "Resume"}])
def test_only_restarts_wait(status: dict[str, Any]) -> None:
    spec = {"restart": {"backoff": {"initial": 10}}}
    assert backoff.due(job(spec, round=2, roundTime=stamp(NOW), **status)) is None


def test_old_pods_go_at_once_and_new_ones_come_later() -> None:
    given = started({"restart": {"backoff": {"initial": 100}}})
    pods = [failed(index=0), pod(index=1), pod(index=2)]
    given, found = settle(given, *pods)
    assert not found.create
    assert {gone.pod.name for gone in found.delete} == {p.name for p in pods}
    assert found.wake is not None
    assert NOW + 80 <= found.wake <= NOW + 120
    assert found.status is not None
    assert "restart.backoff" in found.status.message
    assert len(plan(given, now=found.wake).create) == 3
