"""A server that stops, or is killed, and comes again."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import aiohttp

from disttrain.local.server import ApiServer
from disttrain.local.server.resources import PODS as POD_TYPE
from disttrain.local.server.store import Store
from local.server.conftest import CRDS, PODS, TOKEN, WIDGETS, Client, eventually, pod, widget, widget_crd

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SERVE = """
import asyncio, sys
from pathlib import Path
from disttrain.local.server import ApiServer

async def main():
    server = ApiServer(Path(sys.argv[1]), sys.argv[2])
    print(await server.start(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_nothing_is_lost(tmp_path: Path) -> None:
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        await client.ok("POST", CRDS, widget_crd())
        made = await client.ok("POST", WIDGETS, widget())
        await client.ok("POST", PODS, pod("gone"))
        await client.ok("DELETE", f"{PODS}/gone")
        last = server.store.version
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        assert await client.ok("GET", f"{WIDGETS}/w") == made
        assert (await client.call("GET", f"{PODS}/gone"))[0] == 404
        assert server.store.version == last
        changed = await client.ok("POST", PODS, pod("a"))
        assert int(changed["metadata"]["resourceVersion"]) == last + 1
        assert (await client.call("POST", WIDGETS, widget("v", replicas=0)))[0] == 422  # its schema and rules too


async def test_a_watch_across_a_restart_misses_nothing_in_silence(tmp_path: Path) -> None:
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        await client.ok("POST", PODS, pod("a"))
        before = server.store.version
        await client.ok("DELETE", f"{PODS}/a")  # the last change is a deletion: no object has its version
        after = server.store.version
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        (event,) = await client.watch(f"{PODS}?watch=true&timeoutSeconds=2&resourceVersion={before}", 2)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        await client.ok("POST", PODS, pod("b"))
        (event,) = await client.watch(f"{PODS}?watch=true&timeoutSeconds=2&resourceVersion={after}", 1)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")


async def test_what_was_under_way_goes_on(tmp_path: Path) -> None:
    """An owner that went just before the end: what it owned is collected by the next server."""
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        await client.ok("POST", CRDS, widget_crd())
        owner = await client.ok("POST", WIDGETS, widget())
        body = pod("a")
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": "example.dev/v1", "kind": "Widget", "name": "w", "uid": owner["metadata"]["uid"]}
        ]
        await client.ok("POST", PODS, body)
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        database.execute("DELETE FROM objects WHERE uid = ?", (owner["metadata"]["uid"],))
    database.close()
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)

        async def gone() -> bool:
            return (await client.call("GET", f"{PODS}/a"))[0] == 404

        await eventually(gone)


async def test_sigkill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        tmp_path,
        TOKEN,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ""},
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    answered: dict[str, Any] = {}

    async def create(session: aiohttp.ClientSession, worker: int) -> None:
        for index in range(10_000):
            name = f"p-{worker}-{index}"
            try:
                answered[name] = await Client(session, url).ok("POST", PODS, pod(name))
            except aiohttp.ClientError:
                return

    async with aiohttp.ClientSession(headers=HEADERS) as session:
        workers = [asyncio.create_task(create(session, worker)) for worker in range(8)]

        async def enough() -> bool:
            return len(answered) > 200

        await eventually(enough, 60)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await asyncio.gather(*workers)
    async with ApiServer(tmp_path, TOKEN) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        listed = {
            item["metadata"]["name"]: item for item in (await Client(session, server.url).ok("GET", PODS))["items"]
        }
    assert {name: listed.get(name) for name in answered} == answered
    assert server.store.version >= max(int(made["metadata"]["resourceVersion"]) for made in answered.values())


def test_the_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "cluster", TOKEN)
    assert (tmp_path / "cluster").stat().st_mode & 0o777 == 0o700
    server.store.close()


def test_a_change_is_not_committed_before_it_is_flushed(tmp_path: Path) -> None:
    """What `flush` promises: until then another reader of the file sees nothing of the change, after it all."""
    store = Store(tmp_path / "state.sqlite")
    store.load(POD_TYPE)
    obj = pod("a")
    obj["metadata"] |= {"uid": "u", "namespace": "default"}
    store.put(POD_TYPE, obj)
    other = sqlite3.connect(tmp_path / "state.sqlite")
    assert other.execute("SELECT count(*) FROM objects").fetchone() == (0,)
    assert store.pending
    store.flush()
    assert other.execute("SELECT count(*) FROM objects").fetchone() == (1,)
    other.close()
    store.close()
