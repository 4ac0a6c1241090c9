"""What a container leaves: its termination message and its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Json = dict[str, Any]

_MESSAGE_BYTES = 4096  # the kubelet's limits
_LOG_BYTES = 2048
_LOG_LINES = 80


def message(file: Path, log: Path, container: Json, code: int) -> str:
    """The message of a container that ended with `code`: its file's, else the end of its log if asked for."""
    text = _tail(file, _MESSAGE_BYTES)
    if not text and code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = _tail(log, _LOG_BYTES).splitlines(keepends=True)
        text = "".join(lines[-_LOG_LINES:])
    return text


def rotate(log: Path) -> None:
    """Keep the log of the run before, one run back."""
    if log.exists():
        log.replace(log.with_name(log.name.removesuffix(".log") + ".previous.log"))


def _tail(file: Path, size: int) -> str:
    try:
        with file.open("rb") as opened:
            end = opened.seek(0, 2)
            opened.seek(max(0, end - size))
            return opened.read(size).decode(errors="replace")
    except OSError:
        return ""
