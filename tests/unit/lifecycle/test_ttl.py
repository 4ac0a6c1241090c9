"""`ttlSecondsAfterFinished`."""

from __future__ import annotations

import pytest
from jobs import NOW, done, job, plan, pod, started
from msgspec import structs

from disttrain.api.plan import Plan
from disttrain.api.times import stamp


@pytest.mark.parametrize(
    ("ttl", "later", "remove", "wake"),
    [(None, 10**6, False, None), (60, 59, False, NOW + 60), (60, 60, True, None), (0, 0, True, None)],
)
def test_due(ttl: int | None, later: float, remove: bool, wake: float | None) -> None:
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    given = job(spec, state="Succeeded", round=1, completionTime=stamp(NOW), ready="0/0")
    found = plan(given, done(), now=NOW + later)
    assert found.remove is remove
    assert found.wake == wake
    if remove:
        assert found == Plan(remove=True)


def test_pods_that_may_still_finish_are_waited_for() -> None:
    given = started({"ttlSecondsAfterFinished": 0, "graceSeconds": 30})
    ended = plan(given, done(index=0), pod(index=1), pod(index=2)).commit
    assert ended is not None
    given = structs.replace(given, status=ended)
    waits = plan(given, done(index=0), pod(index=1), done(index=2), now=NOW + 29)
    assert not waits.remove
    assert waits.wake == NOW + 30
    assert plan(given, done(index=0), pod(index=1), done(index=2), now=NOW + 30).remove
    assert plan(given, *(done(index=i) for i in range(3)), now=NOW + 1).remove
