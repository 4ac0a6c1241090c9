"""One run: from the start of its cluster to the end of its last process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..local.cluster import Options
from . import children
from .console import span
from .follow import Follower, last_words
from .manifest import Manifest
from .phrases import facts
from .runs import Run, shown
from .session import Session, private_cluster
from .view import View

SETTLE_SECONDS = 30.0
"""How long the last pods may take to end when the job has, beside what the job grants them itself."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was asked for, checked."""

    manifest: Manifest
    python: Path
    maps: dict[str, Path]
    cpu: bool
    timeout: float | None
    runs: Path
    again: str
    """The command that goes on from this run's checkpoints."""
    json: bool
    resumes: str
    """Folder of the run that this one goes on from; empty for a new one."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended. `words` go on from the job's name: `failed: ...`."""

    code: int
    words: str
    state: str = ""
    pod: str = ""
    tail: Sequence[str] = ()
    """The last lines of the log of `pod`, which is to blame."""
    numbers: str = ""
    progress: Any = None
    result: Any = None
    checkpoints: bool = False
    """Whether --resume finds something."""


@dataclass
class Interrupts:
    """Ctrl-C and its kin: the first asks, the second insists."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = signal.SIGINT

    def listen(self) -> None:
        """From now on signals end nothing by themselves."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on, number)

    def _on(self, number: int) -> None:
        if self.first.is_set():
            self.second.set()
        else:
            self.number = number
            self.first.set()


class Runner:
    """Call `go` once."""

    def __init__(self, wanted: Wanted, run: Run, shown: View) -> None:
        self._wanted = wanted
        self._run = run
        self._shown = shown
        self._interrupts = Interrupts()

    async def go(self) -> Outcome:
        """Runs the job to its end; nothing is left running. Raises CliError where it cannot even be created."""
        self._interrupts.listen()
        wanted, folder = self._wanted, self._run.path
        options = Options(python=wanted.python, maps=wanted.maps, cpu=wanted.cpu, workdir=Path.cwd())
        async with private_cluster(folder / "cluster", folder / "operator.log", options) as session:
            if session.why_not_isolated:
                self._shown.note(f"pods see this machine's own files here ({session.why_not_isolated})")
            job = await session.apply(wanted.manifest)
            self._shown.note(f"{wanted.manifest.name}: a new run in {shown(folder)}{self._origin(job)}")
            uid = job["metadata"]["uid"]
            place = job["spec"].get("checkpoints")
            self._run.save(uid=uid)
            follower = Follower(session.client, job, session.pods, folder / "logs", self._shown)
            watching = asyncio.create_task(follower.watch())
            try:
                words = await self._until_over(session, follower, watching)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        return self._outcome(follower, words, checkpoints=bool(place))

    def _origin(self, job: dict[str, Any]) -> str:
        """Where the run goes on from, and how its training learns of it: nothing is loaded for a script."""
        if not self._wanted.resumes:
            return ""
        place = job["spec"]["checkpoints"]
        folder = f"{place['mountPath'].rstrip('/')}/{place['resumeFrom']}"
        return f", which goes on from {self._wanted.resumes} (DISTTRAIN_RESUME_FROM={folder})"

    async def _until_over(self, session: Session, follower: Follower, watching: asyncio.Task[None]) -> str:
        """Waits for the end of the job and of its pods. Returns why the run ended, empty where the job did."""
        first = self._interrupts.first
        happened = await _first(
            self._wanted.timeout, over=follower.over.wait(), interrupted=first.wait(), dead=session.operator.wait(),
            broken=asyncio.shield(watching),
        )  # fmt: skip
        if happened == "over" and not follower.hopeless:
            own = follower.job.spec.grace_seconds if follower.job.status.state == "Succeeded" else 0
            settled = await _first(own + SETTLE_SECONDS, quiet=follower.quiet.wait(), interrupted=first.wait())
            if settled != "quiet":
                await self._stop(session, follower, "the job is over, but not all of its pods are")
            return ""
        if happened == "broken":
            watching.result()
        words = {
            "over": f"cannot run: {follower.hopeless}",
            "interrupted": f"was stopped by {signal.Signals(self._interrupts.number).name}",
            "dead": f"has lost its operator, which ended with {session.operator.returncode}: {self._last_words()}",
            "": f"was stopped: it has not ended within {span(self._wanted.timeout or 0)}",
        }[happened]
        await self._stop(session, follower, "stopping")
        return words

    def _last_words(self) -> str:
        """The last line that the operator wrote."""
        lines = (self._run.path / "operator.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def _stop(self, session: Session, follower: Follower, why: str) -> None:
        """Asks the pods to end and waits as long as their grace; a second Ctrl-C cuts that short."""
        follower.stopping = True
        await children.stop(session.operator)  # it would replace them
        grace = await session.stop_pods()
        if not grace:
            return
        self._shown.note(f"{why}: the pods have up to {grace:g} s to save and end; Ctrl-C again kills them", pin=True)
        ended = await _first(grace + 5, quiet=follower.quiet.wait(), insisted=self._interrupts.second.wait())
        if ended != "quiet":
            self._shown.note("killing the pods", pin=True)

    def _outcome(self, follower: Follower, words: str, *, checkpoints: bool) -> Outcome:
        status = follower.job.status
        progress = status.progress or follower.progress
        code, pod = 1, ""
        if not words and status.state == "Succeeded":
            code = 0
        elif not words:
            words = f"has failed: {status.message}"
            pod = status.failures[-1].pod if status.failures else ""
        elif self._interrupts.first.is_set():
            code = 128 + self._interrupts.number
        return Outcome(
            code=code,
            words=words or status.message,
            state=status.state,
            pod=pod,
            tail=last_words(follower.tails.get(pod, ())),
            numbers=facts(progress) if progress else "",
            progress=msgspec.to_builtins(progress),
            result=status.result,
            checkpoints=checkpoints,
        )


async def _first(timeout: float | None, **waits: Awaitable[Any]) -> str:
    """The name of what happened first, empty where the time was up."""
    tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return next((name for name, task in tasks.items() if task.done()), "")
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
