"""The folder that holds all of a one-machine cluster, and who has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path


class ClusterError(Exception):
    """The cluster could not be started or stopped; the text says why, and what would do."""


def default_state() -> Path:
    """`$XDG_STATE_HOME/disttrain`, else `~/.local/state/disttrain`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "disttrain"


def prepare(folder: Path) -> None:
    """Make the state folder, for this user alone. Raises ClusterError if it is another's."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(f"the state folder {folder} cannot be used: {error.strerror}; choose another") from error


def token(folder: Path) -> str:
    """The token of this cluster, made once."""
    file = folder / "token"
    with (
        contextlib.suppress(FileExistsError),
        os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new,
    ):
        new.write(secrets.token_urlsafe(32))
    return file.read_text()


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Have the folder; raises ClusterError if another process has it."""
    with (folder / "lock").open("a+") as lock:
        for tries_left in range(20, -1, -1):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # It may only be somebody who looks whether it is taken.
                if not tries_left:
                    lock.seek(0)
                    raise ClusterError(
                        f"the state folder {folder} is in use by process {lock.read().strip() or 'unknown'}; "
                        "stop that (disttrain local down) or choose another folder"
                    ) from None
                time.sleep(0.02)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def owner(folder: Path) -> int | None:
    """The process that has the folder, 0 if it has not said so yet, None if there is none."""
    try:
        with (folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0)
    except FileNotFoundError:
        pass
    return None


def released(folder: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while owner(folder) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
