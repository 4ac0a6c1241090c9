"""Nodes that failed a job's pods again and again."""

from __future__ import annotations

from collections import Counter

from ..api.types import Status

OFFENCES = 2
"""Failures on one node, of those that the status remembers, after which the job's next pods avoid it."""


def nodes(status: Status) -> list[str]:
    """The nodes to avoid, sorted. Only charged failures count: an evicted pod says nothing of its node."""
    counted = Counter(failure.node for failure in status.failures if failure.node and failure.charged)
    return sorted(node for node, count in counted.items() if count >= OFFENCES)
