"""A job, its pods and its training in a few words each."""

from __future__ import annotations

from ..api.pods import PodView
from ..api.types import Job, Progress


def facts(progress: Progress) -> str:
    """The training's numbers in one line."""
    parts = []
    if progress.epoch:
        parts.append(f"epoch {progress.epoch}" + (f"/{progress.epochs}" if progress.epochs else ""))
    if progress.step or progress.of:
        parts.append(f"step {progress.step}" + (f"/{progress.of}" if progress.of else ""))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.accuracy is not None:
        parts.append(f"accuracy {progress.accuracy:.4f}")
    if progress.samples_per_second is not None:
        parts.append(f"{progress.samples_per_second:,.0f} samples/s")
    return ", ".join(parts)


def headline(job: Job) -> str:
    """The job's state in one line."""
    status = job.status
    parts: list[str] = [status.state]
    if status.ready and status.state not in ("Succeeded", "Failed"):  # nobody waits for the pods of a job that ended
        parts.append(f"{status.ready} ready")
    if status.restarts:
        parts.append("1 restart" if status.restarts == 1 else f"{status.restarts} restarts")
    return f"{', '.join(parts)}: {status.message}" if status.message else ", ".join(parts)


def remark(pod: PodView) -> str:
    """What is worth saying of a pod beside its phase."""
    if pod.deletion is not None and not pod.terminal:
        return "stopping"
    if pod.exit_code is not None:
        plain = pod.exit_reason in ("", "Error", "Completed")
        return f"exit code {pod.exit_code}" + ("" if plain else f" ({pod.exit_reason})")
    if pod.waiting:
        return ": ".join(filter(None, (pod.waiting, pod.waiting_message)))
    return pod.unscheduled or pod.reason
