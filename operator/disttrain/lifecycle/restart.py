"""What a failure does: nothing, a restart of the world, or the end.

One round, one charge: the first failure is the cause, the exits that follow in the round are its consequences. So a
charge is a change of round, written before anything else happens; pods of an older round are never judged again.
"""

from __future__ import annotations

from msgspec import Struct

from ..api.pods import MAX_WORDS, PodView, Slot
from . import cause, deadlines, rules
from .view import View

NO_PROGRESS = "NoProgress"
"""Reason of the loss of a world that hangs."""
CANNOT_RUN = {126: "the command is not executable", 127: "the command was not found"}
"""Exit codes that no restart cures (POSIX shell, section 2.8.2)."""
CANNOT_START = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons with which container runtimes report a command that cannot be started."""
UNSUPPORTED = "UnsupportedPodSpec"
"""Reason with which the one-machine cluster's kubelet refuses a pod for good; its message holds the way out."""
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
    rank: int | None = None
    """The rank that failed first, where torchrun's summary says so."""
    infrastructure: bool = False

    def __str__(self) -> str:
        if self.reason == NO_PROGRESS:
            return "the training made no progress for progressDeadlineSeconds"
        if self.reason == "Deleted":
            return f"the pod of {self.slot} was deleted"
        if self.infrastructure:
            return f"the pod of {self.slot} was taken away ({self.reason})"
        code = f" with exit code {self.exit_code}" if self.exit_code is not None else ""
        code = f", rank {self.rank} first{code}" if self.rank is not None else code
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
            found.append(_failure(slot, pod))
    return sorted(
        found,
        key=lambda loss: (
            not loss.infrastructure,
            (loss.pod.ended_at if loss.pod else None) or view.now,
            loss.exit_code == 1,
        ),
    )


def _failure(slot: Slot, pod: PodView) -> Loss:
    """A pod's own failure; torchrun's summary tells more than its exit code."""
    told = cause.read(pod.exit_message) if pod.exit_message else None
    reason = pod.exit_reason or pod.reason
    if told is None:
        return Loss(slot=slot, pod=pod, reason=reason, exit_code=pod.exit_code)
    if told.signal and reason in ("", "Error"):
        reason = rules.signal_name(told.signal)
    return Loss(slot=slot, pod=pod, reason=reason, exit_code=told.exit_code, rank=told.rank)


def judge(view: View) -> Verdict | None:
    """What the losses of this round call for; None where there is none."""
    found = losses(view)
    if not found and deadlines.hung(view):
        found = [Loss(slot=view.leader, pod=view.current.get(view.leader), reason=NO_PROGRESS)]
    if not found:
        return None
    loss, status, spec = found[0], view.job.status, view.job.spec.restart
    pod = loss.pod
    reasons = [loss.reason, *((pod.reason, pod.exit_reason) if pod else ())]
    action = rules.matching(spec.rules, loss.exit_code, pod.signal if pod else None, reasons)

    def verdict(message: str, *, charged: bool = False, fails: bool = False, in_a_row: int | None = None) -> Verdict:
        count = status.restarts_in_a_row if in_a_row is None else in_a_row
        message = f"{_capital(loss)}{message}"
        return Verdict(loss=loss, charged=charged, fails=fails, in_a_row=count, message=message)

    if action == "Fail":
        return verdict("; a rule of spec.restart.rules says that this fails the job.", fails=True)
    if action == "Ignore" or (action is None and loss.infrastructure):
        return verdict("; a restart follows, at no charge.")
    why = None if action else CANNOT_RUN.get(loss.exit_code or 0)
    if why is None and action is None and loss.reason in CANNOT_START:
        why = "the container could not be started" + _words(pod)
    if loss.reason == UNSUPPORTED:
        return verdict(f": {pod.message if pod else ''}", fails=True)
    if why:
        return verdict(f": {why}. A restart would not help.", fails=True)
    before = 0 if step(view) > status.restart_checkpoint else status.restarts_in_a_row
    look = f"`kubectl logs {pod.name if pod else loss.slot}` shows why."
    if before >= spec.limit:
        tried = f"after {before} restarts without progress" if before else "and restart.limit allows no restart"
        return verdict(f", {tried} (restart.limit is {spec.limit}). {look}", fails=True)
    if spec.total is not None and status.restarts >= spec.total:
        return verdict(f", after {status.restarts} restarts in all (restart.total is {spec.total}). {look}", fails=True)
    return verdict(f"; restart {before + 1} of {spec.limit} follows.", charged=True, in_a_row=before + 1)


def step(view: View) -> int:
    """Step of the newest checkpoint that the training reported, 0 where it reported none."""
    checkpoint = view.progress.checkpoint if view.progress else None
    return checkpoint.step if checkpoint else 0


def _words(pod: PodView | None) -> str:
    """What the container runtime said, such as which program is missing; empty where it said nothing."""
    words = " ".join(pod.exit_message.split()).rstrip(".") if pod else ""
    return f": {words[:MAX_WORDS]}" if words else ""


def _capital(loss: Loss) -> str:
    text = str(loss)
    return text[0].upper() + text[1:]
