"""When a job that has ended is deleted."""

from __future__ import annotations

from ..api.times import seconds
from ..api.types import Job


def due(job: Job) -> float | None:
    """When `ttlSecondsAfterFinished` is over, seconds since 1970; None where the job stays."""
    ttl, end = job.spec.ttl_seconds_after_finished, job.status.completion_time
    return None if ttl is None or end is None else seconds(end) + ttl
