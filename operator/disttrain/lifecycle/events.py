"""The events of a transition: derived from the statuses before and after, so that each is told once, when it holds."""

from __future__ import annotations

from ..api.plan import Event
from ..api.types import Status
from .conditions import get, is_true

WARNS = frozenset({"Failed", "Restarting"})


def between(before: Status, after: Status) -> list[Event]:
    """What a user would ask about in a change of status."""
    found: list[Event] = []
    if after.state != before.state or after.round != before.round:
        found.append(Event(reason=after.state, message=after.message, warning=after.state in WARNS))
    for kind, bad in (("Accepted", "False"), ("Stalled", "True")):
        new, old = get(after, kind), get(before, kind)  # type: ignore[arg-type]
        if new and new.status == bad and (old is None or (old.status, old.reason) != (new.status, new.reason)):
            found.append(Event(reason=new.reason, message=new.message, warning=True))
    return found


def matters(before: Status, after: Status) -> bool:
    """Whether a person waits for this change.

    Counters and progress can wait a little, so that the number of writes does not grow with the number of pods; so can
    `Accepted`, where nothing was refused.
    """
    if (before.state, before.round, before.launched) != (after.state, after.round, after.launched):
        return True  # `launched` tells a pod that is not made yet from one that was lost: it must outlive us at once

    def told(status: Status) -> set[tuple[str, str, str]]:
        return {(c.type, c.status, c.reason) for c in status.conditions if (c.type, c.status) != ("Accepted", "True")}

    return told(before) != told(after) or is_true(before, "Accepted") > is_true(after, "Accepted")
