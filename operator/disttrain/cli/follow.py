"""Follows a job on the one-machine cluster: the object, its pods and their logs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from ..api.constants import LABEL_JOB_UID, LABEL_LEADER, PROGRESS_MARK
from ..api.pods import PodView, WirePod, view
from ..api.progress import parse_progress
from ..api.types import ROLES, Job, Progress
from ..cluster.errors import ApiError
from ..cluster.transport import Transport
from ..local.client import Client
from .view import Snapshot, View

Object = dict[str, Any]

TAIL = 20
"""Lines of each pod's log that are kept, for when it is the one that failed."""
REFUSED = frozenset({"InvalidSpec", "InvalidTemplate", "NameTaken"})
"""Reasons of `Accepted=False` that nothing but another manifest cures."""
STALL_SECONDS = 10.0
"""How long a job may be stalled before the run ends: nobody else repairs anything in a cluster of its own."""
PASSING = frozenset({"TrainsAlone"})
"""Reasons for `Stalled` in which the pods run all the same."""


class Follower:
    """What is seen of one job. Give `watch` to a task; the events tell how far it is."""

    def __init__(self, client: Client, api: Transport, job: Object, logs: Path, shown: View) -> None:
        self._client = client
        self._api = api
        self._uid = job["metadata"]["uid"]
        self._namespace = job["metadata"]["namespace"]
        self._path = f"/apis/{job['apiVersion']}/namespaces/{self._namespace}/disttrainjobs"
        self._logs = logs
        self._shown = shown
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stalled: asyncio.TimerHandle | None = None
        self.job: Job = msgspec.convert(job, Job)
        self.pods: dict[str, PodView] = {}
        self.progress: Progress | None = None
        self.tails: dict[str, deque[str]] = {}
        """Pod name -> the last lines of its main container."""
        self.hopeless = ""
        """Why the job will never run, in words; empty while it may."""
        self.over = asyncio.Event()
        """Set once the job has ended, or is hopeless."""
        self.quiet = asyncio.Event()
        """Set while no pod runs and no log is being read."""

    async def watch(self) -> None:
        """Follows until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_job())
                group.create_task(self._watch_pods())
        finally:
            for stream in self._streams.values():
                stream.cancel()
            await asyncio.gather(*self._streams.values(), return_exceptions=True)

    async def _watch_job(self) -> None:
        async for change in self._client.watch(self._path):
            if change.kind == "SYNCED" or change.object["metadata"]["uid"] != self._uid:
                continue
            self.job = msgspec.convert(change.object, Job)
            self._judge(gone=change.kind == "DELETED")
            self._show()

    def _judge(self, *, gone: bool) -> None:
        conditions = {condition.type: condition for condition in self.job.status.conditions}
        accepted, stalled = conditions.get("Accepted"), conditions.get("Stalled")
        if self.job.status.state in ("Succeeded", "Failed"):
            self.over.set()
        elif gone:
            self._give_up("The job was deleted.")
        elif accepted and accepted.status == "False" and accepted.reason in REFUSED:
            self._give_up(accepted.message)
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None
        if stalled and stalled.status == "True" and stalled.reason not in PASSING:
            wait = 0.0 if stalled.reason == "Unschedulable" else STALL_SECONDS
            self._stalled = asyncio.get_running_loop().call_later(wait, self._give_up, stalled.message)

    def _give_up(self, words: str) -> None:
        if not self.over.is_set():
            self.hopeless = words
            self.over.set()

    async def _watch_pods(self) -> None:
        async for change in self._client.watch(f"/api/v1/namespaces/{self._namespace}/pods"):
            if change.kind == "SYNCED":
                continue
            labels = change.object["metadata"].get("labels") or {}
            if labels.get(LABEL_JOB_UID) != self._uid:
                continue
            pod = view(msgspec.convert(change.object, WirePod))
            if change.kind == "DELETED":
                self.pods.pop(pod.uid, None)
            else:
                self.pods[pod.uid] = pod
                for container, main in _started(change.object):
                    if (pod.uid, container) not in self._streams:
                        leads = main and labels.get(LABEL_LEADER) == "true"
                        reading = self._read(pod, container, main=main, leads=leads)
                        self._streams[pod.uid, container] = task = asyncio.create_task(reading)
                        task.add_done_callback(lambda _: self._show())
            self._show()

    async def _read(self, pod: PodView, container: str, *, main: bool, leads: bool) -> None:
        """Follows a container's log to its end: into a file, and onto the screen."""
        who = str(pod.slot) if main else f"{pod.slot}/{container}"
        tail = self.tails.setdefault(pod.name, deque(maxlen=TAIL)) if main else None
        stem = who.replace("/", "-") + (f"-r{pod.round}" if pod.round > 1 else "")
        query = urlencode({"container": container, "follow": "true"})
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log?{query}"
        with (self._logs / f"{stem}.log").open("ab", buffering=0) as file:
            try:
                async for line in self._api.watch(path, silence=0):
                    file.write(line + b"\n")
                    text = line.decode(errors="replace")
                    if text.startswith(PROGRESS_MARK):
                        if leads and (told := parse_progress(text)):
                            self.progress = told
                            self._show()
                        continue
                    text = text.rstrip("\r").rpartition("\r")[2]  # of a bar that paints over itself, the last
                    if tail is not None:
                        tail.append(text)
                    self._shown.line(who, text)
            except ApiError as error:
                file.write(f"disttrain: the log breaks off here: {error}\n".encode())

    def _show(self) -> None:
        if all(pod.terminal for pod in self.pods.values()) and all(task.done() for task in self._streams.values()):
            self.quiet.set()
        else:
            self.quiet.clear()
        order: dict[str, int] = {role: number for number, role in enumerate(ROLES)}
        pods = sorted(self.pods.values(), key=lambda pod: (order.get(pod.role, 9), pod.index, pod.round))
        self._shown.update(Snapshot(self.job, pods, self.progress))


def _started(pod: Object) -> Iterator[tuple[str, bool]]:
    """The containers that have begun to run, and whether each is the main one."""
    main = pod["spec"]["containers"][0]["name"]
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or []:
            state = container.get("state") or {}
            if "running" in state or (state.get("terminated") or {}).get("startedAt"):
                yield container["name"], kind == "containerStatuses" and container["name"] == main
