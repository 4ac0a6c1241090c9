"""Finding and killing what a container left behind where no PID namespace does it. Standard library only.

A process belongs to a container if its environment has the container's mark or it descends from one that does. Orphans
are adopted by the caller on Linux (see `linux.adopt_orphans`), so that one which cleared its environment is found at
the pod's end among the caller's descendants.
"""

# pathlib costs more to import than all the rest here.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

MARK = "DISTTRAIN_CONTAINER_MARK"


def kill_all(mark: str | None, root: int | None = None, timeout: float = 5.0) -> None:
    """SIGKILL, until none is left, every process with `MARK=mark` (None: any of the caller's descendants) and below
    `root`.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = _members(mark, root)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(0.002)


def _members(mark: str | None, root: int | None) -> set[int]:
    parents, marked = _linux_table(mark) if sys.platform == "linux" else _bsd_table(mark)
    me = os.getpid()
    members = set(marked)
    if mark is None:
        members |= {pid for pid, parent in parents.items() if parent == me}
    if root is not None and root in parents:
        members.add(root)
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grew = bool(more)
    return members - {me}


def _linux_table(mark: str | None) -> tuple[dict[int, int], set[int]]:
    """Parents of all live processes, and those with the mark."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    needle = b"" if mark is None else f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state in (b"Z", b"X"):
                continue
            parents[int(name)] = int(parent)
            if needle:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if needle in file.read().split(b"\0"):
                        marked.add(int(name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return parents, marked


def _bsd_table(mark: str | None) -> tuple[dict[int, int], set[int]]:
    listing = subprocess.run(["ps", "-axEww", "-o", "pid=,ppid=,stat=,command="], capture_output=True, text=True)
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for line in listing.stdout.splitlines():
        pid, parent, state, command = [*line.split(None, 3), ""][:4]
        if state.startswith("Z"):
            continue
        parents[int(pid)] = int(parent)
        if mark is not None and f"{MARK}={mark}" in command.split():
            marked.add(int(pid))
    return parents, marked
