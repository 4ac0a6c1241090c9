"""The job's clocks. They stand in the status, so that they go on across restarts of the operator, and each has an alarm
of its own: a deadline is kept also when nothing else happens to the job."""

from __future__ import annotations

from msgspec import Struct

from ..api.times import seconds
from ..api.types import Progress, Status
from . import conditions
from .view import View


class Overdue(Struct, frozen=True):
    """A deadline that has passed."""

    reason: str
    message: str


def active(status: Status, now: float) -> int:
    """Seconds that the job has been active; suspended time does not count."""
    since = now - seconds(status.active_since) if status.active_since else 0.0
    return status.active_seconds + max(0, int(since))


def active_due(view: View) -> float | None:
    """When `activeDeadlineSeconds` is over."""
    limit = view.job.spec.active_deadline_seconds
    return None if limit is None else view.now + limit - active(view.job.status, view.now)


def startup_due(view: View) -> float | None:
    """When `startupDeadlineSeconds` is over; None once all pods of the round have run."""
    limit, status = view.job.spec.startup_deadline_seconds, view.job.status
    if limit is None or conditions.is_true(status, "Running") or not status.round_time:
        return None
    return seconds(status.round_time) + limit


def progress_due(view: View) -> float | None:
    """When `progressDeadlineSeconds` is over; None while not all pods run, or none is to be expected of the leader."""
    limit, status = view.job.spec.progress_deadline_seconds, view.job.status
    running = conditions.get(status, "Running")
    if limit is None or running is None or running.status != "True":
        return None
    if not view.reads_progress or view.leader in view.completed:
        return None
    if further(status.progress, view.progress):
        return view.now + limit
    moved = seconds(status.progress_time) if status.progress_time else 0.0
    return max(seconds(running.last_transition_time), moved) + limit


def further(before: Progress | None, after: Progress | None) -> bool:
    """Whether the training has moved between two reports."""
    if after is None:
        return False
    return before is None or (before.round, before.epoch, before.step) != (after.round, after.epoch, after.step)


def exceeded(view: View, waits_for: str | None) -> Overdue | None:
    """The deadline that ends the job, if one has passed."""
    spec = view.job.spec
    due = active_due(view)
    if due is not None and view.now >= due:
        words = f"The job has been active for {active(view.job.status, view.now)} s; activeDeadlineSeconds is"
        return Overdue("ActiveDeadlineExceeded", f"{words} {spec.active_deadline_seconds}.")
    due = startup_due(view)
    if due is not None and view.now >= due:
        words = f"After {spec.startup_deadline_seconds} s (startupDeadlineSeconds) not all pods run"
        return Overdue("StartupDeadlineExceeded", f"{words}: {waits_for or view.job.status.message}")
    return None


def hung(view: View) -> bool:
    """Whether the training has made no progress for `progressDeadlineSeconds`."""
    due = progress_due(view)
    return due is not None and view.now >= due


def alarm(view: View) -> float | None:
    """When the next deadline passes."""
    found = [due for due in (active_due(view), startup_due(view), progress_due(view)) if due is not None]
    return min(found, default=None)
