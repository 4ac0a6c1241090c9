"""Which pods go when the job has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..api.pods import PodView
from ..api.times import seconds
from ..api.types import Job
from .view import slot_rounds


def due(job: Job, pods: Sequence[PodView], endless: Collection[str] = ()) -> float:
    """When `cleanPods` applies, seconds since 1970.

    At once after a failure; after a success as soon as all pods have ended, at the latest after `graceSeconds`. Nobody
    waits for the `endless` roles.
    """
    end = seconds(job.status.completion_time or job.metadata.creation_timestamp)
    waits = job.status.state == "Succeeded" and not all(pod.terminal for pod in pods if pod.role not in endless)
    return end + job.spec.grace_seconds if waits else end


def doomed(job: Job, pods: Sequence[PodView], now: float, endless: Collection[str] = ()) -> list[PodView]:
    """The pods to delete now.

    Pods of rounds that have passed always go, since their successors stood in for them; so do those of `endless` roles,
    which would never end by themselves.
    """
    policy = job.spec.clean_pods
    if policy == "All" and job.status.state == "Failed" and job.spec.keep_on_failure:
        policy = "Running"
    apply = now >= due(job, pods, endless)
    slots = [pod.slot for pod in pods]
    rounds = slot_rounds(job, slots)
    found = []
    for pod in pods:
        if pod.deletion is not None:
            continue
        past = pod.round < rounds[pod.slot] or (pod.role in endless and not pod.terminal)
        if past or (apply and (policy == "All" or (policy == "Running" and not pod.terminal))):
            found.append(pod)
    return found
