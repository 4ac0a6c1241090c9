"""Conditions in Kubernetes' style: a list with one entry a type, whose time changes only with its status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ..api.times import stamp
from ..api.types import Condition, ConditionType, Status

ConditionStatus = Literal["True", "False", "Unknown"]


def get(status: Status, kind: ConditionType) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def is_true(status: Status, kind: ConditionType) -> bool:
    """Whether the condition is there and true."""
    condition = get(status, kind)
    return condition is not None and condition.status == "True"


def put(
    conditions: Iterable[Condition],
    kind: ConditionType,
    status: ConditionStatus,
    reason: str,
    message: str,
    now: float,
    generation: int,
) -> list[Condition]:
    """The list with one condition set."""
    old = list(conditions)
    before = next((c for c in old if c.type == kind), None)
    same = before is not None and before.status == status
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:1024],
        last_transition_time=before.last_transition_time if before and same else stamp(now),
        observed_generation=generation,
    )
    return [new if c.type == kind else c for c in old] if before else [*old, new]
