"""Suspend and resume."""

from __future__ import annotations

from jobs import NOW, done, job, plan, pod, settle, started
from msgspec import structs

from disttrain.api.times import stamp
from disttrain.api.types import Job
from disttrain.lifecycle import conditions


def suspended(given: Job, value: bool = True) -> Job:
    return structs.replace(given, spec=structs.replace(given.spec, suspend=value))


def test_written_first_then_the_pods_go() -> None:
    pods = [pod(index=i) for i in range(3)]
    given = suspended(started())
    first = plan(given, *pods, now=NOW + 100)
    assert first.commit is not None
    assert not first.delete
    assert first.commit.state == "Suspended"
    assert conditions.is_true(first.commit, "Suspended")
    assert not conditions.is_true(first.commit, "Running")
    assert first.commit.worker is not None
    assert first.commit.worker.replicas == 0
    assert (first.commit.active_seconds, first.commit.active_since) == (100, None)
    given = structs.replace(given, status=first.commit)
    then = plan(given, *pods)
    assert [gone.pod.name for gone in then.delete] == ["digits-worker-0", "digits-worker-1", "digits-worker-2"]
    assert not then.create
    assert plan(given).commit is None


def test_resume_begins_a_round_and_charges_nothing() -> None:
    given, _ = settle(suspended(started()), now=NOW + 100)
    given, found = settle(suspended(given, False), now=NOW + 500)
    assert (given.status.state, given.status.round, given.status.round_cause) == ("Starting", 2, "Resume")
    assert given.status.restarts == 0
    assert given.status.active_since == stamp(NOW + 500)
    assert not conditions.is_true(given.status, "Suspended")
    assert found.create[0].manifest["metadata"]["name"] == "digits-worker-0-r2"


def test_a_job_made_suspended_has_no_round_until_it_is_resumed() -> None:
    given, found = settle(suspended(job()))
    assert (given.status.state, given.status.round) == ("Suspended", 0)
    assert not found.create
    given, found = settle(suspended(given, False))
    assert (given.status.round, given.status.round_cause) == (1, "Start")
    assert len(found.create) == 3


def test_a_success_that_came_first_stands() -> None:
    found = plan(suspended(started()), done(index=0), pod(index=1), pod(index=2))
    assert found.commit is not None
    assert found.commit.state == "Succeeded"
