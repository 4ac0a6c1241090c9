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
    _mirror_entries("/", staging)
    # A symbolic link of the machine on the way is followed first. Parents come before what lies in them.
    resolved = sorted(
        (m._replace(target=os.path.realpath(m.target)) for m in mounts), key=lambda m: m.target.count("/")
    )
    for folder in _to_mirror([mount.target for mount in resolved]):
        _mirror(folder, staging)
    for mount in resolved:
        _add(mount, staging)
    try:
        linux.mount("proc", staging + "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except OSError:
        # Where parts of /proc are masked (in a container, say) the kernel gives no new one. The machine's does too:
        # /proc/self is right in it, only other processes have other numbers.
        pass
    linux.change_root(staging)


def _to_mirror(targets: list[str]) -> list[str]:
    """The folders of the machine, parents first, in which mount points are lacking. `targets` has parents first."""
    found: set[str] = set()
    for index, target in enumerate(targets):
        in_other = any(target.startswith(other.rstrip("/") + "/") for other in targets[:index])
        if not in_other and not os.path.lexists(target):
            folder = os.path.dirname(target)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            found.add(folder)
    # All of them before anything is mounted: a tmpfs put over a folder would hide what is mounted in it.
    return sorted(found - {"/"}, key=lambda folder: folder.count("/"))


def _mirror(folder: str, staging: str) -> None:
    """Put a tmpfs over `folder` with every entry of the machine's folder bound into it."""
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    linux.mount("tmpfs", staging + folder, "tmpfs", linux.MS_NODEV, f"mode={mode:o}")
    _mirror_entries(folder, staging)


def _mirror_entries(folder: str, staging: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            inside = staging + entry.path
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), inside)
                continue
            _make_like(entry.path, inside)
            try:
                linux.bind(entry.path, inside)
            except OSError:
                # An entry that the caller may not even look at is no use to it either.
                (os.rmdir if entry.is_dir() else os.unlink)(inside)


def _add(mount: Mount, staging: str) -> None:
    inside = staging + mount.target
    if not os.path.exists(mount.source):
        os.makedirs(mount.source)  # a subPath that nobody made yet
    if not os.path.lexists(inside):
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        _make_like(mount.source, inside)
    linux.bind(mount.source, inside, read_only=mount.read_only)


def _make_like(source: str, path: str) -> None:
    """Make an empty folder or file for `source` to be bound to."""
    if os.path.isdir(source):
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o644))
