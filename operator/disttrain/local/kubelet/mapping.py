"""Paths without mount namespaces: what would be mounted is found through working directory, command, arguments and
environment, in which a path of the container is replaced by the one of this machine.

A volume that none of these names cannot be found by the program: such a pod is refused, and told of `--map`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

Paths = Mapping[str, Path]
"""Absolute path in the container -> path of this machine."""


def _pattern(paths: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted((path.rstrip("/") or "/" for path in paths), key=len, reverse=True)
    return re.compile(r"(?<![\w./-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])")


def substitute(text: str, paths: Paths) -> str:
    """`text` with every path of the container that stands by itself or begins a longer path replaced."""
    if not paths:
        return text
    targets = {path.rstrip("/") or "/": str(target) for path, target in paths.items()}
    return _pattern(targets).sub(lambda match: targets[match[1]], text)


def unnamed(mounts: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Those mount points that none of the texts names."""
    joined = "\n".join(texts)
    return [path for path in mounts if not _pattern([path]).search(joined)]


def advice(paths: Iterable[str]) -> str:
    """The options that give a folder of this machine for each path."""
    return " ".join(f"--map {path}=./{path.rstrip('/').rsplit('/', 1)[-1] or 'root'}" for path in paths)
