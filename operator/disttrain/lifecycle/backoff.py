"""The pause before a restart."""

from __future__ import annotations

import zlib

from ..api.times import seconds
from ..api.types import Job

JITTER = 0.2
"""Part of the pause by which it is longer or shorter, so that jobs that fail together do not restart together."""


def due(job: Job) -> float | None:
    """When pods of a restarted round may be made, seconds since 1970; None where at once.

    Doubles with each restart in a row from `initial` to `max`. The jitter is a hash of the job and the round: the same
    for every operator that asks.
    """
    backoff, status = job.spec.restart.backoff, job.status
    if backoff is None or status.round_cause != "Restart" or not status.round_time:
        return None
    doublings = min(max(status.restarts_in_a_row - 1, 0), 30)
    pause = min(backoff.initial * 2.0**doublings, backoff.max)
    spin = zlib.crc32(f"{job.metadata.uid}/{status.round}".encode()) / 2**32
    return seconds(status.round_time) + pause * (1 + JITTER * (2 * spin - 1))
