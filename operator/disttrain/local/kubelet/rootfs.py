"""A root folder of its own for a container: the machine's, with volumes where the manifest wants them.

The new root is a tmpfs into which every entry of the machine's root is bound, so a mount point that the machine lacks
(`/checkpoints`) is a folder of the tmpfs and never one of the machine. A mount point that is lacking deeper down
(`/etc/disttrain`) has the deepest folder that exists (`/etc`) replaced in the same way. Binds are all it takes, so it
works the same as root and in a user namespace, on every file system. Standard library only.
"""

# pathlib costs more to import than all the rest here.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH115, PTH116, PTH120, PTH211
from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from disttrain.local.kubelet import linux


class Mount(NamedTuple):
    """`source`, a path of the machine, appears at `target`, an absolute path in the container."""

    source: str
    target: str
    read_only: bool = False


def enter(staging: str, mounts: Iterable[Mount]) -> None:
    """Give the caller, alone in its mount namespace, a new root with `mounts` in it.

    `staging` is an existing empty folder that the new root is put together on.
    """
    linux.mount("tmpfs", staging, "tmpfs", linux.MS_NODEV, "mode=755")
    root = _Root(staging)
    # Parents before what lies in them; a symbolic link of the machine on the way is followed first.
    resolved = [Mount(m.source, os.path.realpath(m.target), m.read_only) for m in mounts]
    for mount in sorted(resolved, key=lambda m: m.target.count("/")):
        root.add(mount)
    try:
        linux.mount("proc", staging + "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except OSError:
        # Where parts of /proc are masked (in a container, say) the kernel gives no new one. The machine's does too:
        # /proc/self is right in it, only other processes have other numbers.
        pass
    linux.change_root(staging)


class _Root:
    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._own = {"/"}  # folders of a tmpfs of ours, where a new entry touches nothing of the machine
        self._volumes: list[str] = []
        self._mirror_entries("/")

    def add(self, mount: Mount) -> None:
        inside = self._staging + mount.target
        if not os.path.exists(mount.source):
            os.makedirs(mount.source)  # a subPath that nobody made yet
        if not os.path.lexists(inside):
            self._make_mount_point(mount)
        linux.bind(mount.source, inside, read_only=mount.read_only)
        self._volumes.append(mount.target)

    def _make_mount_point(self, mount: Mount) -> None:
        lacking = [mount.target]
        while not os.path.isdir(self._staging + (parent := os.path.dirname(lacking[-1]))):
            lacking.append(parent)
        in_volume = any(parent == v or parent.startswith(v + "/") for v in self._volumes)
        if parent not in self._own and not in_volume:
            self._mirror(parent)
        for folder in reversed(lacking[1:]):
            os.mkdir(self._staging + folder)
            if not in_volume:
                self._own.add(folder)
        _make_like(mount.source, self._staging + mount.target)

    def _mirror(self, folder: str) -> None:
        """Put a tmpfs over `folder` with every entry of the machine's folder bound into it."""
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        linux.mount("tmpfs", self._staging + folder, "tmpfs", linux.MS_NODEV, f"mode={mode:o}")
        self._own.add(folder)
        self._mirror_entries(folder)

    def _mirror_entries(self, folder: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                inside = self._staging + entry.path
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), inside)
                    continue
                _make_like(entry.path, inside)
                try:
                    linux.bind(entry.path, inside)
                except OSError:
                    # An entry that the caller may not even look at is no use to it either.
                    (os.rmdir if entry.is_dir() else os.unlink)(inside)


def _make_like(source: str, path: str) -> None:
    """Make an empty folder or file for `source` to be bound to."""
    if os.path.isdir(source):
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o644))
