"""The job's clocks, by what they say at which second."""

from __future__ import annotations

import pytest
from jobs import NOW, done, job, plan, pod, settle, started
from msgspec import structs

from disttrain.api.plan import Seen, Settings
from disttrain.api.times import stamp
from disttrain.api.types import Progress
from disttrain.lifecycle import conditions
from disttrain.reconcile import reconcile

PODS = [pod(index=i) for i in range(3)]
PENDING = [pod(index=i, phase="Pending", ready=False, unscheduled="0/3 nodes have room") for i in range(3)]


def test_active_deadline_has_an_alarm_and_ends_the_job() -> None:
    given = started({"activeDeadlineSeconds": 60})
    assert plan(given, *PODS, now=NOW + 59).wake == NOW + 60
    found = plan(given, *PODS, now=NOW + 60)
    assert found.commit is not None
    assert found.commit.state == "Failed"
    failed = conditions.get(found.commit, "Failed")
    assert failed is not None
    assert failed.reason == "ActiveDeadlineExceeded"
    assert found.commit.message == "The job has been active for 60 s; activeDeadlineSeconds is 60."


def test_suspended_time_does_not_count() -> None:
    given = started({"activeDeadlineSeconds": 60})
    status = structs.replace(given.status, active_seconds=30, active_since=stamp(NOW + 1000))
    given = structs.replace(given, status=status)
    assert plan(given, *PODS, now=NOW + 1029).commit is None
    assert plan(given, *PODS, now=NOW + 1030).commit is not None


def test_startup_deadline_says_what_it_waited_for() -> None:
    given, _ = settle(job({"startupDeadlineSeconds": 30}))
    up = plan(given, *PENDING).status
    assert up is not None
    given = structs.replace(given, status=up)
    assert plan(given, *PENDING, now=NOW + 29).wake == NOW + 30
    found = plan(given, *PENDING, now=NOW + 30)
    assert found.commit is not None
    assert found.commit.state == "Failed"
    assert "0/3 nodes have room" in found.commit.message
    assert "startupDeadlineSeconds" in found.commit.message


def test_startup_deadline_is_over_once_all_run() -> None:
    assert plan(started({"startupDeadlineSeconds": 30}), *PODS, now=NOW + 1000).commit is None


def test_progress_deadline_restarts_at_a_charge() -> None:
    given = started({"progressDeadlineSeconds": 100})
    told = Progress(step=5, round=1)
    moved = plan(given, *PODS, now=NOW + 90, progress=told).status
    assert moved is not None
    given = structs.replace(given, status=moved)
    assert moved.progress_time == stamp(NOW + 90)
    assert plan(given, *PODS, now=NOW + 189, progress=told).wake == NOW + 190
    assert plan(given, *PODS, now=NOW + 190, progress=Progress(step=6, round=1)).commit is None
    found = plan(given, *PODS, now=NOW + 190, progress=told)
    assert found.commit is not None
    assert (found.commit.state, found.commit.restarts) == ("Restarting", 1)
    assert found.commit.message.startswith("The training made no progress for progressDeadlineSeconds; restart 1 of 3")


def test_a_leader_that_has_finished_makes_no_progress_and_need_not() -> None:
    given = started({"success": "AllWorkers", "progressDeadlineSeconds": 100})
    assert plan(given, done(index=0), *PODS[1:], now=NOW + 1000).commit is None


def test_progress_that_nobody_reads_is_not_missed() -> None:
    asked = job({"progressDeadlineSeconds": 100})
    deaf = Settings(reads_progress=False)
    begun = reconcile(asked, Seen(), NOW, deaf)
    assert [event.reason for event in begun.events if event.warning] == ["ProgressNotRead"]
    assert [event.reason for event in plan(asked).events if event.warning] == []
    given = started({"progressDeadlineSeconds": 100})
    assert plan(given, *PODS, now=NOW + 1000).commit is not None
    assert reconcile(given, Seen(pods=PODS), NOW + 1000, deaf).commit is None


@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "startupDeadlineSeconds", "progressDeadlineSeconds"])
def test_unset_means_never(field: str) -> None:
    assert getattr(job().spec, "".join("_" + c.lower() if c.isupper() else c for c in field)) is None
    assert plan(started(), *PODS, now=NOW + 10**8).wake is None
