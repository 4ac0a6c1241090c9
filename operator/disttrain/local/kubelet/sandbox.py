"""The kubelet's side of the zygote and of the pods' supervisors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from disttrain.local.kubelet.rootfs import Mount
from disttrain.local.kubelet.zygote import READY, Mode

_SOURCE = Path(__file__).resolve().parents[3]


class StartError(Exception):
    """A container, or the pod's sandbox, could not be started; the text says why."""


class Zygote:
    """The process that pods are forked from; it is started anew if something killed it, and all pods with it."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    @classmethod
    async def start(cls, mode: Mode) -> Zygote:
        """Start it; raises StartError if the kernel refuses `mode`."""
        zygote = cls(mode)
        await zygote._start()
        return zygote

    async def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        # A session of its own: Ctrl-C at the terminal is for the kubelet, which stops pods gracefully.
        arguments = [str(_SOURCE), str(theirs.fileno()), self.mode, str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds, once
            [sys.executable, "-I", "-S", "-c", _ZYGOTE, *arguments],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
        )
        theirs.close()
        self._control.setblocking(False)
        answer = await asyncio.get_running_loop().sock_recv(self._control, 4096)
        self._control.setblocking(True)
        if answer != READY:
            await self.stop()
            raise StartError(answer.decode(errors="replace") or "the pods' parent process ended at once")

    async def sandbox(self, hostname: str, tmpfs: list[tuple[Path, str]]) -> Sandbox:
        """A new pod's supervisor. `tmpfs`: folders to mount one on, with its mount options; raises StartError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"p"], [theirs.fileno()])
            except OSError:
                await self.stop()
                await self._start()
                socket.send_fds(self._control, [b"p"], [theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        sandbox = Sandbox(reader, writer)
        await sandbox.setup(hostname, tmpfs)
        return sandbox

    async def stop(self) -> None:
        """End it, and every pod with it; returns when all are gone."""
        self._control.close()
        await asyncio.to_thread(self._process.wait)


_ZYGOTE = """
import sys
source, fd, mode, kubelet = sys.argv[1:]
sys.path.insert(0, source)
from disttrain.local.kubelet import zygote
zygote.main(int(fd), mode, int(kubelet))
"""


class Sandbox:
    """One pod's supervisor: starts and stops its containers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._exits: dict[str, Callable[[int], None]] = {}
        self._execs: dict[int, asyncio.Future[int]] = {}
        self._keys = 0
        self._listener = asyncio.create_task(self._listen())

    async def setup(self, hostname: str, tmpfs: list[tuple[Path, str]]) -> None:
        """First of all; raises StartError."""
        await self._ask("", op="setup", hostname=hostname, tmpfs=[(str(path), options) for path, options in tmpfs])

    async def start(
        self,
        name: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        log: Path,
        mounts: list[Mount],
        staging: Path,
    ) -> asyncio.Future[int]:
        """Start container `name`, which is not running; the future has its exit code. Raises StartError.

        `staging` is an empty folder that its root is put together on.
        """
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exits[name] = lambda code: None if exited.done() else exited.set_result(code)
        spec = {"argv": argv, "env": env, "cwd": cwd, "log": str(log), "mounts": mounts, "staging": str(staging)}
        try:
            await self._ask(name, op="start", id=name, **spec)
        except StartError:
            del self._exits[name]
            raise
        return exited

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the main process of a container; nothing happens if it has ended."""
        self._send(op="signal", id=name, signal=number)

    def kill(self, name: str) -> None:
        """SIGKILL to every process of a container."""
        self._send(op="kill", id=name)

    async def exec(self, name: str, argv: list[str], timeout: float) -> int:
        """Run a command in a running container; its exit code, raises TimeoutError after `timeout` seconds."""
        self._keys += 1
        key = self._keys
        self._execs[key] = asyncio.get_running_loop().create_future()
        self._send(op="exec", id=name, key=key, argv=argv)
        try:
            async with asyncio.timeout(timeout):
                return await self._execs[key]
        except TimeoutError:
            self._send(op="cancel", key=key)
            raise
        finally:
            self._execs.pop(key, None)

    async def close(self) -> None:
        """Kill what still runs; returns when nothing is left."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()
        await self._listener
        self._writer.close()

    async def _ask(self, key: str, **command: object) -> None:
        self._answers[key] = asyncio.get_running_loop().create_future()
        if self._listener.done():
            raise StartError("the pod's supervisor is gone")
        self._send(**command)
        await self._answers[key]

    def _send(self, **command: object) -> None:
        self._writer.write(json.dumps(command).encode() + b"\n")

    async def _listen(self) -> None:
        with contextlib.suppress(OSError):
            async for line in self._reader:
                self._handle(**json.loads(line))
        # Only an accident or close() gets here; nothing of the pod outlives its supervisor.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(StartError("the pod's supervisor is gone"))
        for exited in list(self._exits.values()):
            exited(137)
        for result in self._execs.values():
            if not result.done():
                result.set_result(137)

    def _handle(self, event: str, id: str = "", key: int = 0, code: int = 0, error: str = "") -> None:
        if event == "exited":
            self._exits.pop(id)(code)
        elif event == "exec":
            if (result := self._execs.get(key)) and not result.done():
                result.set_result(code)
        elif not (answer := self._answers.pop(id)).done():
            if event == "failed":
                answer.set_exception(StartError(error))
            else:
                answer.set_result(None)


async def detect() -> tuple[Zygote, str]:
    """Start a zygote with as much isolation as this machine allows, and why it is not more ("" with namespaces).

    Nothing but a real trial tells: a kernel may allow a user namespace and then refuse mounts in it.
    """
    reasons = []
    modes: list[Mode] = ["root", "user"] if os.geteuid() == 0 else ["user"]
    for mode in modes if sys.platform == "linux" else []:
        try:
            zygote = await Zygote.start(mode)
        except StartError as error:
            reasons.append(str(error))
            continue
        try:
            await _try(zygote)
        except (StartError, OSError) as error:
            reasons.append(str(error))
            await zygote.stop()
            continue
        return zygote, ""
    return await Zygote.start("plain"), "; ".join(reasons) or f"{sys.platform} has no mount namespaces"


async def _try(zygote: Zygote) -> None:
    with tempfile.TemporaryDirectory(prefix="disttrain-") as folder:
        paths = {name: Path(folder, name) for name in ("staging", "shm", "data")}
        for path in paths.values():
            path.mkdir()
        hosts = Path(folder, "hosts")
        hosts.write_text("trial\n")  # noqa: ASYNC240 - tiny
        sandbox = await zygote.sandbox("trial", [(paths["shm"], "size=64k")])
        try:
            script = 'read x < /etc/hosts && test "$x" = trial && echo 1 > /disttrain-trial/ok && echo 1 > /dev/shm/ok'
            mounts = [Mount(str(paths["data"]), "/disttrain-trial"), Mount(str(hosts), "/etc/hosts", True)]
            mounts.append(Mount(str(paths["shm"]), "/dev/shm"))
            env = {"PATH": os.environ.get("PATH", os.defpath)}
            log = Path(folder, "log")
            exited = await sandbox.start("trial", ["sh", "-c", script], env, "/", log, mounts, paths["staging"])
            if code := await exited:
                raise StartError(f"a trial pod ended with {code}: {log.read_text()}")  # noqa: ASYNC240 - tiny
        finally:
            await sandbox.close()


__all__ = ["Sandbox", "StartError", "Zygote", "detect"]
