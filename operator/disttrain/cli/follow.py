"""Follows a job on the one-machine cluster: the object, its pods and their logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..api.constants import LABEL_JOB_UID, LABEL_LEADER
from ..api.pods import PodView, WirePod, view
from ..api.progress import parse_progress, unmarked
from ..api.types import ROLES, Job, Progress
from ..local.client import Client
from .runs import shown
from .view import Snapshot, View

Object = dict[str, Any]

POLL_SECONDS = 0.1
"""Between two looks at a log's file."""
TAIL = 20
"""Lines of a log that are shown of the pod that failed."""
KEPT = 100
"""Lines of each pod's log that are kept: torchrun ends with some thirty of its own."""
TORCHRUN_ENDS = re.compile(r"E\d{4} .* torch/distributed/elastic/.*\] failed \(exitcode: -?\d+\) local_rank: ")
"""The line with which torchrun begins to tell of a process that failed."""
KUBECTL_LOGS = re.compile(r"`kubectl logs (\S+)`")
REFUSED = frozenset({"InvalidSpec", "InvalidTemplate", "NameTaken"})
"""Reasons of `Accepted=False` that nothing but another manifest cures."""
STALL_SECONDS = 10.0
"""How long a job may be stalled before the run ends: nobody else repairs anything in a cluster of its own."""
PASSING = frozenset({"TrainsAlone"})
"""Reasons for `Stalled` in which the pods run all the same."""


class Follower:
    """What is seen of one job. Give `watch` to a task; the events tell how far it is.

    `pods` is the kubelet's folder of logs; `logs` gets a link to each, under a name that people look for.
    """

    def __init__(self, client: Client, job: Object, pods: Path, logs: Path, shown: View) -> None:
        self._client = client
        self._uid = job["metadata"]["uid"]
        self._namespace = job["metadata"]["namespace"]
        self._path = f"/apis/{job['apiVersion']}/namespaces/{self._namespace}/disttrainjobs"
        self._files = pods
        self._logs = logs
        self._shown = shown
        self._streams: dict[_Run, asyncio.Task[None]] = {}
        self._finished: set[_Run] = set()
        self._stalled: asyncio.TimerHandle | None = None
        self._unfolding: set[str] = set()
        self.job: Job = msgspec.convert(job, Job)
        self.pods: dict[str, PodView] = {}
        self.progress: Progress | None = None
        self.tails: dict[str, deque[str]] = {}
        """Pod name -> the last lines of its main container."""
        self.hopeless = ""
        """Why the job will never run, in words; empty while it may."""
        self.stopping = False
        """Set by whoever stops the pods: the tracebacks with which they end are then no news, and stay in the files."""
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
            self.job.status.message = self._at_hand(self.job.status.message)
            self._judge(gone=change.kind == "DELETED")
            self._show()

    def _at_hand(self, message: str) -> str:
        """The message with the file of a log in place of a kubectl that has no cluster any more when it is read."""
        start = f"{self.job.metadata.name}-"
        return KUBECTL_LOGS.sub(lambda found: f"{shown(self._logs)}/{found[1].removeprefix(start)}.log", message)

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
                self._finished.update(run for run in self._streams if run.uid == pod.uid)
            else:
                self.pods[pod.uid] = pod
            for run, state in _runs(change.object):
                if "terminated" in state:
                    self._finished.add(run)
                if run not in self._streams and ("running" in state or "terminated" in state):
                    leads = run.main and labels.get(LABEL_LEADER) == "true"
                    self._streams[run] = task = asyncio.create_task(self._read(pod, run, leads=leads))
                    task.add_done_callback(lambda _: self._show())
            self._show()

    async def _read(self, pod: PodView, run: _Run, *, leads: bool) -> None:
        """Brings a container's log onto the screen, to its end."""
        file = self._files / f"{pod.namespace}_{pod.name}_{pod.uid}" / f"{run.container}.log"
        who = str(pod.slot) if run.main else f"{pod.slot}/{run.container}"
        _link(self._logs / (who.replace("/", "-") + (f"-r{pod.round}" if pod.round > 1 else "") + ".log"), file)
        tail = self.tails.setdefault(pod.name, deque(maxlen=KEPT)) if run.main else None
        place, rest, last = 0, b"", False
        while not last:
            last = run in self._finished  # asked before reading: what was written until then is all there is
            with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
                opened.seek(place)
                new = opened.read()
                place += len(new)
                rest += new
            *lines, rest = rest.split(b"\n")
            if last and rest:
                lines.append(rest)
            for line in lines:
                self._line(who, line.decode(errors="replace"), tail, leads=leads)
            if not last:
                await asyncio.sleep(POLL_SECONDS)

    def _line(self, who: str, text: str, tail: deque[str] | None, *, leads: bool) -> None:
        if unmarked(text) is not None:
            if leads and (told := parse_progress(text)):
                self.progress = told
                self._show()
            return
        text = text.rstrip("\r").rpartition("\r")[2]  # of a bar that paints over itself, the last picture
        if tail is not None:
            tail.append(text)
        if self.stopping and text.startswith("Traceback "):
            self._unfolding.add(who)
        elif who in self._unfolding:
            if not text.startswith(" "):  # the exception's own line, the last of its traceback
                self._unfolding.discard(who)
        else:
            self._shown.line(who, text)

    def _show(self) -> None:
        if all(pod.terminal for pod in self.pods.values()) and all(task.done() for task in self._streams.values()):
            self.quiet.set()
        else:
            self.quiet.clear()
        order: dict[str, int] = {role: number for number, role in enumerate(ROLES)}
        pods = sorted(self.pods.values(), key=lambda pod: (order.get(pod.role, 9), pod.index, pod.round))
        self._shown.update(Snapshot(self.job, pods, self.progress))


def last_words(log: Iterable[str]) -> list[str]:
    """The last lines of a log that tell why it ended: those before torchrun's own report, where it ends with one."""
    lines = list(log)
    begins = [number for number, line in enumerate(lines) if TORCHRUN_ENDS.match(line)]
    reported = bool(begins and begins[-1]) and any("Root Cause" in line for line in lines[begins[-1] :])
    return lines[: begins[-1] if reported else None][-TAIL:]


class _Run(NamedTuple):
    """One container of one pod."""

    uid: str
    container: str
    main: bool


def _runs(pod: Object) -> Iterator[tuple[_Run, Object]]:
    """The containers of a pod, with the state of each."""
    main = pod["spec"]["containers"][0]["name"]
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or []:
            name = container["name"]
            run = _Run(pod["metadata"]["uid"], name, kind == "containerStatuses" and name == main)
            yield run, container.get("state") or {}


def _link(link: Path, file: Path) -> None:
    with contextlib.suppress(FileExistsError):  # as after a pod that was deleted by hand, in the same round
        link.symlink_to(os.path.relpath(file, link.parent))
