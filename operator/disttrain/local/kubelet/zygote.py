"""The small process beside the kubelet that every pod's supervisor is forked from. Standard library only.

Forking a process of a few megabytes and one thread takes a millisecond and is safe, which forking the kubelet is not.

The kubelet sends one message a pod on a Unix socket: a byte with the file descriptor of the pod's own socket. End of
file means that the kubelet has gone, however it went. Where there are namespaces, this process is PID 1 of one that
holds all pods, and dies with the kubelet: the kernel then kills whatever is left in it. Elsewhere it waits for the
supervisors, each of which sees the end of its own socket and kills what is its own.
"""

# pathlib costs more to import than all the rest here.
# ruff: noqa: PTH123
from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Literal

from disttrain.local.kubelet import supervisor
from disttrain.local.kubelet.inside import words

Mode = Literal["root", "user", "plain"]
"""`root`: namespaces by right; `user`: in a user namespace; `plain`: none (see `sandbox.detect`)."""

READY = b"+"


def main(fd: int, mode: Mode, kubelet: int) -> None:
    """Serve the kubelet, the process `kubelet`, on the inherited socket `fd` until it goes; never returns."""
    control = socket.socket(fileno=fd)
    try:
        if mode != "plain":
            _isolate(mode, kubelet)
        signal.signal(signal.SIGCHLD, _reap)
        control.sendall(READY)
    except OSError as error:
        control.sendall(words(error).encode())
        sys.exit(1)
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            break
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervisor.main(fds[0], isolated=mode != "plain")
        os.close(fds[0])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while mode == "plain":
        try:
            os.wait()
        except ChildProcessError:
            break
    os._exit(0)


def _isolate(mode: Mode, kubelet: int) -> None:
    """Become PID 1 of a new PID namespace with mounts of its own; the original process stays and waits."""
    from disttrain.local.kubelet import linux

    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != kubelet:
        os._exit(1)
    uid, gid = os.getuid(), os.getgid()
    if mode == "user":
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        # Changed credentials clear the parent-death signal (prctl(2)).
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != kubelet:
            os._exit(1)
    else:
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWPID)
    # What the machine mounts later shows up here; what is mounted here never shows up on the machine.
    linux.mount("none", "/", flags=linux.MS_SLAVE | linux.MS_REC)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))
    linux.die_with_parent(signal.SIGKILL)
    linux.name_process("disttrain-pods")


def _reap(*_: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
