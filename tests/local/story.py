"""A world for the operator: the one-machine API, a kubelet that only pretends, and the story of one job.

The story: three workers run; worker 1 fails; the world starts anew; the leader succeeds. Pods live in the API alone, so
it takes as long as the operator does. What must hold at every moment is watched (`Kubelet.wrong`), what must hold at
the end is in `World.check`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from disttrain.api import crd
from disttrain.api.constants import GROUP, LABEL_INDEX, LABEL_JOB, LABEL_JOB_UID, LABEL_ROLE, LABEL_ROUND, PLURAL
from disttrain.local.kubeconfig import write_kubeconfig
from disttrain.local.server import ApiServer
from disttrain.local.server.faults import Faults, Rule
from disttrain.local.server.objects import Write
from disttrain.local.server.resources import CRDS, PODS, Resource
from disttrain.local.server.store import Event, Record

Json = dict[str, Any]
TOKEN = "the-token-of-the-tests"
WRITES = frozenset({"create", "update", "patch", "delete"})
SECONDS = 20.0


async def eventually(holds: Callable[[], object], words: Callable[[], str], seconds: float = SECONDS) -> None:
    """Waits until something is so."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 -- what happens in another process tells nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {words()}") from None


class Calls(Faults):
    """The faults of a server, which can also kill whoever makes the n-th write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.at = 0
        """Number of the write that is the last, from 1; 0: none is."""
        self.before = False
        """Whether that write has no effect any more."""
        self.kill: Callable[[], None] = lambda: None
        self.killed: tuple[str, str, str] | None = None
        """Verb, resource and name of that write, once it has come."""

    def find(self, verb: str, resource: str, namespace: str, name: str) -> Rule | None:
        if verb in WRITES and resource not in ("events", "leases"):
            self.writes += 1
            if self.writes == self.at:
                self.killed = verb, resource, name
                self.kill()
                return Rule(action="close_before" if self.before else "close_after")
        return super().find(verb, resource, namespace, name)

    def made(self) -> Counter[tuple[str, str]]:
        """How many calls of each verb and resource were made, events and what starts an operator apart."""
        found: Counter[tuple[str, str]] = Counter()
        for entry in self.journal:
            parts = entry.path.split("?")[0].split("/")
            kind = next((part for part in parts if part in ("pods", "services", PLURAL, "events")), "")
            if kind and kind != "events" and entry.verb not in ("list", "watch"):
                found[entry.verb, kind + ("/status" if parts[-1] == "status" else "")] += 1
        return found


def slot(record: Record) -> tuple[str, int]:
    """Role with index, and round."""
    labels = record.labels
    return f"{labels[LABEL_ROLE]}-{labels[LABEL_INDEX]}", int(labels[LABEL_ROUND])


class Kubelet:
    """Takes every pod, lets it run at once, and lets it go `grace` seconds after it was told to."""

    def __init__(self, server: ApiServer, grace: float = 0.02) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.grace = grace
        self.born: Counter[str] = Counter()
        """Pods made, by uid of the job and name."""
        self.wrong: list[str] = []
        self.stop = server.store.listen(PODS, self._hear)

    def pods(self, job: str = "digits") -> list[Record]:
        """All pods of jobs of this name."""
        return [one for one in self._server.store.all(PODS) if one.labels.get(LABEL_JOB) == job]

    def alive(self, record: Record) -> bool:
        """Whether it may still train."""
        pod = record.object()
        return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in ("Pending", "Running")

    def _hear(self, event: Event) -> None:
        record = event.record
        if LABEL_JOB not in record.labels:
            return
        if event.before is None:
            uid = record.labels[LABEL_JOB_UID]
            self.born[f"{uid}/{record.name}"] += 1
            others = [one for one in self.pods(record.labels[LABEL_JOB]) if one.labels[LABEL_JOB_UID] == uid]
            for other in others:
                if other.uid != record.uid and slot(other)[0] == slot(record)[0] and self.alive(other):
                    self.wrong.append(f"{record.name} was made while {other.name} was alive")
            self._loop.call_soon(self._take, record)
        elif not event.gone and "deletionTimestamp" in record.object()["metadata"]:
            self._loop.call_later(self.grace, self.remove, record)

    def _take(self, record: Record) -> None:
        """Binds the pod and runs it."""

        def bind(pod: Json) -> Json:
            pod["spec"]["nodeName"] = "here"
            return pod

        if self._change(record, bind, "binding"):
            self.runs(record)

    def runs(self, record: Record) -> None:
        """The pod's containers run and are ready."""
        running = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        self._status(record, phase="Running", ready=True, **running)

    def ends(self, record: Record, code: int) -> None:
        """The pod's containers end."""
        terminated = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": "2026-01-01T00:00:01Z",
        }
        self._status(record, phase="Failed" if code else "Succeeded", ready=False, state={"terminated": terminated})

    def _status(self, record: Record, *, phase: str, ready: bool, **container: Json) -> None:
        main = {"name": "train", "ready": ready, "restartCount": 0, "image": "i", "imageID": "i", **container}

        def change(pod: Json) -> Json:
            pod["status"] |= {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": [main],
            }
            return pod

        self._change(record, change, "status")

    def _change(self, record: Record, change: Callable[[Json], Json], subresource: str) -> bool:
        current = self._server.store.get(PODS, record.namespace, record.name)
        if current is None or current.uid != record.uid:
            return False
        self._server.objects.patch(PODS, record.namespace, record.name, change, Write(), subresource)
        return True

    def remove(self, record: Record) -> None:
        """The pod is gone: at the end of its grace, or by a hand that does not wait."""
        current = self._server.store.get(PODS, record.namespace, record.name)
        if current is not None and current.uid == record.uid:
            self._server.objects.delete(PODS, current, {"gracePeriodSeconds": 0}, Write())


class Starter:
    """Starts operators, by way of `fork_operator`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Starter:
        script = Path(__file__).with_name("fork_operator.py")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.communicate()

    async def start(self, log: Path, *words: str) -> int:
        """The process id of a new operator."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._lock:
            self._process.stdin.write(json.dumps([str(log), *words]).encode() + b"\n")
            return int(await self._process.stdout.readline())


def is_alive(pid: int) -> bool:
    """Whether the process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class World:
    """One server with its kubelet, the operators on it and one job. An async context manager."""

    def __init__(
        self, folder: Path, starter: Starter, *, workers: int = 3, grace: float = 0.02, log_length: int = 8192
    ) -> None:
        self.folder = folder
        self.calls = Calls()
        self.server = ApiServer(folder / "state", TOKEN, self.calls, log_length=log_length)
        self.operators: list[int] = []
        self.workers = workers
        self._grace = grace
        self._starter = starter

    async def __aenter__(self) -> World:
        url = await self.server.start()
        self.kubeconfig = write_kubeconfig(self.folder / "kubeconfig", url, TOKEN)
        self.server.objects.create(CRDS, "", crd.definition(), Write())
        self.kubelet = Kubelet(self.server, self._grace)
        return self

    async def __aexit__(self, *_: object) -> None:
        for pid in self.operators:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not any(map(is_alive, self.operators)), lambda: "operators outlive SIGKILL")
        self.kubelet.stop()
        await self.server.stop()

    async def operate(self, *more: str) -> int:
        """Starts an operator."""
        words = ("--kubeconfig", str(self.kubeconfig), "--listen", "none", "--progress-seconds", "0", *more)
        pid = await self._starter.start(self.folder / f"operator-{len(self.operators)}.log", *words)
        self.operators.append(pid)
        return pid

    def log(self) -> str:
        """What the operators said."""
        logs = [self.folder / f"operator-{index}.log" for index in range(len(self.operators))]
        return "\n".join(log.read_text() for log in logs if log.exists())

    # ---- the job

    @property
    def jobs(self) -> Resource:
        """The type."""
        return next(one for one in self.server.types if one.key == f"{PLURAL}.{GROUP}")

    def apply(self, name: str = "digits", **spec: Any) -> Record:
        """Makes the job."""
        template = {"spec": {"containers": [{"name": "train", "image": "disttrain/pytorch:0.1"}]}}
        whole = {"framework": "pytorch", "template": template, "worker": {"replicas": self.workers}, **spec}
        return self.server.objects.create(self.jobs, "default", {"metadata": {"name": name}, "spec": whole}, Write())

    def delete(self, name: str = "digits") -> None:
        """Deletes the job, as kubectl does."""
        record = self.server.store.get(self.jobs, "default", name)
        assert record is not None
        self.server.objects.delete(self.jobs, record, {"propagationPolicy": "Background"}, Write())

    def stranger(self, name: str) -> None:
        """Makes a pod that is no job's."""
        spec = {"containers": [{"name": "web", "image": "web"}]}
        self.server.objects.create(PODS, "default", {"metadata": {"name": name}, "spec": spec}, Write())

    def lists(self, resource: str) -> int:
        """How often all of these were listed."""
        return sum(one.verb == "list" and one.path.split("?")[0].endswith(resource) for one in self.calls.journal)

    def job(self, name: str = "digits") -> Json:
        """The job as it is."""
        record = self.server.store.get(self.jobs, "default", name)
        return record.object() if record else {}

    def status(self, name: str = "digits") -> Json:
        """The job's status."""
        status: Json = self.job(name).get("status", {})
        return status

    def running(self, round_: int, number: int | None = None) -> bool:
        """Whether all pods of a round run."""
        found = [one for one in self.kubelet.pods() if slot(one)[1] == round_ and self.kubelet.alive(one)]
        phases = [one.object()["status"]["phase"] for one in found]
        return phases == ["Running"] * (number or self.workers)

    def worker(self, index: int, round_: int) -> Record:
        """The pod of a slot."""
        return next(one for one in self.kubelet.pods() if slot(one) == (f"worker-{index}", round_))

    # ---- the story

    async def until(self, holds: Callable[[], object], seconds: float = SECONDS) -> None:
        """Waits until something is so; says how it stands where it does not come."""
        await eventually(holds, self.standing, seconds)

    def standing(self) -> str:
        """All that a failing test wants to know."""
        pods = [(one.name, one.object()["status"]["phase"]) for one in self.kubelet.pods()]
        status = {key: self.status().get(key) for key in ("state", "round", "restarts", "launched", "message")}
        return f"{status} {pods} killed at {self.calls.killed}\n{self.log()}"

    async def tell(self, *, calm: bool = False) -> None:
        """The whole story, from the apply to the end of the clean-up; `calm`: nothing fails before all is Running."""
        self.apply(graceSeconds=0)
        await self.until(lambda: self.running(1) and (not calm or self.status().get("state") == "Running"))
        self.kubelet.ends(self.worker(1, 1), 137)
        await self.until(lambda: self.running(2) and (not calm or self.status().get("state") == "Running"))
        self.kubelet.ends(self.worker(0, 2), 0)
        await self.until(lambda: self.status().get("state") == "Succeeded")
        await self.until(lambda: not any(map(self.kubelet.alive, self.kubelet.pods())))

    def check(self, *, alone: bool = True) -> None:
        """What holds at the end of the story, whatever came between; `alone`: one operator at a time was at work.

        Of two, one may read that a round has begun before its watch tells it of the pods of the last, and so make a
        successor a moment early. The older pod gives way, being of an older round, and it is charged once all the same.
        """
        status = self.status()
        found = {key: status.get(key) for key in ("state", "round", "restarts")}
        assert found == {"state": "Succeeded", "round": 2, "restarts": 1}, self.standing()
        assert [(one["pod"], one["charged"]) for one in status["failures"]] == [("digits-worker-1", True)]
        assert not alone or self.kubelet.wrong == [], f"{self.kubelet.wrong} {self.standing()}"
        uid = self.job()["metadata"]["uid"]
        names = [f"digits-worker-{index}{suffix}" for suffix in ("", "-r2") for index in range(self.workers)]
        born = {key: number for key, number in self.kubelet.born.items() if key.startswith(uid)}
        assert born == {f"{uid}/{name}": 1 for name in names}, self.standing()
        assert "error of the operator" not in self.log(), self.log()
        metadata = self.job()["metadata"]
        assert "finalizers" not in metadata
        assert "annotations" not in metadata


Act = Callable[[World], Awaitable[None]]
