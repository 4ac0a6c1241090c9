"""`restart.rules`: what particular failures do."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Literal

from ..api.types import RestartRule

Action = Literal["Restart", "Fail", "Ignore"]


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `SIG64` and the like for those without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def matching(
    rules: Sequence[RestartRule] | None, exit_code: int | None, number: int | None, reasons: Sequence[str]
) -> Action | None:
    """The action of the first rule that matches; None where none does.

    Every matcher that a rule gives must match. A container that a signal ended has exit code 128 + number, so that a
    rule may name either.
    """
    if number is None and exit_code is not None and exit_code > 128:
        number = exit_code - 128
    name = signal_name(number) if number else None
    for rule in rules or ():
        asked = (
            (rule.exit_codes, exit_code in (rule.exit_codes or ())),
            (rule.signals, name in (rule.signals or ())),
            (rule.reasons, any(reason in (rule.reasons or ()) for reason in reasons)),
        )
        if any(given for given, _ in asked) and all(holds for given, holds in asked if given):
            return rule.action
    return None
