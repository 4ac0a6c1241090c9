"""The few Linux system calls that Python 3.11 lacks. Standard library only: it runs in the small process beside the
kubelet.

Every function raises OSError with the call's name when the kernel says no.
"""

from __future__ import annotations

import ctypes
import os

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
_MS_NOATIME = 0x400
_MS_NODIRATIME = 0x800
_MS_RELATIME = 0x200000
_ST_RELATIME = 0x1000  # statvfs tells relatime by another bit than mount takes

MNT_DETACH = 0x2

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args) < 0:
        code = ctypes.get_errno()
        subject = next((a.decode(errors="replace") for a in reversed(args) if isinstance(a, bytes) and b"/" in a), "")
        raise OSError(code, f"{name}: {os.strerror(code)}", subject or None)


def unshare(flags: int) -> None:
    """Move the caller into new namespaces (`CLONE_NEW*`)."""
    _call("unshare", ctypes.c_int(flags))


def setns(fd: int, flags: int) -> None:
    """Move the caller into the namespace that `fd` (of /proc/PID/ns/*) stands for."""
    _call("setns", ctypes.c_int(fd), ctypes.c_int(flags))


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    _call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        fstype.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Bind a file or folder, with what is mounted below it, to an existing file or folder."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        # The kernel refuses to drop flags of a mount that a user namespace inherited, so they are said again.
        now = os.statvfs(target).f_flag
        keep = now & (MS_NOSUID | MS_NODEV | MS_NOEXEC | _MS_NOATIME | _MS_NODIRATIME)
        keep |= _MS_RELATIME if now & _ST_RELATIME else 0
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | keep)


def change_root(new_root: str) -> None:
    """Make `new_root`, a mount point, the root of the caller's mount namespace, and let go of the old root."""
    os.chdir(new_root)
    # With "." twice the old root ends up stacked on the new one, so no folder for it is needed (pivot_root(2)).
    _call("pivot_root", b".", b".")
    _call("umount2", b".", ctypes.c_int(MNT_DETACH))
    os.chdir("/")


def die_with_parent(signal: int) -> None:
    """Have the kernel send `signal` to the caller when the thread that started it ends."""
    _call("prctl", ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal), 0, 0, 0)


def adopt_orphans() -> None:
    """Make the caller the parent of every descendant whose own parent ends."""
    _call("prctl", ctypes.c_int(_PR_SET_CHILD_SUBREAPER), ctypes.c_ulong(1), 0, 0, 0)


def name_process(name: str) -> None:
    """Set what `ps` and `top` show, 15 bytes at most."""
    _call("prctl", ctypes.c_int(_PR_SET_NAME), ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
