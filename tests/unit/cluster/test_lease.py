"""The lease, in an event loop whose time jumps to whatever is waited for: minutes pass in no time, and exactly."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from cluster.fakes import FakeApi

from disttrain.cluster.errors import NoAnswer, TooManyRequests
from disttrain.cluster.lease import DEADLINE, DURATION, LOOK, RETRY, Lease, LeaseLost, identity

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
PATH = f"{FOLDER}/disttrain"
SLACK = 0.2
"""Of the jitter of a look."""


class _Jumping(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.passed += max(timeout, 0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for timers by moving its clock."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000.0 + self._jumping.passed


def timeless(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Runs an asynchronous test in such a loop."""

    def run() -> None:
        async def within() -> None:
            await test()

        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(within())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def clock() -> float:
    return asyncio.get_running_loop().time()


def lease(api: FakeApi, holder: str, *, skew: float = 0.0) -> Lease:
    """A candidate; its wall clock is wrong by `skew` seconds."""
    return Lease(api, "system", "disttrain", holder, lambda: clock() + skew)


def spec(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects[PATH]["spec"]
    return found


async def stands(candidate: Lease, seconds: float) -> bool:
    """Whether the candidate still waits after so many seconds."""
    task = asyncio.create_task(candidate.acquire())
    done, _ = await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return not done


@timeless
async def test_the_first_takes_it_and_says_so() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    assert first.held
    assert spec(api) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": DURATION,
        "acquireTime": "1970-01-01T00:16:40.000000Z",
        "renewTime": "1970-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }


@timeless
async def test_the_second_waits_as_long_as_the_first_renews() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    assert await stands(lease(api, "b"), 300)
    assert first.held
    renewals = [call for call in api.calls if call.startswith("PATCH")]
    assert len(renewals) == pytest.approx(300 / RETRY, abs=1)
    holding.cancel()


@pytest.mark.parametrize("skew", [-86400.0, 0.0, 86400.0])
def test_the_second_takes_over_from_the_dead_whatever_the_clocks_say(skew: float) -> None:
    @timeless
    async def story() -> None:
        api = FakeApi()
        first = lease(api, "a", skew=skew)
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        second = lease(api, "b")
        taking = asyncio.create_task(second.acquire())
        await asyncio.sleep(60)
        holding.cancel()  # as SIGKILL does
        died = clock()
        await taking
        assert DURATION - RETRY - SLACK <= clock() - died <= DURATION + LOOK + SLACK
        assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("b", 1)

    story()


@timeless
async def test_the_second_takes_at_once_what_was_handed_back() -> None:
    api = FakeApi()
    first, second = lease(api, "a"), lease(api, "b")
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    await asyncio.sleep(5)
    began = clock()
    await first.release()
    assert spec(api)["holderIdentity"] == ""
    await taking
    assert clock() - began <= LOOK + SLACK


@timeless
async def test_a_lease_of_another_is_not_handed_back() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    spec(api)["holderIdentity"] = "b"
    api.touch(api.objects[PATH])
    await first.release()
    assert spec(api)["holderIdentity"] == "b"


@timeless
async def test_no_answers_end_the_holder_before_another_may_begin() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    renewed = clock()

    def deaf(call: str) -> None:
        raise NoAnswer("connection refused")

    api.before = deaf
    with pytest.raises(LeaseLost, match=r"lease system/disttrain could not be renewed for 10 s"):
        await first.hold()
    assert clock() - renewed == pytest.approx(DEADLINE)
    assert not first.held


@timeless
async def test_a_call_that_hangs_does_not_outlast_the_deadline() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    renewed = clock()
    api.pause = lambda call: asyncio.get_running_loop().create_future()
    with pytest.raises(LeaseLost, match="could not be renewed"):
        await first.hold()
    assert clock() - renewed == pytest.approx(DEADLINE)
    assert len([call for call in api.calls if call.startswith("PATCH")]) >= 2


@timeless
async def test_a_short_outage_costs_nothing() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    holding = asyncio.create_task(first.hold())

    def busy(call: str) -> None:
        raise TooManyRequests(429, "TooManyRequests", "later")

    api.before = busy
    await asyncio.sleep(DEADLINE - RETRY)
    api.before = lambda call: None
    await asyncio.sleep(60)
    assert first.held
    holding.cancel()


@timeless
async def test_another_holder_ends_this_one_at_once() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    spec(api)["holderIdentity"] = "b"
    api.touch(api.objects[PATH])
    began = clock()
    with pytest.raises(LeaseLost, match="is held by b"):
        await first.hold()
    assert clock() - began == pytest.approx(RETRY)


@timeless
async def test_a_deleted_lease_is_lost() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    del api.objects[PATH]
    with pytest.raises(LeaseLost, match="was deleted"):
        await first.hold()


@timeless
async def test_what_others_write_beside_and_lost_answers_do_not_end_it() -> None:
    api = FakeApi()
    first = lease(api, "a")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await asyncio.sleep(1)
    api.objects[PATH]["metadata"]["labels"] = {"set": "by a person"}
    api.touch(api.objects[PATH])
    await asyncio.sleep(2)

    def lose(call: str) -> None:
        api.after = lambda call: None
        raise NoAnswer("connection reset")

    api.after = lose
    await asyncio.sleep(60)
    assert first.held
    assert not holding.done()
    holding.cancel()


@timeless
async def test_of_two_that_try_at_once_one_takes_it() -> None:
    for there in (False, True):
        api = FakeApi()
        if there:
            api.add(PATH, {"spec": {"holderIdentity": ""}})
        candidates = [lease(api, name) for name in "ab"]
        tasks = [asyncio.create_task(one.acquire()) for one in candidates]
        await asyncio.wait(tasks, timeout=5)
        assert sorted(one.held for one in candidates) == [False, True]
        for task in tasks:
            task.cancel()


@timeless
async def test_an_acquisition_whose_answer_was_lost_is_taken_up() -> None:
    api = FakeApi()
    api.add(PATH, {"spec": {"holderIdentity": ""}})
    calls = iter([None, NoAnswer("connection reset")])

    def lose(call: str) -> None:
        if error := next(calls, None):
            raise error

    api.after = lose
    first = lease(api, "a")
    began = clock()
    await first.acquire()
    assert clock() - began <= LOOK + SLACK
    assert first.held


def test_no_two_operators_have_one_name() -> None:
    assert identity() != identity()
