"""Turns."""

from __future__ import annotations

import asyncio

from disttrain.cluster.limiter import FairLimiter


async def test_no_more_than_the_limit_at_once() -> None:
    limiter = FairLimiter(3)
    inside = most = 0

    async def one(key: int) -> None:
        nonlocal inside, most
        async with limiter.turn(key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one(i % 4) for i in range(40)))
    assert most == 3


async def test_a_small_job_does_not_wait_for_a_large_one() -> None:
    limiter = FairLimiter(1)
    order: list[str] = []

    async def one(key: str) -> None:
        async with limiter.turn(key):
            order.append(key)
            await asyncio.sleep(0)

    large = [asyncio.create_task(one("large")) for _ in range(100)]
    await asyncio.sleep(0)
    await asyncio.gather(*(one("small") for _ in range(3)), *large)
    assert order.index("small") <= 3
    assert len(order) - order[::-1].index("small") <= 8


async def test_who_gives_up_waiting_takes_no_turn() -> None:
    limiter = FairLimiter(1)
    async with limiter.turn("a"):
        waiting = [asyncio.create_task(limiter.turn("b").__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(1), limiter.turn("c"):
        pass


async def test_who_gives_up_with_the_turn_in_hand_hands_it_on() -> None:
    limiter = FairLimiter(1)
    holder = limiter.turn("a")
    await holder.__aenter__()
    waiting = asyncio.create_task(limiter.turn("b").__aenter__())
    await asyncio.sleep(0)
    await holder.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1), limiter.turn("c"):
        pass
