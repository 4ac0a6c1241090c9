"""Faults on demand."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from disttrain.local.server import ApiServer, Rule
from local.server.conftest import PODS, Client, eventually, pod

FAULTS = "/disttrain-local/faults"


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden")],
)
async def test_an_error_instead_of_the_call(server: ApiServer, client: Client, code: int, reason: str) -> None:
    rule = server.faults.add(Rule(action="error", verb="create", resource="pods", code=code, message="sorry", count=2))
    for _ in range(2):
        got, answer = await client.call("POST", PODS, pod("a"))
        assert (got, answer["reason"], answer["message"]) == (code, reason, "sorry")
    assert rule.hits == 2
    await client.ok("POST", PODS, pod("a"))  # used up, and the calls before had no effect


async def test_retry_after(server: ApiServer, client: Client) -> None:
    server.faults.add(Rule(action="error", code=429, retry_after=7))
    async with client.session.get(client.url + PODS) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["details"] == {"retryAfterSeconds": 7}


async def test_only_what_matches(server: ApiServer, client: Client) -> None:
    server.faults.add(
        Rule(action="error", verb="create|patch", resource="pods", name="", namespace="default", count=-1)
    )
    server.faults.add(Rule(action="error", verb="get", name="x-.*", count=-1))
    await client.ok("GET", PODS)
    await client.ok("POST", "/api/v1/namespaces/kube-system/pods", pod("a"))
    assert (await client.call("POST", PODS, pod("a")))[0] == 500
    assert (await client.call("GET", f"{PODS}/x-1"))[0] == 500
    assert (await client.call("GET", f"{PODS}/y-1"))[0] == 404
    server.faults.clear()
    await client.ok("POST", PODS, pod("a"))


async def test_a_subresource_has_its_own_name(server: ApiServer, client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    server.faults.add(Rule(action="error", verb="patch", resource="pods/status"))
    assert (await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}))[0] == 200
    assert (await client.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}}))[0] == 500


async def test_a_lost_answer(server: ApiServer, client: Client) -> None:
    server.faults.add(Rule(action="close_after", verb="create", resource="pods"))
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", PODS, pod("a"))
    await client.ok("GET", f"{PODS}/a")  # the call was done
    assert [entry.status for entry in server.faults.journal if entry.verb == "create"] == [0]


async def test_a_connection_closed_before(server: ApiServer, client: Client) -> None:
    server.faults.add(Rule(action="close_before", verb="create", resource="pods"))
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", PODS, pod("a"))
    assert (await client.call("GET", f"{PODS}/a"))[0] == 404


async def test_a_delay(server: ApiServer, client: Client) -> None:
    server.faults.add(Rule(action="delay", seconds=0.2))
    began = time.monotonic()
    await client.ok("GET", PODS)
    assert time.monotonic() - began >= 0.2


async def watching(server: ApiServer, client: Client, seconds: float = 5.0) -> asyncio.Task[list[dict[str, Any]]]:
    """A watch of the pods that is under way."""
    version = (await client.ok("GET", PODS))["metadata"]["resourceVersion"]
    path = f"{PODS}?watch=true&resourceVersion={version}&allowWatchBookmarks=true"
    before = len(server.faults.watches)
    task = asyncio.create_task(client.watch(path, 100, seconds))

    async def open_() -> bool:
        return len(server.faults.watches) > before

    await eventually(open_)
    return task


async def test_watches_are_dropped(server: ApiServer, client: Client) -> None:
    task = await watching(server, client)
    server.faults.add(Rule(action="drop_watch", resource="pods"))
    with pytest.raises(aiohttp.ClientError):
        await task
    second = await watching(server, client)  # used up: this one lives
    await client.ok("POST", PODS, pod("a"))
    server.faults.add(Rule(action="error_watch", resource="pods", code=410, message="compacted"))
    events = await second
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert (events[1]["object"]["code"], events[1]["object"]["message"]) == (410, "compacted")


async def test_all_watches_of_now_and_none_later(server: ApiServer, client: Client) -> None:
    tasks = [await watching(server, client) for _ in range(3)]
    rule = server.faults.add(Rule(action="error_watch", resource="pods", code=410, now=True))
    assert [[event["type"] for event in await task] for task in tasks] == [["ERROR"]] * 3
    assert (rule.hits, rule.count) == (3, 0)
    later = await watching(server, client)
    await client.ok("POST", PODS, pod("a"))
    server.faults.add(Rule(action="error_watch", resource="pods", now=True))
    assert [event["type"] for event in await later] == ["ADDED", "ERROR"]


async def test_a_watch_that_freezes(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disttrain.local.server.watch.BOOKMARK_SECONDS", 0.05)
    task = await watching(server, client, seconds=0.6)
    server.faults.add(Rule(action="freeze_watch", resource="pods"))
    await client.ok("POST", PODS, pod("a"))
    with pytest.raises(TimeoutError):  # no event, no bookmark, no end
        await task


async def test_a_watch_to_come(server: ApiServer, client: Client) -> None:
    server.faults.add(Rule(action="error_watch", resource="pods", code=500))
    (event,) = await client.watch(f"{PODS}?watch=true", 5)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)


async def test_over_http(server: ApiServer, client: Client) -> None:
    (rule,) = await client.ok("POST", FAULTS, {"action": "error", "verb": "list", "code": 500, "count": 1})
    assert rule["count"] == 1
    assert (await client.call("GET", PODS))[0] == 500
    (rule,) = await client.ok("GET", FAULTS)
    assert (rule["count"], rule["hits"]) == (0, 1)
    assert await client.ok("DELETE", FAULTS) == []
    code, answer = await client.call("POST", FAULTS, {"action": "explode"})
    assert code == 400
    assert "explode" in answer["message"]
    journal = await client.ok("GET", "/disttrain-local/journal")
    assert [(entry["verb"], entry["path"], entry["status"]) for entry in journal] == [("list", PODS, 500)]
