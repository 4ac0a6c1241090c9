"""Where the logs of containers are."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class LogSource(Protocol):
    """Finds the file that a container of a pod writes its output to."""

    def path(self, namespace: str, pod: str, uid: str, container: str, *, previous: bool = False) -> Path | None:
        """The file, None if there is none (not started yet, or no such run)."""
        ...


class LogFiles:
    """The kubelet's folders: `<root>/<namespace>_<pod>_<uid>/<container>.log`, `.previous.log` for the run before."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, namespace: str, pod: str, uid: str, container: str, *, previous: bool = False) -> Path | None:
        suffix = ".previous.log" if previous else ".log"
        file = self._root / f"{namespace}_{pod}_{uid}" / f"{container}{suffix}"
        return file if file.is_file() else None
