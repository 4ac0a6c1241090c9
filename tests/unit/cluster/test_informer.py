"""The pod informer against a scripted API server: lists, watches, gaps and late answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from cluster.fakes import UID, pod, until

from disttrain.api.pods import PodView, WirePod, view
from disttrain.cluster import informer as module
from disttrain.cluster.errors import Gone, NoAnswer, ServerError
from disttrain.cluster.informer import PodInformer
from disttrain.cluster.transport import JSON, Method

Line = bytes | Exception


def event(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def listing(version: int, *pods: dict[str, Any], more: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(version), "continue": more}, "items": pods}).encode()


def seen(**fields: Any) -> PodView:
    return view(msgspec.convert(pod(**fields), WirePod))


class Script:
    """Answers lists in order; each watch gives its lines, then waits for more in `live`."""

    def __init__(self, lists: Sequence[bytes | Exception], watches: Sequence[Sequence[Line]] = ()) -> None:
        self.lists = list(lists)
        self.watches = [list(lines) for lines in watches]
        self.live: asyncio.Queue[Line | None] = asyncio.Queue()
        self.asked: list[str] = []
        self.during_relist: Callable[[], None] = lambda: None

    async def call(self, method: Method, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        assert method == "GET"
        query = parse_qs(urlsplit(path).query)
        assert query["labelSelector"] == ["disttrain.dev/job-uid"]
        assert query["limit"] == ["500"]
        self.asked.append(f"LIST {query['continue'][0]}" if "continue" in query else "LIST")
        if self.asked.count("LIST") > 1:
            self.during_relist()
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, path: str, silence: float) -> AsyncIterator[bytes]:
        query = parse_qs(urlsplit(path).query)
        assert query["labelSelector"] == ["disttrain.dev/job-uid"]
        assert query["allowWatchBookmarks"] == ["true"]
        self.asked.append(f"WATCH {query['resourceVersion'][0]}")
        if self.watches:
            for line in self.watches.pop(0):
                if isinstance(line, Exception):
                    raise line
                yield line
            return
        while (live := await self.live.get()) is not None:
            if isinstance(live, Exception):
                raise live
            yield live


class World:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.changes: list[tuple[str, str]] = []
        self.gone: list[tuple[str, int]] = []
        self.informer = PodInformer(script, self.changed, self.vanished)
        self.cache = self.informer.cache

    def changed(self, old: PodView | None, new: PodView) -> None:
        self.changes.append((new.uid, "changed" if old else "new"))

    def vanished(self, last: PodView, version: int) -> None:
        self.gone.append((last.uid, version))

    @property
    def uids(self) -> set[str]:
        return {one.uid for one in self.cache.of(UID)}

    async def tell(self, *lines: Line | None) -> None:
        """Sends lines down the watch and waits until they are read."""
        for line in lines:
            self.script.live.put_nowait(line)
        await until(self.script.live.empty)
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def quickly(self: module.Stream) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(module.Stream, "_back_off", quickly)


@asynccontextmanager
async def running(script: Script) -> AsyncIterator[World]:
    world = World(script)
    task = asyncio.create_task(world.informer.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(world: World, number: int) -> list[str]:
    await until(lambda: len(world.script.asked) >= number)
    return world.script.asked


async def test_lists_in_pages_then_watches() -> None:
    script = Script([listing(20, pod(uid="a"), more="next/page"), listing(20, pod(uid="b", version=11))])
    async with running(script) as world:
        assert not world.informer.synced
        await world.informer.wait()
        assert await asked(world, 3) == ["LIST", "LIST next/page", "WATCH 20"]
        assert world.uids == {"a", "b"}
        assert world.changes == [("a", "new"), ("b", "new")]


async def test_events_change_the_cache() -> None:
    async with running(Script([listing(20)])) as world:
        await world.informer.wait()
        await world.tell(event("ADDED", pod(uid="a", version=21)))
        assert world.uids == {"a"}
        await world.tell(event("MODIFIED", pod(uid="a", version=22, phase="Failed")))
        assert world.cache.of(UID)[0].phase == "Failed"
        await world.tell(event("DELETED", pod(uid="a", version=23, phase="Failed")))
        assert world.uids == set()
        assert world.changes == [("a", "new"), ("a", "changed")]
        assert world.gone == [("a", 23)]


async def test_an_event_that_changes_nothing_tells_nobody() -> None:
    async with running(Script([listing(20, pod(uid="a"))])) as world:
        await world.informer.wait()
        await world.tell(event("MODIFIED", pod(uid="a", version=22, hostIP="10.0.0.1")))
        assert world.cache.of(UID)[0].version == 22
        assert world.changes == [("a", "new")]


async def test_the_newer_version_wins() -> None:
    async with running(Script([listing(20, pod(uid="a"))])) as world:
        await world.informer.wait()
        world.cache.answered(seen(uid="a", version=30, phase="Failed"))
        await world.tell(event("MODIFIED", pod(uid="a", version=25)))
        assert world.cache.of(UID)[0].phase == "Failed"
        assert world.changes == [("a", "new")]


async def test_a_dropped_watch_goes_on_where_it_was() -> None:
    script = Script([listing(20)], [[event("ADDED", pod(uid="a", version=25)), NoAnswer("reset")], [bookmark(40)]])
    async with running(script) as world:
        assert await asked(world, 4) == ["LIST", "WATCH 20", "WATCH 25", "WATCH 40"]
        assert world.uids == {"a"}


async def test_a_watch_is_not_given_up_while_nothing_answers() -> None:
    errors: list[Line] = [NoAnswer("refused")]
    async with running(Script([listing(20)], [errors] * 6)) as world:
        assert await asked(world, 8) == ["LIST", *["WATCH 20"] * 7]


@pytest.mark.parametrize(
    "end",
    [
        Gone(410, "Expired", "too old"),
        event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
        event("ERROR", {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}),
        b"{",
        event("ADDED", {"kind": "Pod"}),
    ],
)
async def test_what_ends_a_watch_for_good_lists_again(end: Line) -> None:
    script = Script([listing(20, pod(uid="a"), pod(uid="b")), listing(50, pod(uid="b"))], [[end]])
    async with running(script) as world:
        assert await asked(world, 4) == ["LIST", "WATCH 20", "LIST", "WATCH 50"]
        assert world.uids == {"b"}
        assert world.gone == [("a", 50)]


async def test_a_list_that_fails_is_tried_again() -> None:
    script = Script(
        [ServerError(500, "", "no"), NoAnswer("x"), listing(20, more="p"), Gone(410, "Expired", ""), listing(30)]
    )
    async with running(script) as world:
        assert await asked(world, 6) == ["LIST", "LIST", "LIST", "LIST p", "LIST", "WATCH 30"]


async def test_a_new_list_spares_pods_that_are_newer() -> None:
    """A pod made while the list was on its way is not in it, and yet there."""
    script = Script([listing(20, pod(uid="old")), listing(50)], [[Gone(410, "Expired", "")]])
    async with running(script) as world:
        script.during_relist = lambda: world.cache.answered(seen(uid="young", version=55))
        await asked(world, 4)
        assert world.uids == {"young"}
        assert world.gone == [("old", 50)]


async def test_a_new_list_drops_what_was_made_and_deleted_before_it() -> None:
    script = Script([listing(20), listing(50)], [[Gone(410, "Expired", "")]])
    async with running(script) as world:
        script.during_relist = lambda: world.cache.answered(seen(uid="a", version=45))
        await asked(world, 4)
        assert world.uids == set()


async def test_a_late_answer_raises_no_dead() -> None:
    async with running(Script([listing(20)])) as world:
        await world.informer.wait()
        await world.tell(event("ADDED", pod(uid="a", version=21)), event("DELETED", pod(uid="a", version=22)))
        world.cache.answered(seen(uid="a", version=21))
        assert world.uids == set()
        world.cache.answered(seen(uid="b", version=23))
        assert world.uids == {"b"}


async def test_a_late_answer_from_before_the_list_raises_no_dead() -> None:
    async with running(Script([listing(20)])) as world:
        await world.informer.wait()
        world.cache.answered(seen(uid="a", version=15))
        assert world.uids == set()


async def test_an_answer_is_in_the_cache_before_its_event() -> None:
    async with running(Script([listing(20)])) as world:
        await world.informer.wait()
        world.cache.answered(seen(uid="a", version=21))
        assert world.uids == {"a"}
        await world.tell(event("ADDED", pod(uid="a", version=21)))
        assert world.changes == []


async def test_a_pod_that_is_being_deleted() -> None:
    async with running(Script([listing(20, pod(uid="a"))])) as world:
        await world.informer.wait()
        world.cache.deleting("a", 1234.0)
        world.cache.deleting("unknown", 1234.0)
        assert world.cache.of(UID)[0].deletion == 1234.0


async def test_one_stream_a_namespace() -> None:
    script = Script([listing(20), listing(30)])
    informer = PodInformer(script, lambda old, new: None, lambda last, version: None, ["a", "b"])
    task = asyncio.create_task(informer.run())
    await informer.wait()
    assert set(informer.ages()) == {"pods/a", "pods/b"}
    assert informer.cache.horizons == {"a": 20, "b": 30}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_seconds_since_the_last_event() -> None:
    async with running(Script([listing(20)])) as world:
        await world.informer.wait()
        world.informer.streams[0].heard -= 100
        assert world.informer.ages()["pods"] > 99
        await world.tell(bookmark(30))
        assert world.informer.ages()["pods"] < 1


async def test_a_pod_that_changes_its_job() -> None:
    async with running(Script([listing(20, pod(uid="a"))])) as world:
        await world.informer.wait()
        await world.tell(event("MODIFIED", pod(uid="a", version=21, job_uid="other")))
        assert world.uids == set()
        assert [one.uid for one in world.cache.of("other")] == ["a"]


async def test_told_to_list_anew() -> None:
    """What the watch has not brought is there when it returns; readiness does not waver."""
    script = Script([listing(20, pod(uid="a")), listing(30, pod(uid="b", version=25))])
    async with running(script) as world:
        await asked(world, 2)
        world.script.during_relist = lambda: ready.append(world.informer.synced)
        ready: list[bool] = []
        await world.informer.renew()
        assert world.uids == {"b"}
        assert world.gone == [("a", 30)]
        assert ready == [True]
        assert (await asked(world, 4))[1:] == ["WATCH 20", "LIST", "WATCH 30"]


async def test_told_to_list_anew_while_it_lists() -> None:
    """The list under way may be older than the call: it does not count."""
    script = Script([listing(20, pod(uid="a")), listing(30), listing(31)])
    async with running(script) as world:
        await asked(world, 2)

        def once() -> None:
            world.script.during_relist = lambda: None
            world.informer.streams[0].renew()

        world.script.during_relist = once
        await world.informer.renew()
        assert (await asked(world, 5))[1:] == ["WATCH 20", "LIST", "LIST", "WATCH 31"]


async def test_a_list_anew_that_fails_is_tried_again() -> None:
    script = Script([listing(20, pod(uid="a")), NoAnswer("lost"), listing(30)])
    async with running(script) as world:
        await asked(world, 2)
        await world.informer.renew()
        assert world.uids == set()
        assert (await asked(world, 5))[1:] == ["WATCH 20", "LIST", "LIST", "WATCH 30"]
