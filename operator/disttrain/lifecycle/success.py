"""When a job has succeeded."""

from __future__ import annotations

from .view import View


def reached(view: View) -> str | None:
    """What made the job succeed, in plain words; None while it has not."""
    if view.job.spec.success == "Leader":
        return f"{view.leader} finished with success" if view.leader in view.completed else None
    workers = [slot for slot in view.slots if slot.role == "worker"] or list(view.slots)
    done = all(slot in view.completed for slot in workers)
    return f"all {len(workers)} {workers[0].role}s finished with success" if done else None
