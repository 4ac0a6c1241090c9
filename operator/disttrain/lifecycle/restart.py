"""What a failure does: nothing, a restart of the world, or the end.

One round, one charge: the first failure is the cause, the exits that follow in the round are its consequences. So a
charge is a change of round, written before anything else happens; pods of an older round are never judged again.
"""

from __future__ import annotations

from msgspec import Struct

from ..api.pods import PodView, Slot
from .view import View

CANNOT_RUN = {126: "the command is not executable", 127: "the command was not found"}
"""Exit codes that no restart cures (POSIX shell, section 2.8.2)."""
CANNOT_START = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons with which container runtimes report a command that cannot be started."""
INFRASTRUCTURE = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeShutdown",
        "NodeLost",
        "Terminated",
        "Shutdown",
        "NodeAffinity",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "DeletionByPodGC",
    }
)
"""Reasons of pods that the cluster ended: not the training's fault, never charged."""


class Loss(Struct, frozen=True, kw_only=True):
    """A slot that lost its pod."""

    slot: Slot
    pod: PodView | None
    """None where the pod is gone without a trace."""
    reason: str
    exit_code: int | None = None
    infrastructure: bool = False

    def __str__(self) -> str:
        if self.reason == "Deleted":
            return f"the pod of {self.slot} was deleted"
        if self.infrastructure:
            return f"the pod of {self.slot} was taken away ({self.reason})"
        code = f" with exit code {self.exit_code}" if self.exit_code is not None else ""
        return f"{self.slot} failed{code}" + (f" ({self.reason})" if self.reason not in ("", "Error") else "")


class Verdict(Struct, frozen=True, kw_only=True):
    """What is to be done about a loss."""

    loss: Loss
    charged: bool
    """It costs one of the restarts that `restart.limit` allows."""
    fails: bool
    """The job ends with this."""
    in_a_row: int
    """The count of restarts without progress after this one."""
    message: str


def losses(view: View) -> list[Loss]:
    """The slots that lost their pod in this round, the likely cause first.

    What the infrastructure took comes first: its peers fail as a consequence, and must not be charged. Then the first
    to end; among those of one second an exit other than 1, which is what survivors of a lost peer end with.
    """
    found = []
    for slot in view.slots:
        pod = view.current.get(slot) or view.departed.get(slot)
        if slot in view.completed:
            continue
        if pod is None:
            if view.launched:
                found.append(Loss(slot=slot, pod=None, reason="Deleted", infrastructure=True))
        elif pod.disrupted or (pod.failed and pod.reason in INFRASTRUCTURE):
            if pod.failed or pod.deletion is not None:
                reason = pod.reason or "DisruptionTarget"
                found.append(Loss(slot=slot, pod=pod, reason=reason, infrastructure=True))
        elif pod.deletion is not None:
            found.append(Loss(slot=slot, pod=pod, reason="Deleted", infrastructure=True))
        elif pod.failed:
            found.append(Loss(slot=slot, pod=pod, reason=pod.exit_reason or pod.reason, exit_code=pod.exit_code))
    return sorted(
        found,
        key=lambda loss: (
            not loss.infrastructure,
            (loss.pod.ended_at if loss.pod else None) or view.now,
            loss.exit_code == 1,
        ),
    )


def judge(view: View) -> Verdict | None:
    """What the losses of this round call for; None where there is none."""
    found = losses(view)
    if not found:
        return None
    loss, status, limit = found[0], view.job.status, view.job.spec.restart.limit
    if loss.infrastructure:
        message = f"{_capital(loss)}; a restart follows, at no charge."
        return Verdict(loss=loss, charged=False, fails=False, in_a_row=status.restarts_in_a_row, message=message)
    why = CANNOT_RUN.get(loss.exit_code or 0)
    if why is None and loss.reason in CANNOT_START:
        why = "the container could not be started"
    if why:
        message = f"{_capital(loss)}: {why}. A restart would not help."
        return Verdict(loss=loss, charged=False, fails=True, in_a_row=status.restarts_in_a_row, message=message)
    before = 0 if step(view) > status.restart_checkpoint else status.restarts_in_a_row
    if before >= limit:
        tried = f"after {before} restarts without progress" if before else "and restart.limit allows no restart"
        message = f"{_capital(loss)}, {tried} (restart.limit is {limit}). `kubectl logs {_pod(loss)}` shows why."
        return Verdict(loss=loss, charged=False, fails=True, in_a_row=before, message=message)
    message = f"{_capital(loss)}; restart {before + 1} of {limit} follows."
    return Verdict(loss=loss, charged=True, fails=False, in_a_row=before + 1, message=message)


def step(view: View) -> int:
    """Step of the newest checkpoint that the training reported, 0 where it reported none."""
    checkpoint = view.progress.checkpoint if view.progress else None
    return checkpoint.step if checkpoint else 0


def _capital(loss: Loss) -> str:
    text = str(loss)
    return text[0].upper() + text[1:]


def _pod(loss: Loss) -> str:
    return loss.pod.name if loss.pod else str(loss.slot)
