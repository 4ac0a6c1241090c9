"""Reading the leaders' logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from cluster.fakes import PODS, FakeApi, pod, until

from disttrain.api.pods import PodView, WirePod, view
from disttrain.api.types import Progress
from disttrain.cluster import progress
from disttrain.cluster.errors import Forbidden
from disttrain.cluster.jobs import Key
from disttrain.cluster.progress import ProgressReader

KEY = ("team", "digits")
LOG = f"{PODS}/digits-worker-0/log"


def leader(uid: str = "p0") -> PodView:
    return view(msgspec.convert(pod(uid=uid), WirePod))


class World:
    def __init__(self, seconds: float) -> None:
        self.api = FakeApi()
        self.found: list[tuple[Key, Progress]] = []
        self.reader = ProgressReader(self.api, seconds, lambda key, what: self.found.append((key, what)))


@asynccontextmanager
async def running(seconds: float = 0.002) -> AsyncIterator[World]:
    world = World(seconds)
    task = asyncio.create_task(world.reader.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_reads_the_last_line_again_and_again() -> None:
    async with running() as world:
        world.api.answers[LOG] = 'start\nDISTTRAIN_PROGRESS {"step": 1}\nDISTTRAIN_PROGRESS {"step": 2}\nmore\n'
        world.reader.follow(KEY, leader())
        await until(lambda: len(world.found) >= 2)
        assert world.found[0] == (KEY, Progress(step=2, round=1))


async def test_progress_is_of_the_round_whose_pod_printed_it() -> None:
    async with running() as world:
        world.api.answers[LOG] = 'DISTTRAIN_PROGRESS {"step": 1, "round": 7}'
        world.reader.follow(KEY, view(msgspec.convert(pod(labels={"disttrain.dev/round": "4"}), WirePod)))
        await until(lambda: world.found)
        assert world.found[0] == (KEY, Progress(step=1, round=4))


async def test_asks_for_few_bytes_of_the_main_container() -> None:
    world = World(1)
    asked: list[str] = []

    async def call(method: str, path: str, *_: object) -> bytes:
        asked.append(path)
        return b""

    world.api.call = call  # type: ignore[method-assign,assignment]
    assert await world.reader.read(leader()) is None
    assert asked == [f"{LOG}?tailLines=40&limitBytes=16384&container=train"]


async def test_a_log_that_says_nothing_is_read_ever_more_rarely() -> None:
    async with running() as world:
        world.api.answers[LOG] = "nothing\n"
        world.reader.follow(KEY, leader())
        await until(lambda: world.reader._followed[KEY].pause >= 0.032)
        world.api.answers[LOG] = 'DISTTRAIN_PROGRESS {"step": 1}'
        await until(lambda: world.found)
        await until(lambda: world.reader._followed[KEY].pause == 0.002)


@pytest.mark.parametrize("silence", [True, False], ids=["nothing said", "no rights"])
async def test_a_log_is_read_often_enough_for_the_jobs_deadline(silence: bool) -> None:
    def refuse(call: str) -> None:
        if not silence:
            raise Forbidden(403, "Forbidden", "cannot get resource pods/log")

    async with running() as world:
        world.api.answers[LOG] = "nothing\n"
        world.api.before = refuse
        world.reader.follow(KEY, leader(), 0.04)
        await until(lambda: world.reader._followed[KEY].pause > 0.002)
        await until(lambda: len(world.api.calls) > 10)
        assert world.reader._followed[KEY].pause == 0.01
        world.reader.follow(KEY, leader(), None)  # the deadline was taken back
        await until(lambda: world.reader._followed[KEY].pause > 0.01)


async def test_a_deadline_shorter_than_the_pace_sets_the_pace() -> None:
    world = World(30)
    world.reader.follow(KEY, leader(), 60)
    assert world.reader._followed[KEY].pause == 15


async def test_rights_that_are_missing_are_not_asked_for_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(call: str) -> None:
        raise Forbidden(403, "Forbidden", "cannot get resource pods/log")

    async with running() as world:
        world.api.before = refuse
        world.reader.follow(KEY, leader())
        await until(lambda: world.reader._followed[KEY].pause == progress.SLOWEST)


async def test_an_error_over_one_log_ends_neither_the_reader_nor_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Progress:
        raise OverflowError(text)

    async with running() as world:
        world.api.answers[LOG] = 'DISTTRAIN_PROGRESS {"step": 1}'
        with monkeypatch.context() as patch:
            patch.setattr(progress, "parse_progress", broken)
            world.reader.follow(KEY, leader())
            await until(lambda: world.reader._followed[KEY].pause > 0.002)
        await until(lambda: world.found)


async def test_another_leader_and_none() -> None:
    async with running() as world:
        world.api.answers[LOG] = 'DISTTRAIN_PROGRESS {"step": 1}'
        world.reader.follow(KEY, leader())
        world.reader.follow(KEY, leader("p1"))
        assert world.reader._followed[KEY].pod.uid == "p1"
        world.reader.follow(KEY, None)
        world.reader.follow(KEY, None)
        assert not world.reader._followed
        await asyncio.sleep(0.01)
        assert not world.found
