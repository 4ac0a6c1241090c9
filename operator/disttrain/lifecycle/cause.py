"""What torchrun says of a failure.

torchrun exits with 1 whatever ended its workers; which rank failed first, and how, stands only in the summary that it
prints last (torch.distributed.elastic.multiprocessing.errors.ChildFailedError.format_msg). The container's termination
message holds it where the container wrote none of its own.
"""

from __future__ import annotations

import re

from msgspec import Struct

ROOT = re.compile(r"Root Cause \(first observed failure\):\s*(?P<entry>.*?)(?:\n=+|\Z)", re.DOTALL)
FIELD = re.compile(r"^\s*(?P<name>rank|exitcode)\s*:\s*(?P<value>-?\d+)", re.MULTILINE)


class Cause(Struct, frozen=True):
    """The first failure that torchrun saw."""

    rank: int
    exit_code: int
    """As a shell counts: 128 + number for a signal."""
    signal: int | None = None


def read(message: str) -> Cause | None:
    """The cause in a text that holds torchrun's summary; None in any other."""
    summary = ROOT.search(message)
    if summary is None:
        return None
    fields = {match["name"]: int(match["value"]) for match in FIELD.finditer(summary["entry"])}
    if len(fields) != 2:
        return None
    code = fields["exitcode"]
    return Cause(fields["rank"], 128 - code, -code) if code < 0 else Cause(fields["rank"], code)
