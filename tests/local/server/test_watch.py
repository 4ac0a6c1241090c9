"""Watches: what they begin with, what they see, how they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from disttrain.local.server import ApiServer, watch
from local.server.conftest import PODS, TOKEN, Client, pod

PODS_WATCH = f"{PODS}?watch=true&timeoutSeconds=2"


def labelled(name: str, **labels: str) -> dict[str, Any]:
    body = pod(name)
    body["metadata"]["labels"] = labels
    return body


def brief(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def version(client: Client) -> str:
    listed = await client.ok("GET", PODS)
    return str(listed["metadata"]["resourceVersion"])


async def test_changes_since_a_version(client: Client) -> None:
    await client.ok("POST", PODS, pod("before"))
    start = await version(client)
    await client.ok("POST", PODS, pod("a"))
    await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.ok("DELETE", f"{PODS}/before")
    events = await client.watch(f"{PODS_WATCH}&resourceVersion={start}", 3)
    assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "before")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[0] > int(start)


async def test_live(client: Client) -> None:
    start = await version(client)
    watching = asyncio.create_task(client.watch(f"{PODS_WATCH}&resourceVersion={start}", 2))
    await client.ok("POST", PODS, pod("a"))
    await client.ok("DELETE", f"{PODS}/a")
    assert brief(await watching) == [("ADDED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("since", ["", "&resourceVersion=0"])
async def test_without_a_version_all_that_is_there_comes_first(client: Client, since: str) -> None:
    await client.ok("POST", PODS, pod("a"))
    assert brief(await client.watch(PODS_WATCH + since, 1)) == [("ADDED", "a")]


async def test_other_namespaces_are_not_seen(client: Client) -> None:
    await client.ok(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    )
    start = await version(client)
    await client.ok("POST", "/api/v1/namespaces/other/pods", pod("there"))
    await client.ok("POST", PODS, pod("here"))
    assert brief(await client.watch(f"{PODS_WATCH}&resourceVersion={start}", 1)) == [("ADDED", "here")]
    everywhere = await client.watch(f"/api/v1/pods?watch=true&timeoutSeconds=2&resourceVersion={start}", 2)
    assert brief(everywhere) == [("ADDED", "there"), ("ADDED", "here")]


async def test_what_leaves_a_selection_is_deleted_for_its_watcher(client: Client) -> None:
    start = await version(client)
    await client.ok("POST", PODS, labelled("a", colour="red"))
    await client.ok("POST", PODS, labelled("b", colour="blue"))
    await client.merge(f"{PODS}/a", {"metadata": {"labels": {"colour": "blue"}}})
    await client.merge(f"{PODS}/b", {"metadata": {"labels": {"colour": "red"}}})
    await client.merge(f"{PODS}/b", {"metadata": {"labels": {"size": "big"}}})
    await client.ok("DELETE", f"{PODS}/b")
    events = await client.watch(f"{PODS_WATCH}&resourceVersion={start}&labelSelector=colour%3Dred", 5)
    assert brief(events) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert events[1]["object"]["metadata"]["labels"] == {"colour": "red"}  # as it was when it was selected
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_field_selectors(client: Client) -> None:
    start = await version(client)
    await client.ok("POST", PODS, pod("a"))
    await client.ok("POST", PODS, pod("b"))
    await client.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}})
    query = f"{PODS_WATCH}&resourceVersion={start}&fieldSelector=status.phase%3DPending,metadata.name%3Da"
    assert brief(await client.watch(query, 2)) == [("ADDED", "a"), ("DELETED", "a")]


async def test_the_initial_events_end_with_a_bookmark(client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    await client.ok("POST", PODS, pod("b"))
    query = f"{PODS_WATCH}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    events = await client.watch(query, 3)
    assert brief(events[:2]) == [("ADDED", "a"), ("ADDED", "b")]
    assert events[2]["type"] == "BOOKMARK"
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[2]["object"]["metadata"]["resourceVersion"] == await version(client)


async def test_bookmarks_move_a_quiet_watch_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.05)
    start = await version(client)
    await client.ok(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
    )
    (event,) = await client.watch(f"{PODS_WATCH}&resourceVersion={start}&allowWatchBookmarks=true", 1)
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(start)
    assert await client.watch(f"{PODS}?watch=true&timeoutSeconds=1&resourceVersion={start}", 1) == []  # none unasked


async def test_a_watch_ends_in_time(client: Client) -> None:
    began = asyncio.get_running_loop().time()
    assert await client.watch(f"{PODS}?watch=true&timeoutSeconds=1&resourceVersion={await version(client)}", 1) == []
    assert 0.9 < asyncio.get_running_loop().time() - began < 8


@contextlib.asynccontextmanager
async def forgetful(path: Path) -> AsyncIterator[Client]:
    async with (
        ApiServer(path, TOKEN, log_length=3) as server,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
    ):
        yield Client(session, server.url)


async def test_a_version_that_is_too_old(tmp_path: Path) -> None:
    async with forgetful(tmp_path) as client:
        start = await version(client)
        for index in range(5):
            await client.ok("POST", PODS, pod(f"p{index}"))
        (event,) = await client.watch(f"{PODS_WATCH}&resourceVersion={start}", 2)
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert "too old resource version" in event["object"]["message"]
        listed = await client.ok("GET", PODS)
        third = listed["items"][2]["metadata"]["resourceVersion"]
        assert brief(await client.watch(f"{PODS_WATCH}&resourceVersion={third}", 2)) == [
            ("ADDED", "p3"),
            ("ADDED", "p4"),
        ]
        page = await client.ok("GET", f"{PODS}?limit=1")
        for index in range(5):
            await client.ok("POST", PODS, pod(f"q{index}"))
        code, answer = await client.call("GET", f"{PODS}?limit=1&continue={page['metadata']['continue']}")
        assert (code, answer["reason"]) == (410, "Expired")


async def test_a_version_of_the_future(client: Client) -> None:
    (event,) = await client.watch(f"{PODS_WATCH}&resourceVersion=99999", 2)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    code, _ = await client.call("GET", f"{PODS_WATCH}&resourceVersion=abc")
    assert code == 400


async def test_tables_and_metadata(client: Client) -> None:
    start = await version(client)
    await client.ok("POST", PODS, pod("a"))
    await client.ok("POST", PODS, pod("b"))
    path = f"{PODS_WATCH}&resourceVersion={start}"
    events = await client.watch(path, 2, Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert [event["object"]["kind"] for event in events] == ["Table", "Table"]
    assert events[0]["object"]["columnDefinitions"][0]["name"] == "Name"
    assert events[1]["object"]["columnDefinitions"] == []
    assert [event["object"]["rows"][0]["cells"][0] for event in events] == ["a", "b"]
    events = await client.watch(path, 1, Accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert set(events[0]["object"]) == {"kind", "apiVersion", "metadata"}


async def test_nobody_is_told_twice_or_never(client: Client) -> None:
    """Watches that begin while objects are made see each of them once."""

    async def see() -> list[str]:
        listed = await client.ok("GET", PODS)
        names = [item["metadata"]["name"] for item in listed["items"]]
        start = listed["metadata"]["resourceVersion"]
        events = await client.watch(f"{PODS}?watch=true&timeoutSeconds=10&resourceVersion={start}", 60 - len(names))
        return names + [event["object"]["metadata"]["name"] for event in events]

    watchers = []
    for index in range(60):
        await client.ok("POST", PODS, pod(f"p{index:02}"))
        if index % 10 == 5:
            watchers.append(asyncio.create_task(see()))
    for seen in await asyncio.gather(*watchers):
        assert sorted(seen) == [f"p{index:02}" for index in range(60)]
