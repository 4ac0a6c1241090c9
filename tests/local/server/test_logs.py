"""Logs of containers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.server import ApiServer
from disttrain.local.server.logs import start_of_tail
from local.server.conftest import PODS, Client, Kubectl, pod

LOG = f"{PODS}/a/log"


async def started(
    server: ApiServer, client: Client, tmp_path: Path, text: str = "one\ntwo\nthree\n", **spec: Any
) -> Path:
    """A pod on a node, with a log."""
    made = await client.ok("POST", PODS, pod("a", restartPolicy="Never", **spec))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "here"}}
    await client.ok("POST", f"{PODS}/a/binding", binding)
    folder = tmp_path / "cluster" / "pods" / f"default_a_{made['metadata']['uid']}"
    folder.mkdir(parents=True)
    file = folder / "main.log"
    file.write_text(text)
    await state(client, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    return file


async def state(client: Client, to: dict[str, Any], phase: str = "Running") -> None:
    status = {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "", "state": to}
    await client.merge(f"{PODS}/a/status", {"status": {"phase": phase, "containerStatuses": [status]}})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "one\ntwo\nthree\n"),
        ("?container=main", "one\ntwo\nthree\n"),
        ("?tailLines=2", "two\nthree\n"),
        ("?tailLines=0", ""),
        ("?tailLines=99", "one\ntwo\nthree\n"),
        ("?limitBytes=5", "one\nt"),
        ("?tailLines=2&limitBytes=3", "two"),
    ],
)
async def test_read(server: ApiServer, client: Client, tmp_path: Path, query: str, expected: str) -> None:
    await started(server, client, tmp_path)
    assert await client.ok("GET", LOG + query) == expected


async def test_follow_to_the_end_of_the_container(server: ApiServer, client: Client, tmp_path: Path) -> None:
    file = await started(server, client, tmp_path)
    async with client.session.get(f"{client.url}{LOG}?follow=true&tailLines=1") as response:
        assert await response.content.readline() == b"three\n"
        with file.open("a") as log:
            log.write("four\n")
        assert await response.content.readline() == b"four\n"
        with file.open("a") as log:
            log.write("last\n")
        await state(client, {"terminated": {"exitCode": 0}}, "Succeeded")
        assert await response.content.read() == b"last\n"


async def test_follow_ends_with_the_pod(server: ApiServer, client: Client, tmp_path: Path) -> None:
    await started(server, client, tmp_path)
    async with client.session.get(f"{client.url}{LOG}?follow=true") as response:
        assert await response.content.readline() == b"one\n"
        await client.ok("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        assert await asyncio.wait_for(response.content.read(), 10) == b"two\nthree\n"


async def test_the_run_before(server: ApiServer, client: Client, tmp_path: Path) -> None:
    file = await started(server, client, tmp_path)
    code, answer = await client.call("GET", f"{LOG}?previous=true")
    assert (code, answer["message"]) == (400, 'previous terminated container "main" in pod "a" not found')
    file.with_name("main.previous.log").write_text("before\n")
    assert await client.ok("GET", f"{LOG}?previous=true") == "before\n"


async def test_what_cannot_be_read(server: ApiServer, client: Client, tmp_path: Path) -> None:
    assert (await client.call("GET", LOG))[0] == 404
    containers = [{"name": "main", "image": "x"}, {"name": "side", "image": "x"}]
    file = await started(server, client, tmp_path, containers=containers)
    code, answer = await client.call("GET", LOG)
    assert (code, answer["message"]) == (
        400,
        "a container name must be specified for pod a, choose one of: [main side]",
    )
    code, answer = await client.call("GET", f"{LOG}?container=none")
    assert (code, answer["message"]) == (400, "container none is not valid for pod a")
    code, answer = await client.call("GET", f"{LOG}?container=side")
    assert (code, answer["message"]) == (400, 'container "side" in pod "a" is waiting to start: ContainerCreating')
    code, answer = await client.call("GET", f"{LOG}?container=main&tailLines=-1")
    assert (code, answer["details"]["kind"]) == (422, "PodLogOptions")
    code, answer = await client.call("GET", f"{LOG}?container=main&timestamps=true")
    assert code == 501
    assert "use tailLines" in answer["message"]
    file.unlink()


async def test_a_pod_without_a_node_has_none(client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    assert await client.call("GET", LOG) == (204, "")


async def test_kubectl_logs(server: ApiServer, client: Client, tmp_path: Path, kubectl: Kubectl) -> None:
    await started(server, client, tmp_path)
    assert await kubectl("logs", "a", "--tail=1") == "three\n"
    following = asyncio.create_task(kubectl("logs", "-f", "a"))
    await state(client, {"terminated": {"exitCode": 0}}, "Succeeded")
    assert await following == "one\ntwo\nthree\n"


@pytest.mark.parametrize("lines", [0, 1, 2, 500, 20_000, 30_000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_tails_of_long_files(tmp_path: Path, lines: int, end: str) -> None:
    file = tmp_path / "log"
    text = "\n".join(f"line {index} " + "x" * (index % 50) for index in range(20_000)) + end
    file.write_text(text)
    expected = "".join(text.splitlines(keepends=True)[-lines:]) if lines else ""
    assert file.read_bytes()[start_of_tail(file, lines) :].decode() == expected


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "a"])
def test_tails_of_short_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "log"
    file.write_text(text)
    for lines in (1, 2, 3):
        expected = "".join(text.splitlines(keepends=True)[-lines:])
        assert file.read_bytes()[start_of_tail(file, lines) :].decode() == expected
