"""Two operators, each a process of its own, and one lease: who acts, and how soon the other does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from disttrain.local.server.objects import Write
from local.story import Json, Starter, World, is_alive

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def starter(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Starter]:
    async with Starter(tmp_path_factory.mktemp("starter")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path, starter: Starter) -> AsyncIterator[World]:
    async with World(tmp_path, starter) as made:
        yield made


def lease(world: World) -> Json:
    """The spec of the operators' lease; empty where there is none."""
    leases = next(one for one in world.server.types if one.key == "leases.coordination.k8s.io")
    record = world.server.store.get(leases, "system", "disttrain")
    return dict(record.object()["spec"]) if record else {}


def holds(world: World, pid: int) -> bool:
    """Whether this operator holds it."""
    return f"_{pid}_" in lease(world).get("holderIdentity", "")


async def two(world: World) -> tuple[int, int]:
    """The leader and a standby whose caches are full."""
    words = ("--leader-elect", "--lease-namespace", "system")
    namespaces = next(one for one in world.server.types if one.key == "namespaces")
    world.server.objects.create(namespaces, "", {"metadata": {"name": "system"}}, Write())
    leader = await world.operate(*words)
    await world.until(lambda: holds(world, leader))
    standby = await world.operate(*words)
    await world.until(lambda: "standing by" in world.log())
    return leader, standby


async def begin(world: World) -> None:
    """A job whose pods run."""
    world.apply(graceSeconds=0)
    await world.until(lambda: world.running(1) and world.status().get("state") == "Running")


async def end(world: World, round_: int) -> None:
    """The job succeeds and leaves nothing."""
    world.kubelet.ends(world.worker(0, round_), 0)
    await world.until(lambda: world.status().get("state") == "Succeeded")
    await world.until(lambda: not any(map(world.kubelet.alive, world.kubelet.pods())))


async def test_after_sigkill_in_a_restart_the_other_goes_on_within_15_s(world: World) -> None:
    """The charge has just been written: the next leader makes the pods of that round, and charges nothing."""
    leader, standby = await two(world)
    await begin(world)
    killed: list[float] = []

    def kill() -> None:
        os.kill(leader, signal.SIGKILL)
        killed.append(time.monotonic())

    world.calls.kill = kill
    world.calls.at = world.calls.writes + 1
    world.kubelet.ends(world.worker(1, 1), 137)
    await world.until(lambda: holds(world, standby), 17)
    took = time.monotonic() - killed[0]
    assert world.calls.killed is not None
    assert world.calls.killed[1] == "disttrainjobs/status"
    assert lease(world)["leaseTransitions"] == 1
    await world.until(lambda: world.running(2), 2)
    print(f"the lease changed hands {took:.1f} s after SIGKILL, all ran {time.monotonic() - killed[0]:.1f} s after it")
    assert took <= 15
    await end(world, 2)
    world.check()


async def test_after_sigterm_the_other_acts_within_2_s(world: World) -> None:
    leader, standby = await two(world)
    await begin(world)
    os.kill(leader, signal.SIGTERM)
    began = time.monotonic()
    world.kubelet.ends(world.worker(1, 1), 137)
    await world.until(lambda: holds(world, standby), 2)
    await world.until(lambda: world.running(2), 2)
    print(f"all ran {time.monotonic() - began:.2f} s after SIGTERM")
    await world.until(lambda: not is_alive(leader), 2)
    await end(world, 2)
    world.check()


async def test_a_standby_writes_nothing_and_a_leader_that_lost_ends(world: World) -> None:
    leader, standby = await two(world)
    await begin(world)
    os.kill(leader, signal.SIGSTOP)
    try:
        before = world.calls.writes
        world.kubelet.ends(world.worker(1, 1), 137)
        await world.until(lambda: holds(world, standby), 20)
        assert world.calls.writes == before
        await world.until(lambda: world.running(2))
    finally:
        os.kill(leader, signal.SIGCONT)  # it wakes up with an opinion of 15 s ago
    await world.until(lambda: not is_alive(leader))
    assert holds(world, standby)
    await end(world, 2)
    world.check()
