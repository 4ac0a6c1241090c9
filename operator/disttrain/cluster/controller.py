"""Brings each job to where its spec wants it: asks the core for a plan, carries it out, writes down what holds.

One pass over a job is `_process`. A plan either commits (one guarded status write, then a new plan) or acts (objects,
pods, then at most one status write), so nothing is done on the strength of a decision that is not yet written down.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from ..api.plan import Event, Plan, Reconcile, Refusal, Seen, Settings
from ..api.pods import PodView
from ..api.types import Progress, Status
from .apply import Applier, NamespaceEnds, ObjectName, Stopped, Verdict
from .errors import ApiError, Conflict, NoAnswer, NotFound, ServerError
from .informer import PodCache
from .jobs import (
    AnyJob,
    BrokenJob,
    Key,
    broken_plan,
    decode_job,
    decode_list,
    job_path,
    jobs_path,
    status_patch,
    version,
)
from .transport import MERGE, Api
from .workqueue import Closed, WorkQueue

log = logging.getLogger(__name__)

TURNS = 16
"""Plans of one pass at most; a pass that needs more goes on later, with back-off."""
LAZY = 0.2
"""Seconds in which counters may change before they are looked at: a gang's start is a few passes, not one a pod."""
SOON = 0.1
"""Seconds between two passes over a job whose pods succeed one after the other."""
CHEAP = 0.002
"""Seconds of planning that a job may take as often as it likes."""
SHARE = 4.0
"""Rest of a job after a plan, in times of what it took beyond that: bounds what a large job takes of the processor."""
FIRST_RETRY = {"Invalid": 60.0, "Forbidden": 1.0, "NameTaken": 5.0, "Predecessor": 0.25}
LAST_RETRY = {"Invalid": 600.0, "Forbidden": 300.0, "NameTaken": 300.0, "Predecessor": 5.0}
"""Seconds until a refused object is tried again: doubles from the first to the last."""


class Follower(Protocol):
    """Reads the progress of jobs (see `progress`)."""

    def follow(self, key: Key, pod: PodView | None, deadline: float | None = None) -> None:
        """Reads this pod's log from now on, several times within `deadline` seconds; None: no log of the job."""


class Recorder(Protocol):
    """Takes events on jobs (see `events`). Never blocks."""

    def record(self, job: AnyJob, event: Event) -> None:
        """Takes an event."""


class Meter(Protocol):
    """Counts (see `metrics`)."""

    def status(self, job: AnyJob, old: Status, new: Status) -> None:
        """A status was written."""

    def passed(self, seconds: float) -> None:
        """A pass took so long."""


class Record:
    """What the loop knows of one job."""

    __slots__ = (
        "absent",
        "departed",
        "doomed",
        "finished",
        "job",
        "objects",
        "planned",
        "progress",
        "refusal",
        "refusals",
        "rest_until",
        "written",
    )

    def __init__(self, job: AnyJob) -> None:
        self.job = job
        self.refusal: Refusal | None = None
        self.refusals = 0
        self.progress: Progress | None = None
        self.written = 0.0
        """When our last status write was answered, in the loop's time."""
        self.rest_until = 0.0
        """Before this, in the loop's time, no pass is worth it."""
        self.planned = 0.0
        """When it was planned last, in the loop's time."""
        self.doomed = False
        """Its namespace is being terminated."""
        self.finished = False
        self.objects: set[ObjectName] = set()
        """Objects that are known to be there and the job's."""
        self.absent: dict[str, int] = {}
        self.departed: dict[str, PodView] = {}
        """As `Seen` has them, since the round began; departed by uid."""


class Controller:
    """The jobs, their queue and the workers. `now()` is seconds since 1970."""

    def __init__(
        self,
        api: Api,
        pods: PodCache,
        queue: WorkQueue[Key],
        reconcile: Reconcile,
        settings: Settings,
        *,
        recorder: Recorder,
        meter: Meter,
        follower: Follower | None = None,
        now: Callable[[], float],
        writes: int = 32,
        at_once: int = 16,
    ) -> None:
        self._api = api
        self._pods = pods
        self._queue = queue
        self._reconcile = reconcile
        self._settings = settings
        self._recorder = recorder
        self._meter = meter
        self.follower = follower
        self._now = now
        self._clock = asyncio.get_running_loop().time
        self._applier = Applier(api, pods, now, writes=writes, at_once=at_once)
        self.jobs: dict[Key, Record] = {}

    # ---------------------------------------------------------------------------------------- what is seen

    def observe(self, job: AnyJob) -> None:
        """Takes a job as a watch or list shows it. The newest resourceVersion wins; another uid is another job."""
        key = job.key
        record = self.jobs.get(key)
        if record is not None and record.job.metadata.uid == job.metadata.uid:
            if version(record.job) >= version(job):
                return
            new_spec = record.job.metadata.generation != job.metadata.generation
            dying = job.metadata.deletion_timestamp is not None
            self._take(record, job)
            self._queue.add_after(key, 0.0 if new_spec or dying else LAZY)
        elif record is None or version(record.job) < version(job):
            if record is not None:
                self._follow(key, None)  # what its predecessor's leader prints is no news of this one
            self.jobs[key] = Record(job)
            self._queue.add(key)

    def vanished(self, job: AnyJob) -> None:
        """Takes a job's end as a watch shows it."""
        record = self.jobs.get(job.key)
        if record is not None and (record.job.metadata.uid == job.metadata.uid or version(record.job) < version(job)):
            self._forget(job.key)

    def pod_changed(self, old: PodView | None, new: PodView) -> None:
        """Takes a change of a pod. What people wait for is seen to at once, counters are gathered."""
        key = (new.namespace, new.job)
        record = self._record_of(new)
        if record is None:
            return
        rest = record.rest_until - self._clock()
        if new.failed or (old is not None and (new.deletion is None) != (old.deletion is None)):
            self._queue.add_after(key, rest)
        elif new.succeeded:
            self._queue.add_after(key, max(rest, record.planned + SOON - self._clock()))
        else:
            self._queue.add_after(key, LAZY)

    def pod_vanished(self, last: PodView, version: int) -> None:
        """Takes a pod's end: `last` is how it was, gone as of a resourceVersion."""
        record = self._record_of(last)
        if record is None:
            return
        record.absent[last.name] = version
        if last.ended and last.round >= record.job.status.round:
            record.departed[last.uid] = last
        # Nobody waits for pods of earlier rounds.
        current = last.round >= record.job.status.round
        self._queue.add_after((last.namespace, last.job), record.rest_until - self._clock() if current else LAZY)

    def _record_of(self, pod: PodView) -> Record | None:
        record = self.jobs.get((pod.namespace, pod.job))
        return record if record is not None and record.job.metadata.uid == pod.job_uid else None

    def progressed(self, key: Key, progress: Progress) -> None:
        """Takes what a job's leader printed."""
        record = self.jobs.get(key)
        if record is not None and record.progress != progress:
            record.progress = progress
            self._queue.add_after(key, LAZY)

    async def resync(self, namespaces: Iterable[str] = (), *, spread: float = 600.0, grace: float = 5.0) -> bool:
        """Lists the jobs, drops those that are gone, and has each looked at again within `spread` seconds.

        Returns False where the list had news that the watch did not bring within `grace` seconds. Raises ApiError.
        """
        news: list[AnyJob] = []
        scopes: list[str | None] = [*namespaces]
        for namespace in scopes or [None]:
            listed: set[Key] = set()
            page, newest = "", 0
            while True:
                query = "?limit=500" + (f"&continue={page}" if page else "")
                answer = decode_list(await self._api.call("GET", jobs_path(namespace) + query))
                newest = newest or int(answer.metadata.resource_version)
                for item in answer.items:
                    job = decode_job(item)
                    listed.add(job.key)
                    if self._is_news(job):
                        news.append(job)
                page = answer.metadata.next
                if not page:
                    break
            for key, record in list(self.jobs.items()):
                if key not in listed and namespace in (None, key[0]) and version(record.job) <= newest:
                    log.info("job %s/%s is gone", *key)
                    self._forget(key)
        if news:
            await asyncio.sleep(grace)
            news = [job for job in news if self._is_news(job)]
            for job in news:
                self.observe(job)
        for key, record in self.jobs.items():
            if not record.finished:
                self._queue.add_after(key, random.uniform(0, spread))
        return not news

    def _is_news(self, job: AnyJob) -> bool:
        record = self.jobs.get(job.key)
        return record is None or version(record.job) < version(job)

    def _take(self, record: Record, job: AnyJob) -> None:
        if record.job.metadata.generation != job.metadata.generation:
            record.refusal, record.refusals = None, 0
        if record.job.status.round != job.status.round:
            record.absent.clear()
            record.departed.clear()
        record.job = job

    def _forget(self, key: Key) -> None:
        if self.jobs.pop(key, None) is not None:
            self._queue.drop(key)
            self._follow(key, None)

    def _follow(self, key: Key, pod: PodView | None, deadline: float | None = None) -> None:
        if self.follower is not None:
            self.follower.follow(key, pod, deadline)

    # ---------------------------------------------------------------------------------------- what is done

    async def work(self) -> None:
        """One worker: handles keys until the queue closes."""
        while True:
            try:
                key = await self._queue.get()
            except Closed:
                return
            began = self._clock()
            try:
                await self._process(key)
            except Stopped:
                return
            except NotFound as error:
                log.debug("job %s/%s: %s", *key, error)
                self._queue.retry(key)
            except ApiError as error:
                seconds = self._queue.retry(key)
                log.warning("job %s/%s: %s; again in %.1f s", *key, error, seconds)
            except Exception:
                seconds = self._queue.retry(key)
                log.exception("job %s/%s: error of the operator; again in %.1f s", *key, seconds)
            finally:
                self._queue.done(key)
                self._meter.passed(self._clock() - began)

    def stop(self) -> None:
        """Ends the workers after the calls that they are in."""
        self._applier.stopping = True
        self._queue.close()

    async def _process(self, key: Key) -> None:
        """One pass over a job: plans, commits and acts until there is nothing left to do now."""
        lost = False
        for _ in range(TURNS):
            record = self.jobs.get(key)
            if record is None or record.doomed or record.job.metadata.deletion_timestamp is not None:
                self._queue.succeed(key)
                self._follow(key, None)
                return
            if self._applier.stopping:
                raise Stopped
            plan = self._plan(record)
            try:
                if plan.stale:
                    await self._refresh(key, record)
                elif plan.commit is not None:
                    await self._write(key, record, plan.commit)
                    self._record(record, plan)
                elif plan.look:
                    await self._look(record, plan.look)
                elif plan.remove:
                    await self._remove(key, record.job)
                elif not await self._act(key, record, plan):
                    await self._settle(key, record, plan)
                    self._queue.succeed(key)
                    return
            except NotFound:
                await self._refresh(key, record)
                if key in self.jobs:
                    raise
            except (NoAnswer, ServerError, Conflict) as error:
                # Whether the call took effect is not known, or somebody was faster: look, and plan again.
                if lost and not isinstance(error, Conflict):
                    raise
                lost = lost or not isinstance(error, Conflict)
                log.debug("job %s/%s: %s; planning again", *key, error)
                await self._refresh(key, record)
        log.warning("job %s/%s did not settle in %d plans; going on later", *key, TURNS)
        self._queue.retry(key)

    def _plan(self, record: Record) -> Plan:
        job = record.job
        if isinstance(job, BrokenJob):
            return broken_plan(job, self._now())
        began = self._clock()
        seen = Seen(
            pods=self._pods.of(job.metadata.uid),
            absent=dict(record.absent),
            departed=tuple(record.departed.values()),
            refusal=record.refusal,
            progress=record.progress,
        )
        plan = self._reconcile(job, seen, self._now(), self._settings)
        ended = self._clock()
        record.planned = ended
        record.rest_until = ended + SHARE * max(ended - began - CHEAP, 0.0)
        record.finished = plan.finished
        if plan.finished:
            record.absent.clear()
            record.departed.clear()
        return plan

    async def _remove(self, key: Key, job: AnyJob) -> None:
        """Deletes the job, whose time to live is over; the garbage collector takes what it owns. Raises ApiError."""
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": job.metadata.uid},
        }
        await self._api.call("DELETE", job_path(key), msgspec.json.encode(options))
        log.info("job %s/%s: deleted, ttlSecondsAfterFinished is over", *key)
        self._forget(key)

    async def _look(self, record: Record, names: Sequence[str]) -> None:
        """Looks for pods that should be there and are not in the cache. Raises ApiError."""
        job = record.job
        for name in await self._applier.look(job, names):
            record.absent[name] = version(job)

    async def _act(self, key: Key, record: Record, plan: Plan) -> bool:
        """Carries out the plan. Returns whether there was anything to do."""
        job = record.job
        if isinstance(job, BrokenJob) or not (plan.objects or plan.create or plan.delete):
            return False
        try:
            made = await self._applier.act(job, plan, record.objects)
        except NamespaceEnds:
            record.doomed = True
            log.info("job %s/%s: its namespace is being terminated", *key)
            return True
        except Verdict as verdict:
            self._refuse(record, verdict, job.metadata.generation)
            log.info("job %s/%s: %s: %s", *key, verdict.word, verdict.message)
            return True
        if made:
            record.refusal, record.refusals = None, 0
        replaced = sum(1 for one in plan.create if one.replaces is not None)
        done = {"made": len(plan.create), "replaced": replaced, "deleted": len(plan.delete)}
        words = ", ".join(f"{number} pods {word}" for word, number in done.items() if number)
        log.info("job %s/%s: %s", *key, words or "objects made")
        return True

    def _refuse(self, record: Record, verdict: Verdict, generation: int) -> None:
        first, last = FIRST_RETRY[verdict.reason], LAST_RETRY[verdict.reason]
        if record.refusal is None or record.refusal.reason != verdict.reason:
            record.refusals = 0
        seconds = min(first * 2 ** min(record.refusals, 20), last) * random.uniform(0.9, 1.1)
        record.refusals += 1
        record.refusal = Refusal(
            reason=verdict.reason,
            kind=verdict.kind,
            name=verdict.name,
            word=verdict.word,
            message=verdict.message,
            generation=generation,
            retry_at=self._now() + seconds,
        )

    async def _settle(self, key: Key, record: Record, plan: Plan) -> None:
        """Writes down what holds, unless it can wait. Raises ApiError."""
        deadline = None if isinstance(record.job, BrokenJob) else record.job.spec.progress_deadline_seconds
        self._follow(key, plan.read_progress, deadline)
        if plan.wake is not None:
            self._queue.add_after(key, max(plan.wake - self._now(), 0.05))
        if plan.status is not None:
            wait = record.written + plan.write_after - self._clock() if record.written else 0.0
            if wait > 0:
                self._queue.add_after(key, wait)
                return
            await self._write(key, record, plan.status)
        self._record(record, plan)

    def _record(self, record: Record, plan: Plan) -> None:
        for event in plan.events:
            self._recorder.record(record.job, event)

    async def _write(self, key: Key, record: Record, status: Status) -> None:
        """Makes the job's status this one, if nobody changed the job meanwhile. Raises ApiError."""
        job = record.job
        body = status_patch(job, status)
        if body is None:
            return
        answer = await self._api.call("PATCH", f"{job_path(key)}/status?fieldManager=disttrain", body, MERGE)
        record.written = self._clock()
        self._meter.status(job, job.status, status)
        if status.state != job.status.state:
            log.info("job %s/%s: %s: %s", *key, status.state, status.message)
        self._answered(key, record, decode_job(answer))

    async def _refresh(self, key: Key, record: Record) -> None:
        """Takes the job as it is now; forgets it where it is gone. Raises ApiError."""
        try:
            job = decode_job(await self._api.call("GET", job_path(key)))
        except NotFound:
            if self.jobs.get(key) is record:
                log.info("job %s/%s is gone", *key)
                self._forget(key)
            return
        self._answered(key, record, job)

    def _answered(self, key: Key, record: Record, job: AnyJob) -> None:
        if self.jobs.get(key) is not record:
            return  # it was deleted, or made anew, while the call was under way
        if record.job.metadata.uid != job.metadata.uid:
            self.observe(job)
        elif version(record.job) < version(job):
            self._take(record, job)
