"""`restart.rules`, by table, and what they do to a job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jobs import failed, plan, pod, started

from disttrain.api.types import RestartRule
from disttrain.lifecycle import rules


@pytest.mark.parametrize(
    ("rule", "code", "signal", "reasons", "matches"),
    [
        ({"exitCodes": [3]}, 3, None, [], True),
        ({"exitCodes": [3]}, 4, None, [], False),
        ({"signals": ["SIGKILL"]}, 137, None, [], True),
        ({"signals": ["SIGKILL"]}, 1, 9, [], True),
        ({"exitCodes": [137]}, 137, None, [], True),
        ({"signals": ["SIGTERM"]}, 137, None, [], False),
        ({"reasons": ["OOMKilled"]}, 137, None, ["OOMKilled"], True),
        ({"reasons": ["OOMKilled"], "exitCodes": [1]}, 137, None, ["OOMKilled"], False),
        ({"reasons": ["OOMKilled"], "signals": ["SIGKILL"]}, 137, None, ["", "OOMKilled"], True),
        ({}, 1, None, [], False),
    ],
)
def test_matching(rule: dict[str, Any], code: int, signal: int | None, reasons: list[str], matches: bool) -> None:
    found = rules.matching([msgspec.convert({"action": "Fail", **rule}, RestartRule)], code, signal, reasons)
    assert found == ("Fail" if matches else None)


def test_first_match_counts() -> None:
    listed = [RestartRule(action="Ignore", exit_codes=[3]), RestartRule(action="Fail", exit_codes=[3, 4])]
    assert rules.matching(listed, 3, None, []) == "Ignore"
    assert rules.matching(listed, 4, None, []) == "Fail"


@pytest.mark.parametrize(
    ("rule", "code", "state", "charged"),
    [
        ({"action": "Fail", "exitCodes": [3]}, 3, "Failed", 0),
        ({"action": "Ignore", "exitCodes": [3]}, 3, "Restarting", 0),
        ({"action": "Restart", "exitCodes": [127]}, 127, "Restarting", 1),
        ({"action": "Fail", "exitCodes": [3]}, 4, "Restarting", 1),
    ],
)
def test_what_a_rule_does(rule: dict[str, Any], code: int, state: str, charged: int) -> None:
    given = started({"restart": {"rules": [rule]}})
    found = plan(given, pod(index=0), failed(index=1, code=code), pod(index=2))
    assert found.commit is not None
    assert (found.commit.state, found.commit.restarts) == (state, charged)


def test_total_bounds_all_restarts() -> None:
    given = started({"restart": {"total": 0, "limit": 5}})
    found = plan(given, pod(index=0), failed(index=1), pod(index=2))
    assert found.commit is not None
    assert found.commit.state == "Failed"
    assert "restart.total is 0" in found.commit.message
