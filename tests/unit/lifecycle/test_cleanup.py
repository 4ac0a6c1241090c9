"""`cleanPods`, `keepOnFailure` and `graceSeconds`, by table."""

from __future__ import annotations

import pytest
from jobs import NOW, done, failed, job, pod

from disttrain.api.pods import PodView
from disttrain.api.times import stamp
from disttrain.lifecycle import cleanup

RUNS, ENDED, BROKE, PAST, DYING = (
    pod(index=0, round_=2),
    done(index=1, round_=2),
    failed(index=2, round_=2),
    pod(index=3, round_=1),
    pod(index=4, round_=2, deletion=NOW),
)
ALL = [RUNS, ENDED, BROKE, PAST, DYING]


@pytest.mark.parametrize(
    ("state", "policy", "keep", "later", "gone"),
    [
        ("Failed", "Running", False, 0, [RUNS, PAST]),
        ("Failed", "All", False, 0, [RUNS, ENDED, BROKE, PAST]),
        ("Failed", "All", True, 0, [RUNS, PAST]),
        ("Failed", "None", False, 0, [PAST]),
        ("Succeeded", "Running", False, 0, [PAST]),
        ("Succeeded", "Running", False, 30, [RUNS, PAST]),
        ("Succeeded", "All", False, 29, [PAST]),
        ("Succeeded", "All", True, 30, [RUNS, ENDED, BROKE, PAST]),
        ("Succeeded", "None", False, 1000, [PAST]),
    ],
)
def test_who_goes(state: str, policy: str, keep: bool, later: float, gone: list[PodView]) -> None:
    given = job({"cleanPods": policy, "keepOnFailure": keep}, state=state, round=2, completionTime=stamp(NOW))
    assert cleanup.doomed(given, ALL, NOW + later) == gone


def test_no_grace_is_spent_when_all_have_ended() -> None:
    given = job({"cleanPods": "All"}, state="Succeeded", round=2, completionTime=stamp(NOW))
    assert cleanup.doomed(given, [ENDED, BROKE], NOW) == [ENDED, BROKE]


def test_a_pod_whose_main_container_has_ended_may_come_to_its_end() -> None:
    ending = pod(index=1, round_=2, exit_code=0)  # still Running: a sidecar, or the kubelet's next report will say
    given = job(state="Succeeded", round=2, completionTime=stamp(NOW))
    assert cleanup.doomed(given, [done(index=0, round_=2), ending], NOW) == []
    assert cleanup.doomed(given, [done(index=0, round_=2), ending], NOW + 30) == [ending]
