"""The one-machine cluster: an API server and a kubelet, in this process or as a daemon.

In this process, for tests and `disttrain run`:

    async with LocalCluster(folder) as cluster:
        ...  # cluster.url, cluster.token, cluster.kubeconfig

As a daemon, for `disttrain local`: `up()`, `status()` and `down()`, each of which takes the state folder.

The state folder (mode 0700) is all there is of a cluster: `state.sqlite` (the API's objects), `token`, `kubeconfig`
(both 0600), `pods/` (logs, also of pods that are gone), `volumes/` (persistent volume claims), and of a daemon
`daemon.json` and `daemon.log`. One process at a time has it, by a lock on `lock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from disttrain.local import state as state_folder
from disttrain.local.kubeconfig import write_kubeconfig
from disttrain.local.kubelet.kubelet import Kubelet
from disttrain.local.kubelet.node import Options
from disttrain.local.server import ApiServer
from disttrain.local.state import ClusterError, default_state

_START_SECONDS = 30.0


class LocalCluster:
    """The cluster in this process, an async context manager: up at entry, and at exit every pod stopped gracefully.

    Attributes once it is up: `url`, `token`, `kubeconfig` (a file), `api`, `kubelet`.
    Raises ClusterError if another process has the folder.
    """

    def __init__(self, directory: Path, options: Options | None = None, *, port: int = 0) -> None:
        self.directory = directory
        self.options = options or Options()
        self.kubeconfig = directory / "kubeconfig"
        self._port = port
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        state_folder.prepare(self.directory)
        try:
            self._stack.enter_context(state_folder.owned(self.directory))
            self.token = state_folder.token(self.directory)
            self.api = ApiServer(self.directory, self.token)
            self._stack.push_async_callback(self.api.stop)
            try:
                self.url = await self.api.start(self._port)
            except OSError:
                if not self._port:
                    raise
                self.url = await self.api.start()  # another process has the port by now
            self.kubelet = Kubelet(self.url, self.token, self.directory, self.options)
            await self._stack.enter_async_context(self.kubelet)
            write_kubeconfig(self.kubeconfig, self.url, self.token)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL to every pod: cuts short the grace that pods get at exit, for a second Ctrl-C."""
        self.kubelet.kill()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


@dataclass(frozen=True)
class Status:
    """A daemon, or its absence."""

    state: Path
    running: bool
    pid: int | None = None
    url: str = ""
    kubeconfig: Path | None = None
    isolation: str = ""
    """`namespaces`, or why pods run without them."""
    pods: dict[str, int] = field(default_factory=dict)
    """Phase -> how many pods are in it."""


def up(
    state: Path | None = None,
    options: Options | None = None,
    commands: Sequence[Sequence[str]] = (),
    *,
    port: int = 0,
    timeout: float = _START_SECONDS,
) -> Status:
    """Start the daemon, unless it runs, and wait until it is ready.

    `commands` run beside it, are started again if they end, and end with it; their output goes to `<state>/<n>.log`,
    n from 0. In their words `{kubeconfig}` and `{pid}` stand for the cluster's kubeconfig and the daemon's process.
    `port` 0: the one of last time if it is free. Of two `up` at once one starts it and both return. Raises
    ClusterError with the daemon's words.
    """
    folder = state or default_state()
    state_folder.prepare(folder)
    with (folder / "up.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (now := status(folder)).running:
            _start(folder, options or Options(), commands, port, timeout)
            now = status(folder)
    return now


def status(state: Path | None = None) -> Status:
    """What there is now. Quick, and starts nothing."""
    folder = state or default_state()
    try:
        daemon = json.loads((folder / "daemon.json").read_text())
    except (FileNotFoundError, ValueError):
        return Status(folder, running=False)
    if state_folder.owner(folder) != daemon["pid"]:  # an old file: nobody has the folder, or somebody who is no daemon
        return Status(folder, running=False)
    return Status(
        folder,
        running=True,
        pid=daemon["pid"],
        url=daemon["url"],
        kubeconfig=folder / "kubeconfig",
        isolation=daemon["isolation"],
        pods=_count_pods(daemon["url"], state_folder.token(folder)),
    )


def down(state: Path | None = None, *, timeout: float = 60.0) -> bool:
    """Stop the daemon: pods get their grace period, after `timeout` seconds everything is killed.

    Returns, when nothing of it is left, whether there was one.
    """
    folder = state or default_state()
    now = status(folder)
    if now.pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(now.pid, signal.SIGTERM)
    if not state_folder.released(folder, timeout):
        with contextlib.suppress(ProcessLookupError):
            os.kill(now.pid, signal.SIGKILL)
        if not state_folder.released(folder, 10):
            raise ClusterError(f"process {now.pid} of the one-machine cluster in {folder} cannot be killed")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(now.pid, 0)  # where it was this very process that started it
    return True


def _start(folder: Path, options: Options, commands: Sequence[Sequence[str]], port: int, timeout: float) -> None:
    settings = {
        "state": str(folder.absolute()),
        "options": {**asdict(options), "maps": dict(options.maps)},
        "commands": [list(command) for command in commands],
        "port": port or _last_port(folder),
    }
    ready_r, ready_w = os.pipe()
    log = folder / "daemon.log"
    with log.open("ab") as output, os.fdopen(ready_r, "rb") as ready:
        begin = output.tell()
        process = subprocess.Popen(
            # -P: nothing is imported from the folder that the user happens to be in
            [sys.executable, "-P", "-m", "disttrain.local.daemon", json.dumps(settings, default=str), str(ready_w)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[ready_w],
            start_new_session=True,
        )
        os.close(ready_w)
        answer = _read_within(ready.fileno(), timeout)
    if answer != b"ready":
        process.kill()
        process.wait()
        words = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
        said = words[-1] if words else f"it was not ready within {timeout:g} s"
        raise ClusterError(f"the one-machine cluster did not start: {said} (all of it: {log})")
    # The daemon is a process of its own from here on; Python need not wait for it.
    process.returncode = 0


def _read_within(fd: int, seconds: float) -> bytes:
    """What comes on a pipe until its end or the time is up."""
    found, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        if not (data := os.read(fd, 4096)):
            break
        found += data
    return found


def _last_port(folder: Path) -> int:
    try:
        return urlsplit(json.loads((folder / "daemon.json").read_text())["url"]).port or 0
    except (OSError, ValueError, KeyError):
        return 0


def _count_pods(url: str, token: str) -> dict[str, int]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", "/api/v1/pods", headers={"Authorization": f"Bearer {token}"})
        items: list[Any] = json.load(connection.getresponse())["items"]
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return {}
    finally:
        connection.close()
    return dict(Counter(item["status"].get("phase", "Unknown") for item in items))


__all__ = ["ClusterError", "LocalCluster", "Options", "Status", "default_state", "down", "status", "up"]
