"""Why pods do not get to run, in words that say what to do."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..api.plan import Refusal
from ..api.types import Framework
from .view import View

CURES = {
    "ErrImagePull": "check the image's name and imagePullSecrets",
    "ImagePullBackOff": "check the image's name and imagePullSecrets",
    "InvalidImageName": "check the image's name",
    "ErrImageNeverPull": "the image is not on the node; set imagePullPolicy to IfNotPresent",
    "CreateContainerConfigError": "a ConfigMap, Secret or key that the template names is missing",
    "CreateContainerError": "the container runtime refused the container",
    "RunContainerError": "the container runtime could not start the container",
    "CrashLoopBackOff": "a container keeps failing; `kubectl logs` shows why",
}
"""Reasons for which the kubelet keeps a container waiting, and what a person does about each."""


TOGETHER: Mapping[Framework, str] = {
    "pytorch": "start the script with torchrun, or let it read RANK and WORLD_SIZE",
    "tensorflow": "use a strategy that reads TF_CONFIG, such as MultiWorkerMirroredStrategy",
    "horovod": "start the script with horovodrun -np $(DISTTRAIN_WORLD_SIZE), or with disttrain-horovodrun",
    "mpi": "leave -np out, so that mpirun fills all slots, or write $(DISTTRAIN_WORLD_SIZE)",
}
"""What makes one world of the processes of each framework."""


class Stall(Struct, frozen=True):
    """What the job waits for."""

    reason: str
    message: str


def stall(view: View, refusal: Refusal | None) -> Stall | None:
    """The first thing that stands in the way, None where there is none."""
    if refusal and refusal.reason == "Forbidden":
        return Stall(refusal.word, f"{refusal.kind} {refusal.name} was refused: {refusal.message}")
    for slot in view.slots:
        pod = view.current.get(slot)
        if pod is None or pod.ended or pod.deletion is not None:
            continue
        if pod.waiting:
            cure = CURES.get(pod.waiting)
            words = ": ".join(filter(None, (pod.waiting, pod.waiting_message)))
            return Stall(pod.waiting, f"{pod.name} waits, {words}" + (f" ({cure})" if cure else ""))
        if pod.unscheduled:
            return Stall("Unschedulable", f"{pod.name} has no node: {pod.unscheduled}")
    progress, expected = view.progress, view.job.status.world_size
    if progress and progress.round == view.rounds[view.leader] and 0 < progress.world_size < expected:
        return Stall(
            "TrainsAlone",
            f"the training sees a world of {progress.world_size}, the job has {expected}: the processes do not train "
            f"together; {TOGETHER[view.job.spec.framework]}",
        )
    return None
