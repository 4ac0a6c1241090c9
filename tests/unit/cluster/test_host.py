"""kopf against a small API server: what it tells us of jobs, and that its end is not ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from cluster.fakes import job, until

from disttrain.api.types import Job
from disttrain.cluster import host as module
from disttrain.cluster.host import KopfHost
from disttrain.cluster.jobs import AnyJob, BrokenJob
from disttrain.cluster.login import Credentials, Login
from disttrain.cluster.transport import Transport

GROUP_VERSION = "/apis/disttrain.dev/v1alpha1"
VERBS = ["get", "list", "watch", "patch"]
RESOURCE = {
    "name": "disttrainjobs",
    "singularName": "disttrainjob",
    "kind": "DistTrainJob",
    "namespaced": True,
    "verbs": VERBS,
}
NAMESPACES = {
    "name": "namespaces",
    "singularName": "namespace",
    "kind": "Namespace",
    "namespaced": False,
    "verbs": VERBS,
}
ERROR = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}}


class Server:
    """Just enough for kopf to list and watch jobs. Each watch gives the next of `watches`, the last one stays open."""

    def __init__(self, *watches: list[dict[str, Any]]) -> None:
        self.known = self.listed = True
        self.lists = 0
        self.asked: set[str] = set()
        self.items = [job()]
        self.watches = list(watches)
        self.closing = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.add(request.method)
        if request.path == f"{GROUP_VERSION}/disttrainjobs":
            return await (self.watch(request) if "watch" in request.query else self.list(request))
        if request.path.startswith(GROUP_VERSION):
            if not self.known:
                return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
            return web.json_response({"groupVersion": "disttrain.dev/v1alpha1", "resources": [RESOURCE]})
        if request.path == "/apis":
            version = {"groupVersion": "disttrain.dev/v1alpha1", "version": "v1alpha1"}
            group = {"name": "disttrain.dev", "versions": [version], "preferredVersion": version}
            return web.json_response({"groups": [group] if self.listed else []})
        return web.json_response({"versions": ["v1"], "resources": [NAMESPACES]})

    async def list(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        assert request.query["limit"] == "500"
        return web.json_response({"metadata": {"resourceVersion": "50"}, "items": self.items})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for event in self.watches.pop(0) if self.watches else []:
            await answer.write(json.dumps(event).encode() + b"\n")
        if not self.watches:
            await self.closing.wait()
        return answer


class World:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[tuple[str | None, AnyJob]] = []
        self.starts = 0
        self.host: KopfHost

    def take(self, kind: str | None, job: AnyJob) -> None:
        self.seen.append((kind, job))

    def started(self) -> None:
        self.starts += 1


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[World]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = Login(Credentials(server=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    world = World(server)
    async with Transport(made) as api:
        world.host = KopfHost(made, api, world.take, started=world.started)
        task = asyncio.create_task(world.host.run())
        try:
            yield world
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            server.closing.set()
            await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_BACKOFF", 0.01)
    monkeypatch.setattr(module, "CRD_SECONDS", 0.01)


async def test_lists_and_events_are_told_and_nothing_is_written() -> None:
    changed = job()
    changed["spec"]["worker"] = {"replicas": "three"}
    watch = [{"type": "MODIFIED", "object": changed}, {"type": "DELETED", "object": job()}]
    async with running(Server(watch)) as world:
        await until(lambda: len(world.seen) == 3)
        assert [kind for kind, _ in world.seen] == [None, "MODIFIED", "DELETED"]
        first, broken, _ = (one for _, one in world.seen)
        assert isinstance(first, Job)
        assert first.key == ("team", "digits")
        assert isinstance(broken, BrokenJob)
        assert "$.spec.worker.replicas" in broken.words
        assert world.server.asked == {"GET"}


async def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, whose user is a number."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", nameless)
    await test_lists_and_events_are_told_and_nothing_is_written()


async def test_an_error_event_ends_kopf_and_not_us(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Server([ERROR], [])) as world:
        await until(lambda: world.server.lists == 2)
        await until(lambda: len(world.seen) >= 2)
        assert world.starts == 2
        assert "leader changed" in caplog.text


async def test_it_can_be_renewed() -> None:
    async with running(Server()) as world:
        await until(lambda: world.seen)
        world.host.restart()
        await until(lambda: world.server.lists == 2)
        assert world.starts == 2


@pytest.mark.parametrize("late", ["known", "listed"])
async def test_waits_for_the_crd(late: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    setattr(server, late, False)
    async with running(server) as world:
        await until(lambda: "waiting for the CRD disttrainjobs.disttrain.dev" in caplog.text)
        assert not world.server.lists
        setattr(server, late, True)
        await until(lambda: world.seen)


def test_kopf_comes_without_the_kubernetes_package() -> None:

    script = (
        "import sys; from disttrain.cluster.host import import_kopf; import_kopf(); print('kubernetes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
