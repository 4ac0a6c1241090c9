"""Who gets in."""

from __future__ import annotations

import io
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from disttrain.local.kubeconfig import TOKEN_HEADER, write_kubeconfig
from disttrain.local.server import ApiServer
from disttrain.local.server.app import LARGEST_BODY
from local.server.conftest import PODS, TOKEN


async def status(server: ApiServer, path: str, **headers: str) -> int:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.get(server.url + path, headers=given) as response:
        return response.status


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
async def test_open_to_all_of_the_machine(server: ApiServer, path: str) -> None:
    assert await status(server, path) == 200


@pytest.mark.parametrize(
    "path", [PODS, "/api", "/apis", "/openapi/v3", "/disttrain-local/faults", "/disttrain-local/journal", "/anything"]
)
async def test_the_rest_wants_the_token(server: ApiServer, path: str) -> None:
    assert await status(server, path) == 401
    assert await status(server, path, Authorization="Bearer wrong") == 401
    assert await status(server, path, Authorization=f"Basic {TOKEN}") == 401
    assert await status(server, path, Authorization=f"Bearer {TOKEN}") in (200, 404)


async def test_the_refusal_is_a_status(server: ApiServer) -> None:
    async with aiohttp.ClientSession() as session, session.get(server.url + PODS) as response:
        answer = await response.json()
    assert (answer["kind"], answer["reason"], answer["code"]) == ("Status", "Unauthorized", 401)


async def test_the_way_of_kubectl(server: ApiServer) -> None:
    assert await status(server, PODS, **{TOKEN_HEADER: TOKEN}) == 200
    assert await status(server, PODS, **{TOKEN_HEADER: "wrong"}) == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"])
async def test_a_name_that_leads_here_from_elsewhere(server: ApiServer, host: str) -> None:
    assert await status(server, PODS, Host=host, Authorization=f"Bearer {TOKEN}") == 403
    assert await status(server, "/version", Host=host) == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:99"])
async def test_names_of_loopback(server: ApiServer, host: str) -> None:
    assert await status(server, PODS, Host=host, Authorization=f"Bearer {TOKEN}") == 200


async def test_a_web_page(server: ApiServer) -> None:
    assert await status(server, PODS, Origin="http://127.0.0.1", Authorization=f"Bearer {TOKEN}") == 403


async def test_loopback_only(server: ApiServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(("extra", "expected"), [(-1, 400), (1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_are_bounded(server: ApiServer, extra: int, expected: int, chunked: bool) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = io.BytesIO(b" " * (LARGEST_BODY + extra))

    async def chunks() -> AsyncIterator[bytes]:
        while chunk := body.read(1 << 20):
            yield chunk

    data = chunks() if chunked else body
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(server.url + PODS, data=data) as response,
    ):
        assert response.status == expected


def test_the_kubeconfig_is_its_owner_s(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "deep" / "config", "http://127.0.0.1:1", "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_kubeconfig(path, "http://127.0.0.1:2", "other")  # a rewrite is as private, and leaves nothing beside it
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config"]
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:2"
    assert config["users"][0]["user"]["token"] == "other"
