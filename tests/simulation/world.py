"""A Kubernetes cluster in memory, for one job: the API server's objects, kubelets that run pods, a user who edits.

It holds the truth, and checks at each write what must hold at every moment. Time stands still unless `now` is moved.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import msgspec
from msgspec import structs

from disttrain.api.constants import LABEL_INDEX, LABEL_JOB_UID, LABEL_ROLE, LABEL_ROUND
from disttrain.api.plan import Manifest
from disttrain.api.pods import PodView
from disttrain.api.times import stamp
from disttrain.api.types import Job, Status

START = 1_800_000_000.0
ENDED = ("Succeeded", "Failed")
Change = tuple[Literal["pod", "gone", "job", "job gone"], PodView | Job]


Place = tuple[str, str, int, int]
"""A pod of a job: uid of the job, role, index, round."""


def place(pod: PodView) -> Place:
    """Which pod it is."""
    return pod.owner, pod.role, pod.index, pod.round


class Violation(AssertionError):
    """Something that must always hold does not."""


class Gone(Exception):
    """404."""


class Clash(Exception):
    """409: the resourceVersion or uid is not what the caller thinks."""


class Exists(Exception):
    """409 AlreadyExists, with what has the name."""

    def __init__(self, pod: PodView) -> None:
        super().__init__(pod.name)
        self.pod = pod


class Refused(Exception):
    """403."""


class World:
    """The truth."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.now = START
        self.version = 100
        self.serial = 0
        self.spec = spec
        self.job: Job | None = None
        self.pods: dict[str, PodView] = {}
        self.story: list[str] = []
        self.watchers: list[deque[Change]] = []
        self.quota = True
        """Whether pods are taken."""
        self.charged: set[Place] = set()
        self.failed: set[Place] = set()
        """Pods that failed by their own fault."""
        self.taken: set[Place] = set()
        """Pods that the cluster or a person took away."""
        self.unseen: set[Place] = set()
        """Pods that ended and went: an operator that lists afterwards cannot know how they ended."""
        self.recreate()

    # --------------------------------------------------------------------------------------------- telling

    def tell(self, words: str) -> None:
        """Adds a line to the story."""
        self.story.append(f"{self.now - START:8.1f}  {words}")

    def _changed(self, change: Change) -> None:
        for watcher in self.watchers:
            watcher.append(change)

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _put(self, pod: PodView) -> PodView:
        pod = structs.replace(pod, version=self._next())
        self.pods[pod.name] = pod
        self._changed(("pod", pod))
        return pod

    def drop(self, pod: PodView) -> None:
        """The pod's object goes."""
        del self.pods[pod.name]
        self._changed(("gone", structs.replace(pod, version=self._next())))

    # ------------------------------------------------------------------------------------------------ user

    def recreate(self) -> None:
        """The user deletes the job and makes it again under the same name."""
        if self.job is not None:
            self._changed(("job gone", self.job))
        self.serial += 1
        body = {
            "metadata": {
                "name": "job",
                "namespace": "ns",
                "uid": f"uid-{self.serial}",
                "generation": 1,
                "resourceVersion": str(self._next()),
                "creationTimestamp": stamp(self.now),
            },
            "spec": self.spec,
        }
        self.job = msgspec.convert(body, Job)
        self.tell(f"the user makes the job, uid-{self.serial}")
        self._changed(("job", self.job))

    def delete_job(self) -> None:
        """The user deletes the job for good."""
        if self.job is not None:
            self.tell("the user deletes the job")
            self._changed(("job gone", self.job))
            self.job = None

    def scale(self, workers: int) -> None:
        """The user edits worker.replicas."""
        if self.job is None or self.job.spec.worker.replicas == workers:
            return
        self.tell(f"the user scales to {workers} workers")
        job = self.job
        meta = structs.replace(job.metadata, generation=job.metadata.generation + 1, resource_version=str(self._next()))
        spec = structs.replace(job.spec, worker=structs.replace(job.spec.worker, replicas=workers))
        self.job = structs.replace(job, metadata=meta, spec=spec)
        self._changed(("job", self.job))

    def collect(self) -> None:
        """The garbage collector removes the pods of jobs that are gone."""
        for pod in list(self.pods.values()):
            if self.job is None or pod.owner != self.job.metadata.uid:
                self.tell(f"garbage collection removes {pod.name}")
                self.drop(pod)

    # ------------------------------------------------------------------------------------------------- API

    def get_job(self) -> Job:
        """GET; raises Gone."""
        if self.job is None:
            raise Gone
        return self.job

    def list(self) -> tuple[Job | None, list[PodView], deque[Change]]:
        """A consistent list, and a watch from there on."""
        self.taken |= self.unseen
        watcher: deque[Change] = deque()
        self.watchers.append(watcher)
        return self.job, list(self.pods.values()), watcher

    def unwatch(self, watcher: deque[Change]) -> None:
        """Ends a watch."""
        self.watchers = [other for other in self.watchers if other is not watcher]

    def write_status(self, seen: Job, status: Status) -> Job:
        """A guarded write; raises Gone, Clash, or Violation where the change breaks a promise."""
        job = self.job
        if job is None or job.metadata.uid != seen.metadata.uid:
            raise Gone
        if job.metadata.resource_version != seen.metadata.resource_version:
            raise Clash
        check_write(self, job, status)
        meta = structs.replace(job.metadata, resource_version=str(self._next()))
        self.job = structs.replace(job, metadata=meta, status=status)
        self.tell(f"status: round {status.round}, {status.state}, {status.restarts} restarts, {status.message}")
        self._changed(("job", self.job))
        return self.job

    def create_pod(self, manifest: Manifest) -> PodView:
        """POST; raises Exists or Refused."""
        meta = manifest["metadata"]
        name, labels = meta["name"], meta["labels"]
        if name in self.pods:
            raise Exists(self.pods[name])
        if not self.quota:
            raise Refused
        self.serial += 1
        pod = PodView(
            namespace="ns",
            name=name,
            uid=f"pod-{self.serial}",
            version=0,
            owner=meta["ownerReferences"][0]["uid"],
            job="job",
            job_uid=labels[LABEL_JOB_UID],
            role=labels[LABEL_ROLE],
            index=int(labels[LABEL_INDEX]),
            round=int(labels[LABEL_ROUND]),
            live=True,
        )
        for other in self.pods.values():
            if (other.owner, other.slot, other.round) == (pod.owner, pod.slot, pod.round):
                raise Violation(f"two pods of round {pod.round} in {pod.slot}: {other.name} and {pod.name}")
        self.tell(f"pod {name} is made")
        return self._put(pod)

    def unlist(self, name: str, uid: str) -> PodView:
        """PATCH of the label `live`; raises Gone or Clash."""
        pod = self.pods.get(name)
        if pod is None:
            raise Gone
        if pod.uid != uid:
            raise Clash
        return self._put(structs.replace(pod, live=False))

    def delete_pod(self, name: str, uid: str) -> None:
        """DELETE by uid; raises Gone or Clash."""
        pod = self.pods.get(name)
        if pod is None:
            raise Gone
        if pod.uid != uid:
            raise Clash
        self.tell(f"pod {name} is deleted")
        self.terminate(pod)

    def terminate(self, pod: PodView) -> None:
        """What a DELETE does: at once where no kubelet has the pod, else with grace."""
        if not pod.node or pod.terminal:
            self.drop(pod)
        elif pod.deletion is None:
            self._put(structs.replace(pod, deletion=self.now + 30, ready=False))

    # --------------------------------------------------------------------------------------------- kubelet

    def run(self, pod: PodView) -> None:
        """Schedules and starts a pod."""
        if pod.phase == "Pending" and pod.deletion is None:
            self.tell(f"{pod.name} runs")
            self._put(structs.replace(pod, phase="Running", ready=True, node="n1"))

    def succeed(self, pod: PodView) -> None:
        """The main container ends with 0."""
        if pod.phase == "Running":
            self.tell(f"{pod.name} exits with 0")
            self._put(
                structs.replace(
                    pod, phase="Succeeded", ready=False, exit_code=0, exit_reason="Completed", ended_at=self.now
                )
            )

    def fail(self, pod: PodView, code: int) -> None:
        """The main container ends with another code."""
        if pod.phase == "Running":
            self.tell(f"{pod.name} exits with {code}")
            if pod.deletion is None:
                self.failed.add(place(pod))
            self._put(
                structs.replace(
                    pod, phase="Failed", ready=False, exit_code=code, exit_reason="Error", ended_at=self.now
                )
            )

    def evict(self, pod: PodView) -> None:
        """The cluster takes a pod that has not ended."""
        if not pod.terminal:
            self.tell(f"{pod.name} is evicted")
            self.taken.add(place(pod))
            self._put(structs.replace(pod, phase="Failed", ready=False, reason="Evicted"))

    def remove(self, pod: PodView) -> None:
        """A person deletes a pod, or pod garbage collection takes one that has ended."""
        self.tell(f"{pod.name} is removed by hand")
        (self.unseen if pod.ended else self.taken).add(place(pod))
        self.terminate(pod)

    def reap(self, pod: PodView) -> None:
        """The kubelet has stopped a pod that was being deleted."""
        if pod.deletion is not None:
            self.tell(f"{pod.name} has stopped")
            self.drop(pod)


def check_write(world: World, job: Job, after: Status) -> None:
    """What each status write must keep."""
    before = job.status

    def must(holds: bool, words: str) -> None:
        if not holds:
            raise Violation(words)

    if before.state in ENDED:
        must(after.state == before.state, f"terminal was undone: {before.state} to {after.state}")
        must(after.completion_time == before.completion_time, "the completion time changed")
        must(after.round == before.round, "a round began after the end")
    must(after.round in (before.round, before.round + 1) or before.round == 0, "a round was skipped or undone")
    must(after.restarts - before.restarts in (0, 1), f"restarts went from {before.restarts} to {after.restarts}")
    must(after.restarts_in_a_row <= job.spec.restart.limit, "more restarts than restart.limit allows")
    must(after.restarts == before.restarts or after.round == before.round + 1, "a charge without a new round")
    if after.failures != before.failures and after.round > before.round:
        cause = after.failures[-1]
        lost = (job.metadata.uid, cause.role, cause.index, cause.round)
        if after.restarts > before.restarts:
            must(lost not in world.charged, f"the loss of {cause.pod} was charged twice")
            must(lost in world.failed, f"{cause.pod} was charged, and did not fail by its own fault")
            world.charged.add(lost)
        else:
            must(
                lost in world.taken, f"the failure of {cause.role}-{cause.index} in round {cause.round} was not charged"
            )
    else:
        must(after.restarts == before.restarts, "a charge without a failure")
    must(bool(after.completion_time) == (after.state in ENDED), "completion time and state disagree")
