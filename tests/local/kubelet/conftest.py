"""A one-machine API and a kubelet on it, and what tests ask of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from disttrain.local.client import ApiError, Client
from disttrain.local.kubelet.kubelet import Kubelet, Options
from disttrain.local.server import ApiServer

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


class Cluster:
    """An API server with a kubelet, as the tests drive them."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.options = folder, options
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.api = await self._stack.enter_async_context(ApiServer(self.folder, "secret"))
        self.client = await self._stack.enter_async_context(Client(self.api.url, "secret"))
        await self.start_kubelet()
        return self

    async def start_kubelet(self) -> None:
        """Start a new one; an earlier one must have been stopped."""
        self.kubelet = Kubelet(self.api.url, "secret", self.folder, self.options)
        await self.kubelet.start()

    async def __aexit__(self, *_: object) -> None:
        for pod in (await self.client.get("/api/v1/pods"))["items"]:
            await self.delete(pod["metadata"]["name"], grace=0)
        await self.kubelet.stop()
        await self._stack.aclose()

    async def run(
        self, name: str, *command: str, spec: Json | None = None, labels: Json | None = None, **container: Any
    ) -> Json:
        """Create a pod `name` with a container `main`; `spec` adds to its spec, keywords to its container."""
        main = {"name": "main", "image": "none", "command": list(command)} | container
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"restartPolicy": "Never", "containers": [main]} | (spec or {}),
        }
        return await self.client.post(PODS, manifest)

    async def pod(self, name: str) -> Json | None:
        try:
            return await self.client.get(f"{PODS}/{name}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def delete(self, name: str, grace: int | None = None) -> None:
        try:
            await self.client.delete(f"{PODS}/{name}", {} if grace is None else {"gracePeriodSeconds": grace})
        except ApiError as error:
            if error.code != 404:
                raise

    async def until(self, name: str, test: Callable[[Json], object], seconds: float = 10) -> Json:
        """The pod, once `test` holds for it."""
        seen: list[Json | None] = [None]

        async def holds() -> bool:
            seen[0] = await self.pod(name)
            return seen[0] is not None and bool(test(seen[0]))

        try:
            await wait_for(holds, seconds)
        except TimeoutError:
            pytest.fail(f"after {seconds} s pod {name} is {seen[0]}")
        assert seen[0] is not None
        return seen[0]

    async def over(self, name: str, seconds: float = 10) -> Json:
        """The pod, once it has ended."""
        return await self.until(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"), seconds)

    async def running(self, name: str) -> Json:
        return await self.until(name, lambda pod: pod["status"]["phase"] == "Running")

    async def gone(self, name: str, seconds: float = 10) -> None:
        async def absent() -> bool:
            return await self.pod(name) is None

        await wait_for(absent, seconds)

    def log(self, name: str, container: str = "main", *, previous: bool = False) -> str:
        """The log of the newest pod of that name, "" if there is none yet."""
        suffix = ".previous.log" if previous else ".log"
        files = sorted(
            (self.folder / "pods").glob(f"default_{name}_*/{container}{suffix}"), key=lambda f: f.stat().st_mtime
        )
        return files[-1].read_text() if files else ""

    async def logged(self, name: str, words: str, seconds: float = 10, container: str = "main") -> str:
        """The log, once it contains `words`."""

        async def contains() -> bool:
            return words in self.log(name, container)

        try:
            await wait_for(contains, seconds)
        except TimeoutError:
            pytest.fail(f"after {seconds} s the log of {name} is {self.log(name, container)!r}")
        return self.log(name, container)


async def wait_for(test: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Returns when `test` holds; raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await test():  # noqa: ASYNC110 - it looks from outside, as a user would
            await asyncio.sleep(0.005)


def state(pod: Json, container: str = "main") -> Json:
    """The state of a container of a pod, empty while it has none."""
    statuses = [*pod["status"].get("containerStatuses", []), *pod["status"].get("initContainerStatuses", [])]
    return next((s["state"] for s in statuses if s["name"] == container), {})


@pytest.fixture
def options() -> Options:
    return Options(backoff=0.1)


@pytest.fixture
async def cluster(tmp_path: Path, options: Options) -> AsyncIterator[Cluster]:
    """With all the isolation that this machine allows."""
    async with Cluster(tmp_path, options) as one:
        yield one


@pytest.fixture
async def mapped(tmp_path: Path, options: Options) -> AsyncIterator[Cluster]:
    """Without namespaces."""
    async with Cluster(tmp_path, replace(options, isolation="mapping")) as one:
        yield one


@pytest.fixture(params=["auto", "mapping"])
async def either(request: pytest.FixtureRequest, tmp_path: Path, options: Options) -> AsyncIterator[Cluster]:
    """With and without namespaces: what must be the same."""
    async with Cluster(tmp_path, replace(options, isolation=request.param)) as one:
        yield one


def marked(word: str) -> list[int]:
    """Living processes with `word` among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            continue
        if alive and word.encode() in arguments:
            found.append(int(folder.name))
    return found


async def left(word: str, count: int, seconds: float = 5) -> None:
    """Returns when `count` processes have `word` among their arguments."""

    async def counted() -> bool:
        return len(marked(word)) == count

    try:
        await wait_for(counted, seconds)
    except TimeoutError:
        pytest.fail(f"after {seconds} s there are {marked(word)} with {word}")
