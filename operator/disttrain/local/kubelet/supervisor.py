"""The process that holds one pod: it starts the pod's containers, copies their output to logs and reports their ends.

Standard library only, forked from the zygote. It talks JSON lines with the kubelet on one socket:

    {"op": "setup", "hostname": H, "tmpfs": [[PATH, OPTIONS], ...]}
        answered by {"event": "ready"} or {"event": "failed", "error": E}
    {"op": "start", "id": C, "argv": [], "env": {}, "cwd": D, "log": FILE, "mounts": [], "staging": D}
        answered by {"event": "started", "id": C} or {"event": "failed", "id": C, "error": E}
        and, when the main process ended, {"event": "exited", "id": C, "code": N}
    {"op": "signal", "id": C, "signal": N}     to the container's main process
    {"op": "kill", "id": C}                    SIGKILL to every process of the container
    {"op": "exec", "id": C, "key": K, "argv": []} and {"op": "cancel", "key": K}
        answered by {"event": "exec", "key": K, "code": N}

Codes are those of a shell: 128 + N for signal N. A container ends with its main process: the rest is killed.
End of file from the kubelet kills everything and ends the supervisor.

Where there are namespaces, the pod has its own host name, IPC and mounts, and each container besides a root folder
and a PID namespace of its own, whose PID 1 is a small init of ours: it hands SIGTERM on to the main process, which is
PID 2, so that a program without a handler for it ends as it does on a terminal (a PID 1 without one would ignore it).
"""

# pathlib costs more to import than all the rest here.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from disttrain.local.kubelet import inside, linux, sweep


class _Container:
    """A running container: the process to wait for, its output and where that goes."""

    def __init__(self, name: str, mark: str, spec: dict[str, Any], pid: int, output: int, log: int) -> None:
        self.name, self.mark, self.spec, self.pid, self.output, self.log = name, mark, spec, pid, output, log


def main(fd: int, *, isolated: bool) -> NoReturn:
    """Serve the kubelet on socket `fd` until it closes."""
    code = 1
    try:
        Supervisor(socket.socket(fileno=fd), isolated).serve()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


class Supervisor:
    """One pod. `isolated`: with namespaces."""

    def __init__(self, control: socket.socket, isolated: bool) -> None:
        self._control = control
        self._isolated = isolated
        self._containers: dict[str, _Container] = {}
        self._execs: dict[int, int] = {}  # process -> key
        self._selector = selectors.DefaultSelector()
        self._unread = b""
        self._marks = 0
        if isolated:
            self._own_pid_namespace = os.pidfd_open(os.getpid())
        else:
            if sys.platform == "linux":
                linux.adopt_orphans()
            self._own_pid_namespace = -1

    def serve(self) -> None:
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_r, False)
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ, self._read_commands)
        self._selector.register(wake_r, selectors.EVENT_READ, lambda: self._reap(wake_r))
        self._open = True
        try:
            while self._open:
                for key, _ in self._selector.select():
                    key.data()
        finally:
            for container in list(self._containers.values()):
                self._kill(container)
            if not self._isolated:
                sweep.kill_all(None)

    def _send(self, **event: object) -> None:
        try:
            self._control.sendall(json.dumps(event).encode() + b"\n")
        except OSError:
            self._open = False  # the kubelet has gone

    def _read_commands(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._open = False
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            getattr(self, "_do_" + command.pop("op"))(**command)

    # --- commands

    def _do_setup(self, hostname: str, tmpfs: list[tuple[str, str]]) -> None:
        try:
            if self._isolated:
                linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
                linux.mount("none", "/", flags=linux.MS_SLAVE | linux.MS_REC)
                socket.sethostname(hostname)
                linux.name_process(hostname)
                for path, options in tmpfs:
                    linux.mount("tmpfs", path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
        except OSError as error:
            self._send(event="failed", error=inside.words(error))
        else:
            self._send(event="ready")

    def _do_start(self, id: str, **spec: Any) -> None:
        self._marks += 1
        mark = f"{os.getpid()}.{id}.{self._marks}"
        if not self._isolated:
            spec["env"][sweep.MARK] = mark
        output_r, output_w = os.pipe()
        status_r, status_w = os.pipe()
        life_r, life_w = os.pipe()  # init sees its end if this process dies before the parent-death signal is set
        try:
            log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if self._isolated:
                linux.unshare(linux.CLONE_NEWPID)  # for the next child: it will be PID 1
            body = lambda: inside.container(spec, output_w, status_w, life_r, isolated=self._isolated)  # noqa: E731
            pid = self._fork(body, keep=(output_w, status_w, life_r))
            if self._isolated:
                linux.setns(self._own_pid_namespace, linux.CLONE_NEWPID)
        except OSError as error:
            for fd in (output_r, output_w, status_r, status_w, life_r, life_w):
                os.close(fd)
            self._send(event="failed", id=id, error=inside.words(error))
            return
        for fd in (output_w, status_w, life_r):
            os.close(fd)
        with open(status_r, "rb") as status:
            failure = status.read()
        os.close(life_w)
        if failure:
            os.waitpid(pid, 0)
            os.close(output_r)
            os.close(log)
            self._send(event="failed", id=id, error=failure.decode(errors="replace"))
            return
        os.set_blocking(output_r, False)
        container = _Container(id, mark, spec, pid, output_r, log)
        self._containers[id] = container
        self._selector.register(output_r, selectors.EVENT_READ, lambda: self._copy_output(container))
        self._send(event="started", id=id)

    def _do_signal(self, id: str, signal: int) -> None:
        if id in self._containers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._containers[id].pid, signal)

    def _do_kill(self, id: str) -> None:
        if id in self._containers:
            self._kill(self._containers[id])

    def _do_exec(self, id: str, key: int, argv: list[str]) -> None:
        if id not in self._containers:
            self._send(event="exec", key=key, code=1)
            return
        container = self._containers[id]
        pid = self._fork(lambda: inside.probe(container.spec, container.pid, argv, isolated=self._isolated), keep=())
        self._execs[pid] = key

    def _do_cancel(self, key: int) -> None:
        for pid, one in self._execs.items():
            if one == key:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # --- ends

    def _kill(self, container: _Container) -> None:
        if self._isolated:
            with contextlib.suppress(ProcessLookupError):
                os.kill(container.pid, signal.SIGKILL)
        else:
            sweep.kill_all(container.mark, container.pid)

    def _reap(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            if pid in self._execs:
                self._send(event="exec", key=self._execs.pop(pid), code=code)
            for container in list(self._containers.values()):
                if container.pid == pid:
                    self._end(container, code)

    def _end(self, container: _Container, code: int) -> None:
        if not self._isolated:
            sweep.kill_all(container.mark)
        self._copy_output(container)
        if container.output >= 0:
            self._close_output(container)
        os.close(container.log)
        del self._containers[container.name]
        self._send(event="exited", id=container.name, code=code)

    def _copy_output(self, container: _Container) -> None:
        """Copy what the pipe holds. A pipe and not the log itself: `echo x > /dev/stderr` must not truncate the log."""
        while container.output >= 0:
            try:
                data = os.read(container.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._close_output(container)
                return
            try:
                os.write(container.log, data)
            except OSError as error:  # a full disk ends no training
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise

    def _close_output(self, container: _Container) -> None:
        self._selector.unregister(container.output)
        os.close(container.output)
        container.output = -1

    # --- children

    def _fork(self, body: Callable[[], int], keep: tuple[int, ...]) -> int:
        """Fork a child that runs `body` and exits with what it returns; of this process's files it has `keep` only."""
        pid = os.fork()
        if pid:
            return pid
        code = 125
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for name in os.listdir("/dev/fd"):
                if int(name) > 2 and int(name) not in keep:
                    with contextlib.suppress(OSError):
                        os.close(int(name))
            code = body()
        except BaseException as error:
            print(f"disttrain: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
