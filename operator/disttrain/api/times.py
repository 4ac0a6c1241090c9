"""Times: seconds since 1970 within the operator, RFC 3339 in the resource."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(stamp: str) -> float:
    """Seconds since 1970 of an RFC 3339 time."""
    return datetime.fromisoformat(stamp).timestamp()


def stamp(now: float) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
