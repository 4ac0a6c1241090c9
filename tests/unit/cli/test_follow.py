from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from disttrain.cli import follow, runs
from disttrain.cli.follow import Follower
from disttrain.cli.view import Snapshot
from disttrain.local.client import Change, Client

Object = dict[str, Any]
JOB: Object = {
    "apiVersion": "disttrain.dev/v1alpha1",
    "kind": "DistTrainJob",
    "metadata": {"name": "digits", "namespace": "default", "uid": "u"},
    "spec": {"framework": "pytorch"},
}


class FakeClient:
    """Watches that tell what the test says."""

    def __init__(self) -> None:
        self.news: dict[str, asyncio.Queue[Change]] = {"disttrainjobs": asyncio.Queue(), "pods": asyncio.Queue()}

    async def watch(self, path: str) -> AsyncIterator[Change]:
        yield Change("SYNCED", {})
        while True:
            yield await self.news[path.rsplit("/", 1)[1]].get()


class Recorded:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.last = Snapshot()
        self.changed = asyncio.Event()

    def update(self, now: Snapshot) -> None:
        self.last = now
        self.changed.set()

    def line(self, who: str, text: str) -> None:
        self.lines.append(f"{who}: {text}")
        self.changed.set()

    def note(self, text: str, *, pin: bool = False) -> None:
        raise AssertionError(text)

    def close(self) -> None:
        raise AssertionError


class Scene:
    """A follower at work."""

    def __init__(self, folder: Path) -> None:
        self.client = FakeClient()
        self.view = Recorded()
        self.files = folder / "pods"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.follower = Follower(cast(Client, self.client), JOB, self.files, self.logs, self.view)

    def job(self, kind: Any = "MODIFIED", **status: Any) -> None:
        self.client.news["disttrainjobs"].put_nowait(Change(kind, {**JOB, "status": status}))

    def condition(self, kind: str, status: str, reason: str, message: str = "because") -> None:
        self.job(conditions=[{"type": kind, "status": status, "reason": reason, "message": message}])

    def log(self, uid: str, text: str, container: str = "train") -> None:
        folder = self.files / f"default_{uid}_{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{container}.log").open("a") as file:
            file.write(text)

    def pod(self, uid: str, *, kind: Any = "MODIFIED", phase: str = "Running", **labels: str) -> None:
        all_labels = {"job": "digits", "job-uid": "u", "role": "worker", "index": "0", "round": "1", **labels}
        ended = {"terminated": {"exitCode": 0, "startedAt": "x", "finishedAt": "2026-01-01T00:00:00Z"}}
        state = {"running": {"startedAt": "x"}} if phase == "Running" else ended
        pod = {
            "metadata": {
                "name": uid, "namespace": "default", "uid": uid,
                "labels": {f"disttrain.dev/{name}": value for name, value in all_labels.items()},
            },
            "spec": {"containers": [{"name": "train"}, {"name": "sidecar"}]},
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": name, "state": state} for name in ("train", "sidecar")],
            },
        }  # fmt: skip
        self.client.news["pods"].put_nowait(Change(kind, pod))

    async def until(self, *lines: str) -> None:
        """Waits for lines on the screen."""
        async with asyncio.timeout(10):
            while not set(lines) <= set(self.view.lines):
                self.view.changed.clear()
                await self.view.changed.wait()


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    made = Scene(folder)
    watching = asyncio.create_task(made.follower.watch())
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_logs_to_their_last_byte(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        now.log("a", "first\nsec")
        now.log("a", "busy\n", "sidecar")
        now.pod("a")
        await now.until("worker-0: first", "worker-0/sidecar: busy")
        now.log("a", "ond\n10%\r20%\r\nno newline")
        await now.until("worker-0: second", "worker-0: 20%")
        assert not now.follower.quiet.is_set()
        now.pod("a", phase="Succeeded")
        await now.until("worker-0: no newline")
        await now.follower.quiet.wait()
        assert list(now.follower.tails["a"]) == ["first", "second", "20%", "no newline"]
        assert sorted(path.name for path in now.logs.iterdir()) == ["worker-0-sidecar.log", "worker-0.log"]
        assert (now.logs / "worker-0.log").read_text().endswith("no newline")


async def test_a_pod_that_is_gone_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        now.log("a", "last words")
        now.pod("a")
        now.pod("a", kind="DELETED")
        await now.until("worker-0: last words")
        await now.follower.quiet.wait()
        assert now.view.last.pods == []
        now.log("b", "round two\n")
        now.pod("b", round="2")
        await now.until("worker-0: round two")
        assert (now.logs / "worker-0-r2.log").exists()


async def test_only_the_leader_tells_progress(tmp_path: Path) -> None:
    line = 'DISTTRAIN_PROGRESS {"epoch": %d, "step": 1}\n'
    async with scene(tmp_path) as now:
        now.log("a", line % 3 + "done\n")
        now.log("b", line % 9 + "done\n")
        now.pod("b", index="1")
        now.pod("a", leader="true")
        await now.until("worker-0: done", "worker-1: done")
        assert now.follower.progress is not None
        assert now.follower.progress.epoch == 3
        assert sorted(now.view.lines) == ["worker-0: done", "worker-1: done"]


async def test_tracebacks_are_no_news_once_it_stops(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "x"\nKeyboardInterrupt\nafter\n'
    async with scene(tmp_path) as now:
        now.log("a", trace)
        now.pod("a")
        await now.until("worker-0: after")
        assert len(now.view.lines) == 4
        now.follower.stopping = True
        now.log("a", trace.replace("after", "later"))
        await now.until("worker-0: later")
        assert len(now.view.lines) == 5


async def test_other_jobs_are_none_of_its_business(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        other = {**JOB, "metadata": {**JOB["metadata"], "uid": "other"}}
        now.client.news["disttrainjobs"].put_nowait(Change("MODIFIED", {**other, "status": {"state": "Failed"}}))
        now.pod("a", **{"job-uid": "other"})
        now.job(state="Succeeded")
        await now.follower.over.wait()
        assert now.follower.job.status.state == "Succeeded"
        assert now.follower.pods == {}


@pytest.mark.parametrize("reason", ["InvalidSpec", "InvalidTemplate", "NameTaken"])
async def test_what_only_another_manifest_cures(tmp_path: Path, reason: str) -> None:
    async with scene(tmp_path) as now:
        now.condition("Accepted", "False", reason, "a typo")
        await now.follower.over.wait()
        assert now.follower.hopeless == "a typo"


async def test_what_stalls_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(tmp_path) as now:
        for status, reason in (
            ("True", "TrainsAlone"),
            ("True", "CreateContainerConfigError"),
            ("False", "Proceeding"),
        ):
            now.condition("Stalled", status, reason)
        now.job(message="marker")
        while not (now.view.last.job and now.view.last.job.status.message == "marker"):
            now.view.changed.clear()
            await now.view.changed.wait()
        assert not now.follower.over.is_set()
        now.condition("Stalled", "True", "Unschedulable", "no room")
        await now.follower.over.wait()  # at once
        assert now.follower.hopeless == "no room"
    monkeypatch.setattr(follow, "STALL_SECONDS", 0.05)
    (tmp_path / "again").mkdir()
    async with scene(tmp_path / "again") as now:
        now.condition("Stalled", "True", "CreateContainerConfigError", "no such secret")
        await now.follower.over.wait()
        assert now.follower.hopeless == "no such secret"


async def test_a_job_that_is_deleted(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        now.job("DELETED")
        await now.follower.over.wait()
        assert now.follower.hopeless == "The job was deleted."


async def test_a_message_names_the_file_of_a_log(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        now.job(state="Failed", message="Worker-1 failed. `kubectl logs digits-worker-1-r4` shows why.")
        await now.follower.over.wait()
        where = runs.shown(now.logs / "worker-1-r4.log")
        assert now.follower.job.status.message == f"Worker-1 failed. {where} shows why."


TORCHRUN = """\
E1130 21:57:49.806000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 3) of binary: python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
==========""".splitlines()  # noqa: E501 - as torchrun prints it


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "boom", *TORCHRUN], ["a", "boom"]),
        (["a", "boom", TORCHRUN[0], "again", "boom 2", *TORCHRUN], ["a", "boom", TORCHRUN[0], "again", "boom 2"]),
        (["a", TORCHRUN[0], "again", "cut short"], ["a", TORCHRUN[0], "again", "cut short"]),
        (TORCHRUN, TORCHRUN),
        ([str(number) for number in range(99)], [str(number) for number in range(79, 99)]),
    ],
)
def test_last_words(lines: list[str], shown: list[str]) -> None:
    assert follow.last_words(deque(lines)) == shown
