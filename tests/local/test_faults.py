"""The operator, a process of its own, against an API that fails on demand, and killed between any two of its calls."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import pytest_asyncio

from disttrain.api.constants import LABEL_JOB_UID
from disttrain.cluster.login import login
from disttrain.local.server.faults import Rule
from disttrain.main import Operator, Options
from local.story import Starter, World, is_alive


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def starter(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Starter]:
    async with Starter(tmp_path_factory.mktemp("starter")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path, starter: Starter) -> AsyncIterator[World]:
    async with World(tmp_path, starter) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


STORY = 22
"""Writes of the story where nothing goes wrong: a service, 6 pods, 2 labels, 5 deletions, 8 statuses at most."""


async def test_the_story_undisturbed(world: World) -> None:
    await world.operate()
    await world.tell(calm=True)
    world.check()
    made = world.calls.made()
    assert (made["create", "services"], made["create", "pods"]) == (1, 6)
    assert made["patch", "pods"] == 2  # `live` comes off the two that still run
    assert made["patch", "disttrainjobs/status"] <= 8  # each round: begun, made, running; the end, and its counters
    assert world.calls.writes <= STORY


@pytest.mark.parametrize("write", range(1, STORY + 4))
async def test_killed_after_any_write(world: World, write: int) -> None:
    """SIGKILL in the moment in which the n-th write took effect: its answer is lost, and all that was known."""
    pid = await world.operate()
    world.calls.at = write
    world.calls.kill = lambda: os.kill(pid, signal.SIGKILL)
    telling = asyncio.create_task(world.tell(calm=True))
    await world.until(lambda: world.calls.killed or telling.done())
    if world.calls.killed:
        await world.operate()
    await telling
    world.check()
    # Retries and what is put together otherwise may make it longer, not much.
    assert bool(world.calls.killed) == (write <= world.calls.writes)
    assert world.calls.writes <= STORY + 8


POD, STATUS = "pods", "disttrainjobs/status"
FAULTS = {
    "a status refused as old": [Rule(action="error", verb="patch", resource=STATUS, code=409, count=3)],
    "too many requests": [Rule(action="error", verb="create", resource=POD, code=429, retry_after=1, count=2)],
    "too many statuses": [Rule(action="error", verb="patch", resource=STATUS, code=429, retry_after=1)],
    "a server that stops": [Rule(action="error", verb="create", resource=POD, code=503, retry_after=1)],
    "500 for a pod": [Rule(action="error", verb="create", resource=POD, code=500, count=3)],
    "500 for a status": [Rule(action="error", verb="patch", resource=STATUS, code=500, count=3)],
    "500 for a label": [Rule(action="error", verb="patch", resource=POD, code=500, count=2)],
    "500 for a deletion": [Rule(action="error", verb="delete", resource=POD, code=500, count=3)],
    "500 for the service": [Rule(action="error", verb="create", resource="services", code=500, count=2)],
    "no way to a pod": [Rule(action="close_before", verb="create", resource=POD, count=3)],
    "no way to a status": [Rule(action="close_before", verb="patch", resource=STATUS, count=2)],
    "lost answers to pods": [Rule(action="close_after", verb="create", resource=POD, count=6)],
    "lost answer to the service": [Rule(action="close_after", verb="create", resource="services")],
    "lost answers to statuses": [Rule(action="close_after", verb="patch", resource=STATUS, count=4)],
    "lost answers to labels": [Rule(action="close_after", verb="patch", resource=POD, count=2)],
    "lost answers to deletions": [Rule(action="close_after", verb="delete", resource=POD, count=3)],
    "no answer to anything": [
        Rule(action="close_after", verb="patch", resource=STATUS, count=3),
        Rule(action="close_after", verb="get", resource="disttrainjobs", count=3),
        Rule(action="close_after", verb="create", resource=POD, count=3),
    ],
    "lost events": [Rule(action="close_before", resource="events", count=-1)],
    "slow pods": [Rule(action="delay", verb="create", resource=POD, seconds=0.2, count=-1)],
    "slow statuses": [Rule(action="delay", verb="patch", resource=STATUS, seconds=0.2, count=-1)],
    "slow deletions": [Rule(action="delay", verb="delete", resource=POD, seconds=0.2, count=-1)],
    "no list of pods": [Rule(action="error", verb="list", resource=POD, code=500, count=2)],
    "no list of jobs": [Rule(action="error", verb="list", resource="disttrainjobs", code=500)],
    "no discovery": [Rule(action="error", verb="watch|list", code=503, retry_after=1, count=2)],
    "410 for the watch of pods": [Rule(action="error", verb="watch", resource=POD, code=410, count=2)],
    "410 for the watch of jobs": [Rule(action="error", verb="watch", resource="disttrainjobs", code=410)],
    "410 in the watch of pods": [Rule(action="error_watch", resource=POD, code=410, count=2)],
    "410 in the watch of jobs": [Rule(action="error_watch", resource="disttrainjobs", code=410, count=2)],
    "500 in the watch of pods": [Rule(action="error_watch", resource=POD, code=500, count=2)],
    "500 in the watch of jobs": [Rule(action="error_watch", resource="disttrainjobs", code=500)],
    "watches of pods that break": [Rule(action="drop_watch", resource=POD, count=3)],
    "watches of jobs that break": [Rule(action="drop_watch", resource="disttrainjobs", count=3)],
}


@pytest.mark.parametrize("rules", FAULTS.values(), ids=FAULTS)
async def test_a_fault(world: World, rules: list[Rule]) -> None:
    """The story comes to its end, by the same operator, and nothing is done twice."""
    found = [world.calls.add(msgspec.structs.replace(rule)) for rule in rules]
    pid = await world.operate()
    await world.tell()
    world.check()
    assert [rule.hits for rule in found if rule.hits < max(rule.count, 1)] == []
    assert is_alive(pid)


@pytest.mark.parametrize("resource", ["pods", "disttrainjobs"])
@pytest.mark.parametrize("action", ["drop_watch", "error_watch"])
async def test_a_watch_that_ends_again_and_again(
    tmp_path: Path, starter: Starter, resource: str, action: Literal["drop_watch", "error_watch"]
) -> None:
    """Every 50 ms, by a server that remembers one change: mostly there is no way on but a new list."""
    async with World(tmp_path, starter, log_length=1) as world:
        pid = await world.operate()

        async def plague() -> None:
            while True:
                world.calls.add(Rule(action=action, resource=resource, code=410, now=True))
                await asyncio.sleep(0.05)

        trouble = asyncio.create_task(plague())
        try:
            await world.tell()
        finally:
            trouble.cancel()
        world.check()
        assert is_alive(pid)


async def running(world: World) -> int:
    """A job whose three pods run, and the operator's pid."""
    pid = await world.operate()
    world.apply(graceSeconds=0)
    await world.until(lambda: world.status().get("state") == "Running")
    return pid


async def test_a_pod_deleted_by_hand_is_replaced_within_a_second(world: World) -> None:
    await running(world)
    world.kubelet.remove(world.worker(2, 1))
    began = time.monotonic()
    await world.until(lambda: world.running(2), 1)
    print(f"replaced after {1000 * (time.monotonic() - began):.0f} ms")
    await world.until(lambda: world.status()["state"] == "Running")
    assert world.status()["restarts"] == 0
    assert [(one["reason"], one["charged"]) for one in world.status()["failures"]] == [("Deleted", False)]


@pytest.mark.parametrize("log_length", [8192, 1], ids=["resumed", "listed anew"])
async def test_a_pod_that_goes_while_nobody_watches(tmp_path: Path, starter: Starter, log_length: int) -> None:
    async with World(tmp_path, starter, log_length=log_length) as world:
        await running(world)
        deaf = world.calls.add(Rule(action="error", verb="watch", resource="pods", code=500, count=-1))
        world.calls.add(Rule(action="drop_watch", resource="pods", now=True))
        world.kubelet.remove(world.worker(2, 1))
        for name in ("stranger", "another"):
            world.stranger(name)
        await world.until(lambda: deaf.hits > 1)
        assert world.status()["round"] == 1
        before = world.lists("pods")
        world.calls.clear()
        await world.until(lambda: world.running(2))
        assert world.status()["restarts"] == 0
        assert world.lists("pods") == before + (log_length == 1)


async def test_a_job_made_and_one_deleted_while_nobody_watches(tmp_path: Path, starter: Starter) -> None:
    async with World(tmp_path, starter, log_length=1) as world:
        await running(world)
        deaf = world.calls.add(Rule(action="error", verb="watch|list", resource="disttrainjobs", code=500, count=-1))
        world.calls.add(Rule(action="drop_watch", resource="disttrainjobs", now=True))
        world.delete()
        world.apply("other")
        await world.until(lambda: deaf.hits > 0)
        world.calls.clear()
        await world.until(lambda: len(world.kubelet.pods("other")) == 3)
        await world.until(lambda: not world.kubelet.pods())
        assert world.kubelet.wrong == []


@pytest.mark.parametrize("grace", [0.02, 1.0], ids=["quick", "slow to end"])
async def test_a_job_deleted_and_made_again_at_once(tmp_path: Path, starter: Starter, grace: float) -> None:
    """Pods of the first that are still there hold up nothing."""
    async with World(tmp_path, starter, grace=grace) as world:
        await running(world)
        first = world.job()["metadata"]["uid"]
        world.delete()
        second = world.apply().uid
        began = time.monotonic()

        def runs() -> bool:
            mine = [one for one in world.kubelet.pods() if one.labels[LABEL_JOB_UID] == second]
            return sum(map(world.kubelet.alive, mine)) == 3

        await world.until(runs, 3)
        print(f"new pods after {1000 * (time.monotonic() - began):.0f} ms")
        await world.until(lambda: world.status().get("state") == "Running")
        assert world.status()["restarts"] == 0
        await world.until(lambda: all(one.labels[LABEL_JOB_UID] == second for one in world.kubelet.pods()))
        assert world.kubelet.wrong == []
        assert {key: n for key, n in world.kubelet.born.items() if key.startswith(first)} == {
            f"{first}/digits-worker-{index}": 1 for index in range(3)
        }


@pytest.mark.parametrize("resource", ["pods", "disttrainjobs"])
async def test_a_watch_that_freezes(world: World, resource: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays open and says nothing, as behind a broken load balancer: after a while another is opened."""
    monkeypatch.setattr("disttrain.local.server.watch.BOOKMARK_SECONDS", 0.1)
    options = Options(listen="", progress_seconds=0, silence_seconds=0.5)
    stop = asyncio.Event()
    operator = asyncio.create_task(Operator(options, login(str(world.kubeconfig))).run(stop))
    try:
        world.apply("before")
        await world.until(lambda: len(world.kubelet.pods("before")) == 3)
        frozen = world.calls.add(Rule(action="freeze_watch", resource=resource, now=True))
        assert frozen.hits == 1
        await world.tell()
        world.check()
        assert not operator.done()
    finally:
        stop.set()
        await operator


async def test_two_operators_at_once(world: World) -> None:
    """For a moment there may be two leaders: a failure is charged once, and no pod is made twice."""
    for _ in range(2):
        await world.operate()
    await world.tell()
    world.check(alone=False)
    assert all(map(is_alive, world.operators))


async def test_two_operators_through_many_rounds(world: World) -> None:
    """Each hears late of what the other wrote; every failure is charged once, and no round is begun twice."""
    for resource in ("pods", STATUS):
        world.calls.add(Rule(action="delay", resource=resource, verb="create|patch|delete", seconds=0.03, count=-1))
    for _ in range(2):
        await world.operate()
    world.apply(restart={"limit": 9})
    for round_ in range(1, 7):
        await world.until(lambda round_=round_: world.running(round_))  # type: ignore[misc]
        world.kubelet.ends(world.worker(round_ % 3, round_), 1)
    await world.until(lambda: world.running(7) and world.status()["state"] == "Running")
    status = world.status()
    assert (status["round"], status["restarts"]) == (7, 6)
    assert [(one["round"], one["charged"]) for one in status["failures"]] == [(number, True) for number in range(1, 7)]
    assert set(world.kubelet.born.values()) == {1}
    assert len(world.kubelet.born) == 7 * 3


async def test_calls_of_a_job_of_eight(tmp_path: Path, starter: Starter) -> None:
    """Pods + 4 a job, events apart, from the apply until all run."""
    async with World(tmp_path, starter, workers=8) as world:
        await world.operate()
        world.apply()
        await world.until(lambda: world.status().get("state") == "Running")
        made = world.calls.made()
        statuses = made.pop(("patch", STATUS))
        assert made == {("create", "services"): 1, ("create", "pods"): 8}
        assert statuses <= 3
