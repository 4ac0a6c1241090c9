"""The two API servers that the tests of the API's behaviour run against, each reached through the real kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from disttrain.local.kubeconfig import write_kubeconfig
from disttrain.local.server import ApiServer

REPOSITORY = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).with_name("kubectl")
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """How kubectl ended. `text` is all that it printed."""

    ok: bool
    text: str


@dataclass(frozen=True)
class Api:
    """An API server with the CRD in it."""

    kind: Literal["local", "kube"]
    kubeconfig: Path

    def kubectl(self, *words: str, manifest: Manifest | None = None) -> Answer:
        """Runs kubectl, with a manifest on its standard input if there is one."""
        home = self.kubeconfig.parent  # kubectl keeps its cache of discovery there
        done = subprocess.run(
            [KUBECTL, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={home / 'cache'}", *words],
            input=json.dumps(manifest) if manifest else "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return Answer(done.returncode == 0, done.stdout)

    def must(self, *words: str, manifest: Manifest | None = None) -> str:
        """What kubectl printed; it must succeed."""
        answer = self.kubectl(*words, manifest=manifest)
        assert answer.ok, answer.text
        return answer.text

    def apply(self, manifest: Manifest, *flags: str) -> Answer:
        """`kubectl apply` of one manifest."""
        return self.kubectl("apply", *flags, "-f", "-", manifest=manifest)

    def get(self, *words: str) -> Manifest:
        """One object."""
        found: Manifest = json.loads(self.must("get", *words, "-o", "json"))
        return found

    def install(self, definition: Manifest) -> None:
        """Applies a CRD and waits until it is served."""
        self.must("apply", "-f", "-", manifest=definition)
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        eventually(lambda: self.kubectl("get", "--raw", path).ok)


def eventually(holds: Callable[[], bool]) -> None:
    """Waits until something is so: an API server takes a moment to serve a new or changed CRD.

    A real one's garbage collector looks for new types every 30 s only.
    """
    end = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < end, "not within 90 s"
        time.sleep(0.05)


@contextmanager
def local_server(folder: Path) -> Iterator[Api]:
    """Our own server, in a thread, so that a test may wait for kubectl."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local API server")
    thread.start()

    async def start() -> tuple[ApiServer, str]:
        server = ApiServer(folder / "state", token)
        return server, await server.start()

    try:
        token = secrets.token_urlsafe()
        server, url = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        try:
            yield Api("local", write_kubeconfig(folder / "kubeconfig", url, token))
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def kube_tool(environment: Mapping[str, str] = os.environ) -> Path:
    """`cluster.py`: in the folder that DISTTRAIN_KUBE names, else beside the repository. It need not exist."""
    named = environment.get("DISTTRAIN_KUBE")
    return (Path(named) if named else REPOSITORY.parent / "shared" / "kube") / "cluster.py"


@contextmanager
def kube_server(folder: Path) -> Iterator[Api]:
    """A real kube-apiserver with etcd, and no nodes."""
    environment = os.environ | {"DISTTRAIN_CLUSTER": str(folder / "cluster")}

    def tool(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, kube_tool(), *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"cluster.py {' '.join(words)} failed: {done.stdout}{done.stderr}")

    try:
        tool("up", "--nodes", "0")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes((folder / "cluster" / "kubeconfig" / "admin").read_bytes())
        yield Api("kube", kubeconfig)
    finally:
        tool("down")
