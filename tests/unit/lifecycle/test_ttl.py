"""`ttlSecondsAfterFinished`."""

from __future__ import annotations

import pytest
from jobs import NOW, done, job, plan

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
