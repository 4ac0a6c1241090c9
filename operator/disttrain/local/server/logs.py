"""The logs of containers: where they are, and how `GET .../log` sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from disttrain.local.server import errors
from disttrain.local.server.store import Json
from disttrain.local.server.target import Target

BLOCK = 64 * 1024  # bytes read at a time
POLL_SECONDS = 0.1  # how often a followed file is looked at


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


def choose_container(pod: Json, asked: str) -> str:
    """The container whose log is meant; raises 400 if that is not clear."""
    name = pod["metadata"]["name"]
    spec = pod["spec"]
    usual = [container["name"] for container in spec.get("containers") or ()]
    others = [container["name"] for container in spec.get("initContainers") or ()]
    if asked:
        if asked not in usual + others:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(usual) + len(others) > 1:
        choice = f"choose one of: [{' '.join(usual)}]" + (
            f" or one of the init containers: [{' '.join(others)}]" if others else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    return str(usual[0])


def _status(pod: Json, container: str) -> Json:
    status = pod.get("status") or {}
    listed = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((dict(entry) for entry in listed if entry.get("name") == container), {})


def has_ended(pod: Json, container: str) -> bool:
    """Whether a container will write nothing more."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    restarts = (pod.get("spec") or {}).get("restartPolicy") == "Always"
    return "terminated" in (_status(pod, container).get("state") or {}) and not restarts


def find(source: LogSource, pod: Json, container: str, *, previous: bool) -> Path:
    """The log's file; raises 400 in the real server's words if there is none."""
    metadata = pod["metadata"]
    path = source.path(metadata["namespace"], metadata["name"], metadata["uid"], container, previous=previous)
    if path is not None:
        return path
    if previous:
        raise errors.bad_request(f'previous terminated container "{container}" in pod "{metadata["name"]}" not found')
    waiting = (_status(pod, container).get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason") or "ContainerCreating"
    raise errors.bad_request(f'container "{container}" in pod "{metadata["name"]}" is waiting to start: {reason}')


def start_of_tail(path: Path, lines: int) -> int:
    """The offset at which the last `lines` lines begin."""
    with path.open("rb") as file:
        position = end = file.seek(0, 2)
        if lines <= 0:
            return end
        wanted = lines + 1  # the newline before the first of them
        if end:
            file.seek(end - 1)
            wanted -= file.read(1) != b"\n"  # a last line without its newline is a line too
        while position > 0:
            start = max(0, position - BLOCK)
            file.seek(start)
            block = file.read(position - start)
            found = block.count(b"\n")
            if found >= wanted:
                place = len(block)
                for _ in range(wanted):
                    place = block.rfind(b"\n", 0, place)
                return start + place + 1
            wanted -= found
            position = start
    return 0


class LogRequest:
    """What a client asks of a log; raises 400 for what makes no sense, 501 for what is not kept."""

    def __init__(self, target: Target) -> None:
        self.container = target.query.get("container", "")
        self.follow, self.previous = target.flag("follow"), target.flag("previous")
        self.tail, self.limit = target.number("tailLines"), target.number("limitBytes")
        for name, value, least in (("tailLines", self.tail, 0), ("limitBytes", self.limit, 1)):
            if value is not None and value < least:
                words = f"Invalid value: {value}: must be greater than or equal to {least}"
                cause = errors.Cause(name, "FieldValueInvalid", words)
                raise errors.invalid("PodLogOptions", "", target.name, [cause])
        if target.flag("timestamps") or target.query.get("sinceSeconds") or target.query.get("sinceTime"):
            raise errors.not_served("times of log lines, since they are kept as the process wrote them: use tailLines")


async def read(path: Path, asked: LogRequest, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log in blocks. With `follow` it goes on until `ended` says so and all of the file has been sent."""
    left = asked.limit
    offset = 0 if asked.tail is None else await asyncio.to_thread(start_of_tail, path, asked.tail)
    with path.open("rb") as file:
        file.seek(offset)
        while True:
            over = ended()  # asked before reading: what was written up to then is sent
            while block := file.read(BLOCK):
                if left is not None:
                    block = block[:left]
                    left -= len(block)
                if block:
                    yield block
                if left == 0:
                    return
            if over or not asked.follow:
                return
            await asyncio.sleep(POLL_SECONDS)
