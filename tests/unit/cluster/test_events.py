"""Events: counted up, bounded, never in the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cluster.fakes import FakeApi, job, until

from disttrain.api.plan import Event
from disttrain.cluster import events
from disttrain.cluster.errors import NoAnswer
from disttrain.cluster.events import Recorder
from disttrain.cluster.jobs import convert_job

JOB = convert_job(job())
OTHER = convert_job(job("other", uid="u2"))


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.now = 1_800_000_000.0
        self.recorder = Recorder(self.api, lambda: self.now)

    @property
    def stored(self) -> list[dict[str, Any]]:
        return [one for path, one in self.api.objects.items() if "/events/" in path]


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.recorder.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_events_of_one_moment_are_listed_in_their_order() -> None:
    async with running() as world:
        for reason in ("Starting", "Running", "Succeeded"):
            world.recorder.record(JOB, Event(reason=reason, message=reason))
        await until(lambda: len(world.stored) == 3)
        by_name = sorted(world.stored, key=lambda one: str(one["metadata"]["name"]))
        assert [one["reason"] for one in by_name] == ["Starting", "Running", "Succeeded"]


async def test_an_event_as_describe_shows_it() -> None:
    async with running() as world:
        world.recorder.record(JOB, Event(reason="Restarting", message="Pod a failed.", warning=True))
        await until(lambda: world.stored)
        (found,) = world.stored
        assert found["metadata"]["name"].startswith("digits.")
        assert found["involvedObject"] == {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "name": "digits",
            "namespace": "team",
            "uid": JOB.metadata.uid,
        }
        assert (found["reason"], found["message"], found["type"]) == ("Restarting", "Pod a failed.", "Warning")
        assert found["firstTimestamp"] == found["lastTimestamp"] == "2027-01-15T08:00:00Z"
        assert found["count"] == 1


async def test_equal_events_are_counted_up() -> None:
    async with running() as world:
        for number in (1, 2, 3):
            world.now += 1
            world.recorder.record(JOB, Event(reason="Stalled", message=f"{number} of 8 pods have no node"))
            await until(lambda: [one["count"] for one in world.stored] == [world.now - 1_800_000_000])
        (found,) = world.stored
        assert found["message"] == "3 of 8 pods have no node"
        assert (found["firstTimestamp"], found["lastTimestamp"]) == ("2027-01-15T08:00:01Z", "2027-01-15T08:00:03Z")


async def test_what_waits_is_sent_once() -> None:
    world = World()
    for _ in range(5):
        world.recorder.record(JOB, Event(reason="Stalled", message="no node"))
    await world.recorder.drain()
    assert len(world.api.calls) == 1
    assert world.stored[0]["count"] == 5


async def test_different_words_reasons_and_jobs_are_different_events() -> None:
    world = World()
    for given, reason, message in ((JOB, "A", "x"), (JOB, "A", "y"), (JOB, "B", "x"), (OTHER, "A", "x")):
        world.recorder.record(given, Event(reason=reason, message=message))
    await world.recorder.drain()
    assert len(world.stored) == 4


async def test_a_job_that_talks_too_much_is_cut_off_and_the_others_are_not() -> None:
    world = World()
    for length in range(100):
        world.recorder.record(JOB, Event(reason="x" * length, message="."))
    world.recorder.record(OTHER, Event(reason="A", message="."))
    await world.recorder.drain()
    assert len(world.stored) == events.BURST + 1
    world.now += 2 * events.REFILL_SECONDS
    for letter in "abcd":
        world.recorder.record(JOB, Event(reason=letter, message="."))
    await world.recorder.drain()
    assert len(world.stored) == events.BURST + 3


async def test_an_event_that_has_expired_is_made_anew() -> None:
    async with running() as world:
        world.recorder.record(JOB, Event(reason="A", message="."))
        await until(lambda: world.stored)
        world.api.objects.clear()
        world.recorder.record(JOB, Event(reason="A", message="."))
        await until(lambda: world.stored)
        assert world.stored[0]["count"] == 2


async def test_failures_are_nobody_elses() -> None:
    def fail(call: str) -> None:
        if len(world.api.calls) == 1:
            raise NoAnswer("no")

    async with running() as world:
        world.api.before = fail
        world.recorder.record(JOB, Event(reason="A", message="."))
        world.recorder.record(JOB, Event(reason="B", message="."))
        await until(lambda: world.stored)
        assert [one["reason"] for one in world.stored] == ["B"]


async def test_long_words_are_cut() -> None:
    world = World()
    world.recorder.record(JOB, Event(reason="A", message="x" * 5000))
    await world.recorder.drain()
    assert len(json.dumps(world.stored[0]["message"])) == events.MAX_MESSAGE + 2


async def test_a_full_queue_blocks_nobody() -> None:
    world = World()
    for number in range(events.WAITING + 10):
        given = convert_job(job(f"j{number}", uid=f"u{number}"))
        world.recorder.record(given, Event(reason="A", message="."))
    await world.recorder.drain()
    assert len(world.stored) == events.WAITING
