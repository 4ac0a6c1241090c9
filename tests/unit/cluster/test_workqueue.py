"""The queue, on the event loop's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from cluster.fakes import until

from disttrain.cluster.workqueue import Closed, WorkQueue


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is told."""

    now = 1000.0

    def time(self) -> float:
        return self.now


def on_fake_time(test: Callable[[Clock], object]) -> None:
    loop = Clock()
    try:
        loop.run_until_complete(test(loop))  # type: ignore[arg-type]
    finally:
        loop.close()


async def pass_time(loop: Clock, seconds: float) -> None:
    loop.now += seconds
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_key_waits_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_is_never_handled_twice_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_workers_share_the_keys() -> None:
    queue: WorkQueue[int] = WorkQueue()
    busy: set[int] = set()
    handled: list[int] = []

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except Closed:
                return
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0)
            if len(handled) < 50:
                queue.add(key)
            handled.append(key)
            busy.discard(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(5)]
    for key in range(7):
        queue.add(key)
    await until(lambda: len(handled) >= 50)
    queue.close()
    await asyncio.gather(*workers)
    assert max(handled.count(key) for key in range(7)) - min(handled.count(key) for key in range(7)) <= 3


def test_delays() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("late", 10)
        queue.add_after("soon", 5)
        queue.add_after("late", 20)
        await pass_time(loop, 4.9)
        assert len(queue) == 0
        await pass_time(loop, 0.2)
        assert await queue.get() == "soon"
        await pass_time(loop, 5)
        assert await queue.get() == "late"
        await pass_time(loop, 20)
        assert len(queue) == 0

    on_fake_time(test)


def test_the_earlier_of_two_delays_counts() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add_after("a", 2)
        await pass_time(loop, 2)
        assert await queue.get() == "a"
        queue.done("a")
        await pass_time(loop, 20)
        assert len(queue) == 0

    on_fake_time(test)


def test_handling_a_key_ends_its_delay() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 2)
        queue.add("a")
        assert await queue.get() == "a"
        await pass_time(loop, 3)
        assert len(queue) == 0
        queue.add_after("a", 2)
        queue.done("a")
        await pass_time(loop, 2)
        assert len(queue) == 1

    on_fake_time(test)


def test_a_far_alarm_is_kept_once_however_often_its_key_is_handled() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("other", 7 * 86_400)
        for _ in range(5000):  # a job with a deadline in a week that reports progress now and then
            queue.add("a")
            assert await queue.get() == "a"
            queue.add_after("a", 14 * 86_400)
            queue.done("a")
            loop.now += 30
        assert len(queue._heap) < 200
        await pass_time(loop, 7 * 86_400)
        assert await queue.get() == "other"
        await pass_time(loop, 7 * 86_400)
        assert await queue.get() == "a"

    on_fake_time(test)


def test_back_off_doubles_and_ends() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue(jitter=lambda: 1.0)
        assert [queue.retry("a") for _ in range(4)] == [0.2, 0.4, 0.8, 1.6]
        assert queue.retry("b") == 0.2
        queue.succeed("a")
        assert queue.retry("a") == 0.2
        assert [queue.retry("a") for _ in range(30)][-1] == 300

    on_fake_time(test)


def test_jitter_scales_the_back_off() -> None:
    async def test(loop: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue()
        waits = {WorkQueue[str]().retry("a") for _ in range(20)} | {queue.retry("a")}
        assert all(0.16 <= seconds <= 0.24 for seconds in waits)
        assert len(waits) > 1

    on_fake_time(test)


async def test_drop() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 0.001)
    queue.drop("a")
    queue.drop("c")
    assert await queue.get() == "b"
    queue.add("b")
    queue.drop("b")
    queue.done("b")
    await asyncio.sleep(0.003)
    assert len(queue) == 0


async def test_close_sends_workers_away() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    for one in waiting:
        with pytest.raises(Closed):
            await one
    queue.add("a")
    with pytest.raises(Closed):
        await queue.get()


async def test_a_cancelled_worker_loses_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    async with asyncio.timeout(1):
        assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first
