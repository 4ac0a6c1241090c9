"""A server in the test's own event loop, a client of it, and kubectl where a test wants the real one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from disttrain.local.kubeconfig import write_kubeconfig
from disttrain.local.server import ApiServer

TOKEN = "the-token-of-the-tests"
KUBECTL = Path(sys.executable).with_name("kubectl")
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Client:
    """Plain requests with the token. `call` returns the code and the decoded body."""

    session: aiohttp.ClientSession
    url: str

    async def call(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        given = {"Content-Type": media, **{key.replace("_", "-"): value for key, value in headers.items()}}
        async with self.session.request(method, self.url + path, data=data, headers=given) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def ok(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str
    ) -> Any:
        """The body of a call that must succeed."""
        code, answer = await self.call(method, path, body, media, **headers)
        assert code < 300, answer
        return answer

    async def merge(self, path: str, patch: Any) -> tuple[int, Any]:
        return await self.call("PATCH", path, patch, "application/merge-patch+json")

    async def watch(self, path: str, wanted: int, seconds: float = 10.0, **headers: str) -> list[dict[str, Any]]:
        """The first events of a watch; fewer than `wanted` if the server ends it before."""
        events: list[dict[str, Any]] = []
        timeout = aiohttp.ClientTimeout(total=seconds)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        async with self.session.get(self.url + path, timeout=timeout, headers=given) as response:
            assert response.status == 200, await response.text()
            while len(events) < wanted:
                line = await response.content.readline()
                if not line:
                    break
                events.append(json.loads(line))
        return events


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path / "cluster", TOKEN) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield Client(session, server.url)


class Kubectl:
    """The real kubectl, with a cache of its own."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": "/usr/bin:/bin"}

    async def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run it; returns what it printed, errors included. `code` is the exit status that it must have."""
        process = await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, env=self._environment,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == code, output.decode()
        return output.decode()


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(write_kubeconfig(tmp_path / "kubeconfig", server.url, TOKEN), tmp_path)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    """Ask until it holds: of what happens in the background of a server there is nothing else to wait for."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A small pod."""
    containers = [{"name": "main", "image": "none", "command": ["sleep", "1"]}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def widget_crd() -> dict[str, Any]:
    """A CRD that uses what a CRD can: defaults at depth, lists by key, rules, printer columns, both subresources."""
    crd: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("widget-crd.yaml").read_text())
    return crd


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": "small", **spec},
    }


@pytest.fixture
async def widgets(client: Client) -> Client:
    """A client of a server that has the widgets' type."""
    await client.ok("POST", CRDS, widget_crd())
    return client
