"""Sets of indexes as text: `0-311,313`. Bounded status for any number of pods that finish in any order."""

from __future__ import annotations

from collections.abc import Iterable


def pack(indexes: Iterable[int]) -> str:
    """The shortest text of a set of indexes, in order."""
    parts: list[str] = []
    start = last = None
    for index in sorted(set(indexes)):
        if last is not None and index == last + 1:
            last = index
            continue
        if start is not None:
            parts.append(str(start) if start == last else f"{start}-{last}")
        start = last = index
    if start is not None:
        parts.append(str(start) if start == last else f"{start}-{last}")
    return ",".join(parts)


def unpack(text: str) -> set[int]:
    """The indexes of such a text; ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found
