"""The core with the smallest loop that carries out its plans, call by call, so that it may die between any two.

The order of calls is the controller's (`disttrain.cluster.controller`, `.apply`): commit, or objects, then pods slot by
slot (live off, delete, make), then one guarded status write. The whole loop itself is tested against the API.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from disttrain.api.constants import LABEL_INDEX, LABEL_ROLE, LABEL_ROUND
from disttrain.api.plan import Creation, Plan, Reconcile, Refusal, Seen, Settings
from disttrain.api.pods import PodView
from disttrain.api.types import Job

from .world import Clash, Exists, Gone, Refused, Violation, World

Call = Callable[[], object]
"""One API call, to be made or lost."""


class Lost(Exception):
    """No answer came: whether the call took effect is not known."""


class Operator:
    """One operator with its caches. `steps()` yields each call before it is made."""

    def __init__(self, name: str, world: World, core: Reconcile, settings: Settings) -> None:
        self.name = name
        self.world = world
        self.core = core
        self.settings = settings
        self.job, listed, self.watch = world.list()
        self.pods = {pod.uid: pod for pod in listed}
        self.gone: set[str] = set()
        self.absent: dict[str, int] = {}
        self.departed: dict[str, PodView] = {}
        self.refusal: Refusal | None = None
        self.idle = False
        self.work = self.steps()

    def deliver(self) -> bool:
        """Takes one change from the watch; False where there is none."""
        if not self.watch:
            return False
        kind, what = self.watch.popleft()
        if isinstance(what, PodView):
            if kind == "gone":
                self.gone.add(what.uid)
                self.pods.pop(what.uid, None)
                self.absent[what.name] = what.version
                if what.ended:
                    self.departed[what.uid] = what
            else:
                self.take(what)
        elif kind == "job gone":
            if self.job is not None and self.job.metadata.uid == what.metadata.uid:
                self.job = None
        else:
            self.take_job(what)
        self.idle = False
        return True

    def take(self, pod: PodView) -> None:
        """The newer view wins; what has gone does not come back."""
        known = self.pods.get(pod.uid)
        if pod.uid not in self.gone and (known is None or known.version < pod.version):
            self.pods[pod.uid] = pod

    def take_job(self, job: Job) -> None:
        """The newer job wins."""
        known = self.job
        if known is None or int(known.metadata.resource_version) < int(job.metadata.resource_version):
            if known is not None and known.metadata.generation != job.metadata.generation:
                self.refusal = None
            self.job = job

    def steps(self) -> Generator[Call, None, None]:
        """For ever: a plan, and its calls. A thrown error is the answer to the call that was yielded last."""
        while True:
            if self.job is None:
                self.idle = True
                yield nothing
                continue
            self.idle = False
            try:
                yield from self.once(self.job)
            except (Clash, Lost):
                yield from self.refresh()
            except Gone:
                yield from self.refresh()

    def refresh(self) -> Generator[Call, None, None]:
        """GET of the job."""
        answers: list[Job] = []
        try:
            yield lambda: answers.append(self.world.get_job())
        except Lost:
            return
        except Gone:
            self.job = None
            return
        if answers:
            self.take_job(answers[0])

    def once(self, job: Job) -> Generator[Call, None, None]:
        """One plan."""
        now = self.world.now
        mine = [pod for pod in self.pods.values() if pod.job_uid == job.metadata.uid]
        plan: Plan = self.core(
            job,
            Seen(pods=mine, refusal=self.refusal, absent=self.absent, departed=[*self.departed.values()]),
            now,
            self.settings,
        )
        if plan.stale:
            yield from self.refresh()
        elif plan.look:
            for name in plan.look:
                yield from self.look(name, int(job.metadata.resource_version))
        elif plan.commit is not None:
            commit = plan.commit
            yield lambda: self.take_job(self.world.write_status(job, commit))
        elif plan.create or plan.delete:
            for creation in plan.create:
                if not (yield from self.make(job, creation, mine)):
                    return
            for deletion in plan.delete:
                yield from self.delete(deletion.pod, deletion.unlist)
        elif plan.status is not None:
            status = plan.status
            yield lambda: self.take_job(self.world.write_status(job, status))
        else:
            self.idle = True
            yield nothing

    def look(self, name: str, version: int) -> Generator[Call, None, None]:
        """GET of a pod that may be missing."""
        found: list[PodView | None] = []
        yield lambda: found.append(self.world.pods.get(name))
        if found and found[0] is not None:
            self.take(found[0])
        elif found:
            while self.deliver():  # the loop gives its watch time to tell how the pod ended
                pass
            self.absent[name] = max(version, self.absent.get(name, 0))

    def make(self, job: Job, creation: Creation, known: Sequence[PodView]) -> Generator[Call, None, bool]:
        """One slot: the old pod goes, its successor comes. Returns False where that was refused."""
        if creation.replaces is not None:
            yield from self.delete(creation.replaces, True)
        labels = creation.manifest["metadata"]["labels"]
        for other in known:  # a pod that the plan could not know of may still have the name
            same = (other.role, str(other.index), other.owner) == (
                labels[LABEL_ROLE],
                labels[LABEL_INDEX],
                job.metadata.uid,
            )
            older = other.round < int(labels[LABEL_ROUND])
            now = self.pods.get(other.uid)
            if same and older and now and now.live and not now.terminal:
                raise Violation(f"a successor is made while the name still resolves to {other.name}")
        try:
            yield lambda: self.take(self.world.create_pod(creation.manifest))
        except Exists as there:
            if self.job is None:
                return False
            if there.pod.owner == self.job.metadata.uid:
                self.take(there.pod)
                return True
            self.refuse("Predecessor", creation, 0.25)
            return False
        except Refused:
            self.refuse("Forbidden", creation, 1.0)
            return False
        self.refusal = None
        return True

    def refuse(self, reason: str, creation: Creation, wait: float) -> None:
        """Remembers a refusal."""
        if self.job is None:
            return
        self.refusal = Refusal(
            reason=reason,  # type: ignore[arg-type]
            kind="Pod",
            name=creation.manifest["metadata"]["name"],
            word=reason,
            message="no",
            generation=self.job.metadata.generation,
            retry_at=self.world.now + wait,
        )

    def delete(self, pod: PodView, unlist: bool) -> Generator[Call, None, None]:
        """Takes the name off and deletes."""
        if pod.uid not in self.pods:
            return
        try:
            if unlist and pod.live and not pod.terminal:
                yield lambda: self.take(self.world.unlist(pod.name, pod.uid))
            yield lambda: self.world.delete_pod(pod.name, pod.uid)
        except (Gone, Clash):
            self.gone.add(pod.uid)
            self.pods.pop(pod.uid, None)
            return
        truth = self.world.pods.get(pod.name)
        if truth is None or truth.uid != pod.uid:
            self.gone.add(pod.uid)
            self.pods.pop(pod.uid, None)
        else:
            self.take(truth)


def nothing() -> None:
    """The call that is none."""
