"""How a run is shown: as lines that a file or a CI log can hold, or as a live view of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..api.pods import PodView
from ..api.types import Job, Progress
from .console import span
from .phrases import facts, headline, remark

US = "disttrain"
"""The prefix of lines that are no pod's."""
PLAIN_PROGRESS_SECONDS = 10.0
"""Between two lines of progress within an epoch, where lines stay on the screen."""
COLOURS = ("cyan", "magenta", "green", "blue", "yellow", "bright_red", "bright_cyan", "bright_magenta")


@dataclass(frozen=True)
class Snapshot:
    """All that is known of a run at a moment; `pods` are in order of role, index and round."""

    job: Job | None = None
    pods: Sequence[PodView] = ()
    progress: Progress | None = None


class View(Protocol):
    """What shows a run."""

    def update(self, now: Snapshot) -> None:
        """Shows the newest state."""

    def line(self, who: str, text: str) -> None:
        """Shows a line of a pod's log."""

    def note(self, text: str, *, pin: bool = False) -> None:
        """Says something of our own. `pin`: from now on it tells more than the job's state."""

    def close(self) -> None:
        """Leaves the screen as it is to stay."""


def choose(stream: TextIO) -> View:
    """The view that suits where the output goes."""
    console = Console(file=stream)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return PlainView(stream)


class PlainView:
    """Lines only. Nothing is said twice."""

    def __init__(self, stream: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._headline = ""
        self._epoch = 0
        self._due = 0.0

    def update(self, now: Snapshot) -> None:
        """Says what changed."""
        if now.job and (text := headline(now.job)) != self._headline:
            self._headline = text
            self.note(text)
        if (progress := now.progress) and (progress.epoch != self._epoch or self._clock() >= self._due):
            self._epoch, self._due = progress.epoch, self._clock() + PLAIN_PROGRESS_SECONDS
            self.note(facts(progress))

    def line(self, who: str, text: str) -> None:
        """One line of a log."""
        print(f"{who:<9} | {text}", file=self._stream, flush=True)

    def note(self, text: str, *, pin: bool = False) -> None:
        """One line of ours."""
        self.line(US, text)

    def close(self) -> None:
        """Nothing to do."""


class LiveView:
    """Logs scroll by above a picture of the job that stays at the bottom."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._now = Snapshot()
        self._pinned = ""
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._colours: dict[str, str] = {}
        self._live = Live(get_renderable=self._picture, console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def update(self, now: Snapshot) -> None:
        """Takes the newest state; the picture is painted at its own pace."""
        self._now = now

    def line(self, who: str, text: str) -> None:
        """One line of a log, with its own colours if it has any."""
        colour = self._colours.setdefault(who, COLOURS[len(self._colours) % len(COLOURS)])
        self._console.print(Text.assemble((f"{who:<9} │ ", colour), Text.from_ansi(text)), soft_wrap=True)

    def note(self, text: str, *, pin: bool = False) -> None:
        """One line of ours, which stays in the picture too if it is pinned."""
        if pin:
            self._pinned = text
        self._console.print(Text.assemble((f"{US:<9} │ ", "bold"), text), soft_wrap=True)

    def close(self) -> None:
        """Takes the picture away; the logs stay."""
        self._live.stop()
        job = self._now.job
        if job and job.status.state in ("Succeeded", "Failed"):
            self._console.print(Text(headline(job), style="bold"), soft_wrap=True)

    def _picture(self) -> RenderableType:
        elapsed = Text(f" {span(time.monotonic() - self._began)}  ", style="dim")
        job = self._now.job
        state = f"{job.metadata.name}: {headline(job)}" if job and job.status.message else "starting the cluster"
        said = self._pinned or state
        first = Table.grid()
        first.add_row(self._spinner, elapsed, Text(said, style="bold", overflow="ellipsis"))
        parts: list[RenderableType] = [first]
        if self._now.pods:
            parts.append(self._pods())
        if progress := self._now.progress:
            line = Table.grid(padding=(0, 2))
            if progress.of:
                bar = ProgressBar(total=progress.of, completed=min(progress.step, progress.of), width=30)
                line.add_row(bar, Text(facts(progress)))
            else:
                line.add_row(Text(facts(progress)))
            parts.append(line)
        return Group(*parts)

    def _pods(self) -> Table:
        pods = self._now.pods
        room = max(3, self._console.height // 2 - 4)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("POD", "PHASE", "READY", "ROUND", ""):
            table.add_column(heading, no_wrap=True)
        for pod in pods[:room]:
            colour = {"Running": "green", "Succeeded": "green", "Failed": "red"}.get(pod.phase, "yellow")
            ready = "yes" if pod.ready else "no"
            table.add_row(str(pod.slot), Text(pod.phase, style=colour), ready, str(pod.round), remark(pod))
        if len(pods) > room:
            running = sum(pod.phase == "Running" for pod in pods[room:])
            table.add_row(f"and {len(pods) - room} more", f"{running} Running", "", "", "")
        return table
