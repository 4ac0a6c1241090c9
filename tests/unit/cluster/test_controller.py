"""What the controller calls, in which order, for plans of a core that says what the test needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from cluster.fakes import JOB, PODS, SERVICES, UID, FakeApi, Meter, Recorder, job, pod, until
from msgspec import structs

from disttrain.api.constants import KIND
from disttrain.api.plan import Creation, Deletion, Event, Manifest, Plan, Seen, Settings
from disttrain.api.pods import PodView, WirePod, view
from disttrain.api.types import Job, Progress, Status
from disttrain.cluster.controller import TURNS, Controller
from disttrain.cluster.errors import Forbidden, Invalid, NoAnswer, ServerError, TooManyRequests
from disttrain.cluster.informer import PodCache
from disttrain.cluster.jobs import Key, convert_job, merge_diff, status_patch
from disttrain.cluster.workqueue import WorkQueue

NOW = 1_800_000_000.0
KEY = ("team", "digits")
SERVICE: Manifest = {
    "kind": "Service",
    "metadata": {
        "name": "digits",
        "ownerReferences": [{"kind": KIND, "name": "digits", "uid": UID, "controller": True}],
    },
}
Core = Callable[[Job, Seen], Plan]


def manifest(index: int, round_: int = 1) -> Manifest:
    made = pod(
        f"digits-worker-{index}" + ("" if round_ == 1 else f"-r{round_}"), labels={"disttrain.dev/round": str(round_)}
    )
    del made["metadata"]["uid"], made["metadata"]["resourceVersion"], made["status"]
    return made


def seen_pod(**fields: Any) -> PodView:
    return view(msgspec.convert(pod(**fields), WirePod))


class Loop:
    """A controller with its fakes. `core` may be set to another one at any time."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.api = FakeApi()
        self.recorder = Recorder()
        self.meter = Meter()
        self.seen: list[Seen] = []
        self.queue: WorkQueue[Key] = WorkQueue(jitter=lambda: 0.01)
        self.cache = PodCache(
            lambda old, new: self.controller.pod_changed(old, new),
            lambda last, version: self.controller.pod_vanished(last, version),
        )
        self.controller = Controller(
            self.api,
            self.cache,
            self.queue,
            self._reconcile,
            Settings(),
            recorder=self.recorder,
            meter=self.meter,
            now=lambda: NOW,
        )
        self.stored = self.api.add(JOB, job())

    def _reconcile(self, job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
        assert now == NOW
        assert settings == Settings()
        self.seen.append(seen)
        return self.core(job, seen)

    def add(self, made: Manifest) -> PodView:
        """A pod that the cache and the API server know."""
        stored = self.api.add(f"{PODS}/{made['metadata']['name']}", made)
        found = view(msgspec.convert(stored, WirePod))
        self.cache.put(found)
        return found

    async def run(self) -> list[str]:
        """Has the job looked at until it is settled; returns the calls."""
        self.controller.observe(convert_job(self.stored))
        self.queue.add(KEY)
        await self.settled()
        return self.api.calls

    async def settled(self) -> None:
        await until(lambda: not len(self.queue) and not self.queue._busy)


@asynccontextmanager
async def loop_of(core: Core) -> AsyncIterator[Loop]:
    loop = Loop(core)
    worker = asyncio.create_task(loop.controller.work())
    try:
        yield loop
    finally:
        loop.controller.stop()
        await worker


def begun(job: Job, round_: int = 1) -> Plan:
    return Plan(
        commit=structs.replace(job.status, round=round_, state="Starting"),
        events=[Event(reason="Starting", message="The job starts.")],
    )


def gang(job: Job, seen: Seen) -> Plan:
    """Commits round 1, then makes a Service and three pods, then says so."""
    if not job.status.round:
        return begun(job)
    lacking = [i for i in range(3) if i not in {pod.index for pod in seen.pods}]
    if lacking and not (seen.refusal and seen.refusal.retry_at > NOW):
        return Plan(objects=[SERVICE], create=[Creation(manifest=manifest(i)) for i in lacking])
    status = structs.replace(job.status, ready=f"0/{len(seen.pods)}", message=seen.refusal.word if seen.refusal else "")
    return Plan(status=status if status != job.status else None, finished=not lacking)


async def test_commits_before_it_acts_and_tries_the_first_pod_alone() -> None:
    async with loop_of(gang) as loop:
        assert await loop.run() == [
            "PATCH job/status",
            "POST services/digits strict",
            "POST pods/digits-worker-0 strict",
            "POST pods/digits-worker-1",
            "POST pods/digits-worker-2",
            "PATCH job/status",
        ]
        assert loop.stored["status"] == {"round": 1, "state": "Starting", "ready": "0/3"}
        assert loop.recorder.reasons == ["Starting"]
        assert loop.meter.states == ["Starting", "Starting"]


async def test_the_others_are_made_side_by_side_after_the_first() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with loop_of(gang) as loop:
        loop.api.pause = lambda call: gate if call == "POST pods/digits-worker-0" else None
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: loop.api.calls[-1:] == ["POST pods/digits-worker-0 strict"])
        gate.set_result(None)
        second: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        loop.api.pause = lambda call: second if call == "POST pods/digits-worker-1" else None
        await until(lambda: "POST pods/digits-worker-2" in loop.api.calls)
        second.set_result(None)
        await loop.settled()
        assert len(loop.cache.of(UID)) == 3


async def test_a_refused_first_pod_is_the_only_one() -> None:
    def refuse(call: str) -> None:
        if call.startswith("POST pods/"):
            raise Invalid(422, "Invalid", 'Pod "digits-worker-0" is invalid: spec.containers[0].image: Required value')

    async with loop_of(gang) as loop:
        loop.api.before = refuse
        calls = await loop.run()
        assert [call for call in calls if "pods/" in call] == ["POST pods/digits-worker-0 strict"]
        refusal = loop.seen[-1].refusal
        assert refusal is not None
        assert (refusal.reason, refusal.kind, refusal.name) == ("Invalid", "Pod", "digits-worker-0")
        assert "Required value" in refusal.message
        assert loop.stored["status"]["message"] == "InvalidTemplate"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (
            'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2',
            "QuotaExceeded",
        ),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', "PodSecurity"),
        ('pods "x" is forbidden: error looking up service account team/bob: not found', "ServiceAccountMissing"),
        ('pods "x" is forbidden: no PriorityClass with name high was found', "PriorityClassMissing"),
        ('pods "x" is forbidden: pod rejected: RuntimeClass "gvisor" not found', "RuntimeClassMissing"),
        ('pods "x" is forbidden: maximum cpu usage per Pod is 1, but limit is 2', "LimitRange"),
        ('admission webhook "policy" denied the request: no', "AdmissionDenied"),
        ('pods "x" is forbidden: failed quota: small: must specify limits.cpu', "QuotaExceeded"),
        ("pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request", "AdmissionDenied"),
        ('pods "x" is forbidden: User "op" cannot create resource "pods"', "Forbidden"),
    ],
)
async def test_what_others_can_repair_is_said_and_tried_again(words: str, word: str) -> None:
    left = [1]

    def refuse(call: str) -> None:
        if call.startswith("POST pods/digits-worker-1") and left:
            left.pop()
            raise Forbidden(403, "Forbidden", words)

    async with loop_of(gang) as loop:
        loop.api.before = refuse
        await loop.run()
        refusal = loop.seen[-1].refusal
        assert refusal is not None
        assert (refusal.reason, refusal.word) == ("Forbidden", word)
        assert 0.5 < refusal.retry_at - NOW < 2
        assert loop.stored["status"]["message"] == word
        loop.controller.jobs[KEY].refusal = structs.replace(refusal, retry_at=NOW)
        await loop.run()
        assert loop.seen[-1].refusal is None
        assert len(loop.cache.of(UID)) == 3


@pytest.mark.parametrize("who", ['admission webhook "policy" denied', "ValidatingAdmissionPolicy 'p' denied request"])
async def test_admission_may_change_its_mind_whatever_code_it_answers_with(who: str) -> None:
    def refuse(call: str) -> None:
        if call.startswith("POST pods/"):
            raise Invalid(422, "Invalid", f'pods "x" is forbidden: {who}: no')

    async with loop_of(gang) as loop:
        loop.api.before = refuse
        await loop.run()
        refusal = loop.seen[-1].refusal
        assert refusal is not None
        assert (refusal.reason, refusal.word) == ("Forbidden", "AdmissionDenied")


async def test_refusals_come_at_growing_intervals() -> None:
    def refuse(call: str) -> None:
        if call.startswith("POST pods/"):
            raise Forbidden(403, "Forbidden", "exceeded quota")

    async with loop_of(gang) as loop:
        loop.api.before = refuse
        waits = []
        for _ in range(4):
            await loop.run()
            refusal = loop.seen[-1].refusal
            assert refusal is not None
            waits.append(refusal.retry_at - NOW)
            loop.controller.jobs[KEY].refusal = structs.replace(refusal, retry_at=NOW)
        assert waits == sorted(waits)
        assert waits[-1] > 6


async def test_a_namespace_that_ends_is_final() -> None:
    def refuse(call: str) -> None:
        if call.startswith("POST"):
            raise Forbidden(
                403, "Forbidden", "unable to create new content in namespace team because it is being terminated"
            )

    async with loop_of(gang) as loop:
        loop.api.before = refuse
        calls = list(await loop.run())
        assert calls == ["PATCH job/status", "POST services/digits strict"]
        assert await loop.run() == calls
        assert loop.recorder.reasons == ["Starting"]


async def test_the_name_goes_before_the_pod_and_the_pod_before_its_successor() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        old = [pod for pod in seen.pods if pod.round == 1 and pod.deletion is None]
        return Plan(create=[Creation(manifest=manifest(pod.index, 2), replaces=pod) for pod in old])

    async with loop_of(core) as loop:
        loop.add(pod("digits-worker-0", uid="p0"))
        calls = await loop.run()
        assert calls == [
            "PATCH pods/digits-worker-0",
            "DELETE pods/digits-worker-0",
            "POST pods/digits-worker-0-r2 strict",
        ]
        assert "disttrain.dev/live" not in loop.api.objects[f"{PODS}/digits-worker-0"]["metadata"]["labels"]


async def test_a_pod_that_has_ended_goes_after_its_successor_is_made() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        old = [pod for pod in seen.pods if pod.round == 1 and pod.deletion is None]
        return Plan(create=[Creation(manifest=manifest(pod.index, 2), replaces=pod) for pod in old])

    async with loop_of(core) as loop:
        loop.add(pod("digits-worker-0", uid="p0", phase="Failed"))
        assert await loop.run() == ["POST pods/digits-worker-0-r2 strict", "DELETE pods/digits-worker-0"]


async def test_deletion_without_successor() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        doomed = [pod for pod in seen.pods if pod.deletion is None]
        return Plan(delete=[Deletion(pod=pod, unlist=pod.index == 0) for pod in doomed], finished=not doomed)

    async with loop_of(core) as loop:
        loop.add(pod("digits-worker-0", uid="p0"))
        loop.add(pod("digits-worker-1", uid="p1"))
        calls = await loop.run()
        assert sorted(calls) == [
            "DELETE pods/digits-worker-0",
            "DELETE pods/digits-worker-1",
            "PATCH pods/digits-worker-0",
        ]
        assert all(one.deletion for one in loop.cache.of(UID))


async def test_another_pod_of_the_name_is_left_alone() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        return Plan(delete=[Deletion(pod=pod, unlist=True) for pod in seen.pods if pod.deletion is None])

    async with loop_of(core) as loop:
        loop.add(pod("digits-worker-0", uid="p0"))
        loop.api.add(f"{PODS}/digits-worker-0", pod("digits-worker-0", uid="stranger"))
        assert await loop.run() == ["PATCH pods/digits-worker-0", "GET pods/digits-worker-0"]
        kept = loop.api.objects[f"{PODS}/digits-worker-0"]["metadata"]
        assert kept["labels"]["disttrain.dev/live"] == "true"
        assert "deletionTimestamp" not in kept


async def test_conflict_means_get_and_plan_again() -> None:
    def conflict(call: str) -> None:
        if call == "PATCH job/status" and len(loop.api.calls) == 1:
            loop.stored["spec"]["worker"]["replicas"] = 9
            loop.stored["metadata"]["generation"] = 2
            loop.api.touch(loop.stored)

    sizes: list[int] = []

    def core(job: Job, seen: Seen) -> Plan:
        sizes.append(job.spec.worker.replicas)
        return begun(job) if not job.status.round else Plan()

    async with loop_of(core) as loop:
        loop.api.before = conflict
        assert await loop.run() == ["PATCH job/status", "GET job", "PATCH job/status"]
        assert sizes == [3, 9, 9]
        assert loop.recorder.reasons == ["Starting"]


@pytest.mark.parametrize("error", [NoAnswer("connection lost"), ServerError(500, "InternalError", "no")])
async def test_a_lost_answer_of_a_commit_means_get_and_plan_again(error: Exception) -> None:
    def lose(call: str) -> None:
        if call == "PATCH job/status" and len(loop.api.calls) == 1:
            raise error

    async with loop_of(lambda job, seen: begun(job) if not job.status.round else Plan()) as loop:
        loop.api.after = lose
        assert await loop.run() == ["PATCH job/status", "GET job"]
        assert loop.stored["status"]["round"] == 1


async def test_a_lost_answer_of_a_creation_makes_no_second_pod() -> None:
    def lose(call: str) -> None:
        if call == "POST pods/digits-worker-1" and loop.api.calls.count(call) == 1:
            raise NoAnswer("connection lost")

    async with loop_of(gang) as loop:
        loop.api.after = lose
        calls = await loop.run()
        assert calls.count("GET job") == 1
        assert calls.count("GET pods/digits-worker-1") == 1
        assert len(loop.cache.of(UID)) == 3
        assert len([path for path in loop.api.objects if path.startswith(PODS)]) == 3


async def test_errors_that_last_are_tried_with_back_off() -> None:
    def fail(call: str) -> None:
        if call.startswith("PATCH") and len(loop.api.calls) < 9:
            raise ServerError(500, "InternalError", "etcd is down")

    async with loop_of(lambda job, seen: begun(job) if not job.status.round else Plan(finished=True)) as loop:
        loop.api.before = fail
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: loop.stored.get("status"))
        assert loop.api.calls[:3] == ["PATCH job/status", "GET job", "PATCH job/status"]


async def test_too_many_requests_is_tried_later() -> None:
    def fail(call: str) -> None:
        if len(loop.api.calls) == 1:
            raise TooManyRequests(429, "TooManyRequests", "later")

    async with loop_of(lambda job, seen: begun(job) if not job.status.round else Plan(finished=True)) as loop:
        loop.api.before = fail
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: loop.stored.get("status"))
        assert loop.api.calls == ["PATCH job/status", "PATCH job/status"]


async def test_a_job_that_is_gone_is_forgotten() -> None:
    async with loop_of(gang) as loop:
        del loop.api.objects[JOB]
        assert await loop.run() == ["PATCH job/status", "GET job"]
        assert KEY not in loop.controller.jobs


async def test_a_job_whose_time_is_over_is_deleted_by_its_uid() -> None:
    async with loop_of(lambda job, seen: Plan(remove=True)) as loop:
        calls = await loop.run()
        assert calls == ["DELETE job"]
        assert KEY not in loop.controller.jobs


async def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    async with loop_of(gang) as loop:
        loop.stored["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
        assert await loop.run() == []


async def test_a_stale_job_is_read_again() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        return Plan(stale=True) if not job.status.round else Plan(finished=True)

    async with loop_of(core) as loop:
        old = convert_job(loop.stored)
        loop.stored["status"] = {"round": 4}
        loop.api.touch(loop.stored)
        loop.controller.observe(old)
        await loop.settled()
        assert loop.api.calls == ["GET job"]
        assert loop.controller.jobs[KEY].job.status.round == 4


async def test_a_core_that_never_settles_is_bounded() -> None:
    async with loop_of(lambda job, seen: Plan(stale=True)) as loop:
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: len(loop.api.calls) >= TURNS)
        loop.core = lambda job, seen: Plan(finished=True)
        await until(lambda: loop.controller.jobs[KEY].finished)


async def test_an_error_of_the_core_ends_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    def core(job: Job, seen: Seen) -> Plan:
        raise RuntimeError("a bug")

    async with loop_of(core) as loop:
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: "a bug" in caplog.text)
        loop.core = lambda job, seen: Plan(finished=True)
        await until(lambda: loop.controller.jobs[KEY].finished)


STRANGER = {"metadata": {"ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "x", "controller": True}]}}
NOBODY: dict[str, Any] = {"metadata": {}}
PREDECESSOR = {"metadata": {"ownerReferences": [{"kind": KIND, "name": "digits", "uid": "old", "controller": True}]}}


@pytest.mark.parametrize(
    ("there", "reason", "words"),
    [
        (STRANGER, "NameTaken", "belongs to Deployment web"),
        (NOBODY, "NameTaken", "belongs to nobody"),
        (PREDECESSOR, "Predecessor", "deleted job of the same name"),
    ],
)
async def test_what_is_not_ours_is_never_taken(there: Manifest, reason: str, words: str) -> None:
    async with loop_of(gang) as loop:
        loop.api.add(f"{SERVICES}/digits", there)
        await loop.run()
        refusal = loop.seen[-1].refusal
        assert refusal is not None
        assert (refusal.reason, refusal.kind, refusal.name) == (reason, "Service", "digits")
        assert words in refusal.message
        assert not [path for path in loop.api.objects if path.startswith(PODS)]
        retry = refusal.retry_at - NOW
        assert retry < 0.5 if reason == "Predecessor" else retry > 4


async def test_what_is_ours_already_is_taken_into_the_cache() -> None:
    async with loop_of(gang) as loop:
        loop.api.add(f"{SERVICES}/digits", SERVICE)
        loop.api.add(f"{PODS}/digits-worker-0", pod("digits-worker-0", uid="p0"))
        calls = await loop.run()
        assert "GET services/digits" in calls
        assert "GET pods/digits-worker-0" in calls
        assert {one.name for one in loop.cache.of(UID)} == {f"digits-worker-{i}" for i in range(3)}
        assert loop.seen[-1].refusal is None


async def test_a_pod_that_lost_its_label_is_no_success() -> None:
    async with loop_of(gang) as loop:
        loop.api.add(f"{PODS}/digits-worker-0", pod("digits-worker-0", job_uid=""))
        await loop.run()
        refusal = loop.seen[-1].refusal
        assert refusal is not None
        assert refusal.word == "LabelsLost"


async def test_known_objects_are_looked_after_beside_the_first_pod() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with loop_of(gang) as loop:
        await loop.run()
        loop.cache.remove(loop.cache.of(UID)[0], 1000)
        loop.api.objects = {path: one for path, one in loop.api.objects.items() if not path.startswith(PODS)}
        loop.api.calls.clear()
        loop.api.pause = lambda call: gate if call == "POST services/digits" else None
        await until(lambda: any("POST pods/" in call for call in loop.api.calls))
        gate.set_result(None)
        await loop.settled()


async def test_counters_wait_until_a_write_is_worth_it() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        status = structs.replace(job.status, ready=f"{len(seen.pods)}/3")
        return Plan(status=status if status != job.status else None, write_after=0.3)

    async with loop_of(core) as loop:
        await loop.run()
        assert loop.api.calls == ["PATCH job/status"]
        before = asyncio.get_running_loop().time()
        loop.cache.answered(seen_pod())
        await loop.run()
        assert loop.api.calls == ["PATCH job/status"]
        await until(lambda: loop.stored["status"] == {"ready": "1/3"})
        assert asyncio.get_running_loop().time() - before > 0.2
        assert len(loop.api.calls) == 2


async def test_a_wake_is_kept() -> None:
    plans: list[Plan] = [Plan(wake=NOW + 0.1), Plan(finished=True)]
    async with loop_of(lambda job, seen: plans.pop(0) if plans else Plan(finished=True)) as loop:
        loop.controller.observe(convert_job(loop.stored))
        await until(lambda: not plans)


async def test_look_asks_for_what_the_cache_lacks() -> None:
    def core(job: Job, seen: Seen) -> Plan:
        known = {pod.name for pod in seen.pods} | set(seen.absent)
        names = [f"digits-worker-{i}" for i in range(3) if f"digits-worker-{i}" not in known]
        return Plan(look=names) if names else Plan(finished=True)

    async with loop_of(core) as loop:
        loop.api.add(f"{PODS}/digits-worker-0", pod("digits-worker-0", uid="p0"))
        loop.api.add(f"{PODS}/digits-worker-1", pod("digits-worker-1", uid="p1", job_uid="another"))
        calls = await loop.run()
        assert sorted(calls) == [f"GET pods/digits-worker-{i}" for i in range(3)]
        as_of = int(loop.stored["metadata"]["resourceVersion"])
        assert [one.name for one in loop.seen[-1].pods] == ["digits-worker-0"]
        assert loop.seen[-1].absent == {"digits-worker-1": as_of, "digits-worker-2": as_of}


async def test_how_a_pod_ended_outlives_it_until_the_next_round() -> None:
    async with loop_of(lambda job, seen: Plan()) as loop:
        await loop.run()
        ended = loop.add(pod("digits-worker-0", uid="p0", phase="Failed"))
        running = loop.add(pod("digits-worker-1", uid="p1"))
        loop.cache.remove(ended, 500)
        loop.cache.remove(running, 501)
        await until(lambda: loop.seen[-1].absent == {"digits-worker-0": 500, "digits-worker-1": 501})
        assert [one.uid for one in loop.seen[-1].departed] == ["p0"]
        loop.stored["status"] = {"round": 2}
        loop.api.touch(loop.stored)
        await loop.run()
        await until(lambda: not loop.seen[-1].absent)
        assert loop.seen[-1].departed == ()


async def test_a_job_that_cannot_be_read_is_said_so() -> None:
    async with loop_of(gang) as loop:
        loop.stored["spec"]["worker"] = {"replicas": "three"}
        assert await loop.run() == ["PATCH job/status"]
        condition = loop.stored["status"]["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Accepted", "False", "InvalidSpec")
        assert "$.spec.worker.replicas" in condition["message"]
        assert loop.recorder.reasons == ["InvalidSpec"]
        await loop.run()
        assert len(loop.api.calls) == 1


@pytest.mark.parametrize("changes", [{"managedBy": "other/controller"}, {"status": {"state": "Succeeded"}}])
async def test_a_job_that_cannot_be_read_and_is_not_ours_to_judge_is_left_alone(changes: dict[str, Any]) -> None:
    async with loop_of(gang) as loop:
        status = changes.pop("status", None)
        loop.stored["spec"] |= {"framework": "jax", **changes}
        if status:
            loop.stored["status"] = status
        assert await loop.run() == []


def test_status_patch_has_only_what_changed() -> None:
    assert merge_diff({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]}, {"b": {"c": 1, "d": 3}, "e": [1, 2]}) == {
        "a": None,
        "b": {"d": 3},
        "e": [1, 2],
    }
    given = convert_job(job() | {"status": {"round": 1, "message": "a"}})
    assert status_patch(given, Status(round=1, message="a")) is None
    body = status_patch(given, Status(round=2))
    assert body is not None
    assert json.loads(body) == {
        "metadata": {"resourceVersion": "7", "uid": UID},
        "status": {"round": 2, "message": None},
    }


# ------------------------------------------------------------------------------------------------ what is seen


async def seen_jobs(*bodies: dict[str, Any]) -> Loop:
    loop = Loop(lambda job, seen: Plan())
    for body in bodies:
        loop.controller.observe(convert_job(body))
    return loop


def versioned(version: int, uid: str = UID, generation: int = 1) -> dict[str, Any]:
    made = job(uid=uid)
    made["metadata"] |= {"resourceVersion": str(version), "generation": generation}
    return made


async def test_the_newest_version_wins() -> None:
    loop = await seen_jobs(versioned(9), versioned(8))
    assert loop.controller.jobs[KEY].job.metadata.resource_version == "9"
    loop = await seen_jobs(versioned(9), versioned(10))
    assert loop.controller.jobs[KEY].job.metadata.resource_version == "10"


async def test_another_uid_is_another_job() -> None:
    loop = await seen_jobs(versioned(9))
    loop.controller.jobs[KEY].refusals = 5
    loop.controller.observe(convert_job(versioned(8, uid="older")))
    assert loop.controller.jobs[KEY].refusals == 5
    loop.controller.observe(convert_job(versioned(12, uid="newer")))
    assert loop.controller.jobs[KEY].refusals == 0
    loop.controller.vanished(convert_job(versioned(11)))
    assert KEY in loop.controller.jobs
    loop.controller.vanished(convert_job(versioned(13, uid="newer")))
    assert KEY not in loop.controller.jobs


async def test_our_own_writes_come_back_without_a_pass() -> None:
    loop = await seen_jobs(versioned(9))
    assert await loop.queue.get() == KEY
    loop.queue.done(KEY)
    loop.controller.observe(convert_job(versioned(9)))
    assert not len(loop.queue)
    assert not loop.queue._due
    loop.controller.observe(convert_job(versioned(10)))
    assert loop.queue._due
    loop.controller.observe(convert_job(versioned(11, generation=2)))
    assert len(loop.queue) == 1


@pytest.mark.parametrize(
    ("change", "urgent"),
    [
        ({"phase": "Failed"}, True),
        ({"phase": "Succeeded"}, True),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, False),
        ({"containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "ErrImagePull"}}}]}, False),
    ],
)
async def test_what_people_wait_for_is_seen_to_at_once(change: dict[str, Any], urgent: bool) -> None:
    loop = await seen_jobs(versioned(9))
    loop.cache.answered(seen_pod(version=10))
    loop.queue.done(await loop.queue.get())
    loop.cache.put(seen_pod(version=11, **change))
    assert (len(loop.queue) == 1) is urgent
    assert bool(loop.queue._due) is not urgent


async def test_a_pod_of_another_job_of_the_name_wakes_nobody() -> None:
    loop = await seen_jobs(versioned(9))
    loop.queue.done(await loop.queue.get())
    loop.cache.put(seen_pod(job_uid="old", owner="old", phase="Failed"))
    assert not len(loop.queue)
    assert not loop.queue._due


async def test_progress_is_handed_to_the_core() -> None:
    async with loop_of(lambda job, seen: Plan()) as loop:
        await loop.run()
        loop.controller.progressed(KEY, Progress(step=7))
        await until(lambda: loop.seen[-1].progress == Progress(step=7))


class Follower:
    def __init__(self) -> None:
        self.followed: list[str | None] = []
        self.deadlines: list[float | None] = []

    def follow(self, key: Key, pod: PodView | None, deadline: float | None = None) -> None:
        self.followed.append(pod.name if pod else None)
        self.deadlines.append(deadline)


async def test_the_leader_is_followed_while_the_plan_says_so() -> None:
    follower = Follower()

    def core(job: Job, seen: Seen) -> Plan:
        return Plan(read_progress=seen.pods[0] if seen.pods else None)

    async with loop_of(core) as loop:
        loop.controller.follower = follower
        loop.stored["spec"]["progressDeadlineSeconds"] = 600
        loop.add(pod())
        await loop.run()
        loop.cache.remove(loop.cache.of(UID)[0], 1000)
        await until(lambda: follower.followed[-1] is None)
        assert follower.followed[0] == "digits-worker-0"
        assert follower.deadlines[0] == 600


async def test_a_job_made_anew_is_not_told_what_its_predecessor_printed() -> None:
    follower = Follower()
    loop = Loop(lambda job, seen: Plan())
    loop.controller.follower = follower
    loop.controller.observe(convert_job(loop.stored))
    loop.controller.observe(convert_job(loop.api.add(JOB, job(uid="another"))))
    assert follower.followed == [None]


async def test_resync_drops_what_is_gone_and_brings_what_was_missed() -> None:
    loop = await seen_jobs(versioned(9))
    other = job("other", uid="u2")
    other["metadata"]["resourceVersion"] = "8"
    loop.controller.observe(convert_job(other))
    del loop.api.objects[JOB]
    loop.api.add(JOB.replace("digits", "new"), job("new", uid="u3"))
    assert not await loop.controller.resync(grace=0.01)
    assert set(loop.controller.jobs) == {("team", "new")}
    assert await loop.controller.resync(grace=0.01)


async def test_stop_lets_calls_end_and_begins_none() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    loop = Loop(gang)
    worker = asyncio.create_task(loop.controller.work())
    loop.api.pause = lambda call: gate if call == "POST pods/digits-worker-0" else None
    loop.controller.observe(convert_job(loop.stored))
    await until(lambda: loop.api.calls[-1:] == ["POST pods/digits-worker-0 strict"])
    loop.controller.stop()
    gate.set_result(None)
    await worker
    assert loop.api.calls[-1] == "POST pods/digits-worker-0 strict"
    assert [one.name for one in loop.cache.of(UID)] == ["digits-worker-0"]


async def test_jobs_do_not_wait_for_each_other() -> None:
    """A job whose calls hang holds up its own worker only."""
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with loop_of(gang) as loop:
        second = asyncio.create_task(loop.controller.work())
        other = loop.api.add(JOB.replace("digits", "other"), job("other", uid="u2"))
        loop.api.pause = lambda call: gate if call == "PATCH job/status" else None
        loop.controller.observe(convert_job(loop.stored))
        loop.controller.observe(convert_job(other))
        await until(lambda: any("other" in call for call in loop.api.calls))
        gate.set_result(None)
        await loop.settled()
        loop.controller.stop()
        await second
