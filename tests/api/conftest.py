"""Every test that asks for `api` runs against our own server and against a real kube-apiserver."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from api.loop import Client, Running, eventually, found
from api.servers import Api, kube_server, kube_tool, local_server
from disttrain.api import crd
from disttrain.cluster.login import login
from disttrain.cluster.transport import Transport


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with local_server(tmp_path_factory.mktemp("local")) as server:
        yield server


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    if not kube_tool().exists():
        missing = f"no real kube-apiserver at hand: {kube_tool()} is missing (DISTTRAIN_KUBE names its folder)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with kube_server(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture(scope="session", params=["local", pytest.param("kube", marks=pytest.mark.kube)])
def bare_api(request: pytest.FixtureRequest) -> Api:
    """An API server as it comes."""
    server: Api = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="session")
def api(bare_api: Api) -> Api:
    """An API server that knows DistTrainJob."""
    bare_api.install(crd.definition())
    return bare_api


@pytest_asyncio.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    """Calls in a namespace of its own."""
    async with Transport(login(str(api.kubeconfig))) as transport:
        namespace = f"loop-{secrets.token_hex(4)}"
        made = Client(transport, namespace, str(api.kubeconfig))
        await made.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        if api.kind == "kube":
            await eventually(lambda: found(made, f"{made.core}/serviceaccounts/default"))
        yield made
        if await found(made, f"/api/v1/namespaces/{namespace}"):
            await made.delete(f"/api/v1/namespaces/{namespace}")


@pytest_asyncio.fixture
async def operator(client: Client) -> AsyncIterator[Running]:
    """An operator at work in that namespace."""
    running = Running(client)
    yield running
    await running.end()
