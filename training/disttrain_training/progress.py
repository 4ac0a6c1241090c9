"""Progress as marked JSON lines on stdout: no network access and no rights are needed, whoever reads the log can
follow.

The contract (its reader is the operator, which shares no code with this module): a line that starts with
`DISTTRAIN_PROGRESS `, then one JSON object, at most 2,000 bytes in all, with the keys

    rank, worldSize    of the process that prints
    epoch, epochs      the epoch worked on, from 1; how many in all
    step, of           optimizer steps done; how many in all
    loss               training loss: the mean over the last step's samples, on all ranks
    accuracy           of the last validation, 0 to 1; absent before the first
    samplesPerSecond   trained on, by all ranks together
    checkpoint         {"step": n, "round": r} of the newest durable checkpoint; absent before the first
    time               unix seconds
    final              true in the last line of a finished training
    metrics            further numbers, free; the last ones are left out where the line would grow too long
    result             in the final line: what the training came to

A number that is not finite is null (JSON has no NaN). One process of a job prints: the first of the leader's pod
(`DISTTRAIN_LEADER=1`), whatever its rank; outside a job, rank 0. At most a line a second, plus one at each epoch's
end and the final one, whose JSON is also left as the container's termination message (at most 4,000 bytes).
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

MARK = "DISTTRAIN_PROGRESS "
LINE_BYTES = 2000
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_BYTES = 4000


def speaks(rank: int, local_rank: int, environ: Mapping[str, str]) -> bool:
    """Whether this process is the one of its job that reports progress."""
    leader = environ.get("DISTTRAIN_LEADER")
    if leader is None:
        return rank == 0
    return leader == "1" and local_rank == 0


def warn_if_alone(world_size: int, cure: str, environ: Mapping[str, str] = os.environ) -> None:
    """Say so when the job is larger than the world: each pod then trains a model of its own, and all succeed."""
    expected = environ.get("DISTTRAIN_WORLD_SIZE", "")
    if expected.isdigit() and int(expected) > world_size:
        print(
            f"WARNING: the job has {expected} processes, this one sees a world of {world_size}: each pod trains alone. "
            f"{cure}",
            file=sys.stderr,
            flush=True,
        )


class Progress:
    """Reports one process's training; silent in all processes but the one that `speaks`."""

    def __init__(
        self,
        *,
        rank: int,
        local_rank: int,
        world_size: int,
        environ: Mapping[str, str] = os.environ,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        interval: float = 1.0,
    ) -> None:
        self.speaks = speaks(rank, local_rank, environ)
        self._who = {"rank": rank, "worldSize": world_size}
        self._environ = environ
        self._stream = stream or sys.stdout
        self._clock = clock
        self._interval = interval
        self._last = -math.inf

    def report(self, facts: Mapping[str, object], *, now: bool = False, final: bool = False) -> bool:
        """Print the line unless one was printed within the last second (`now` and `final` print always).

        `facts` has the keys of the contract above; those whose value is None are left out. Returns whether it printed.
        """
        moment = self._clock()
        if not self.speaks or not (now or final or abs(moment - self._last) >= self._interval):
            return False
        self._last = moment
        document = self._who | {key: value for key, value in facts.items() if value is not None}
        text = encode(document | {"time": round(moment, 3), "final": final}, LINE_BYTES - len(MARK) - 1)
        self._stream.flush()  # so that the line reaches the log in one write
        self._stream.write(f"{MARK}{text}\n")
        self._stream.flush()
        if final:
            leave_termination_message(text, self._environ)
        return True

    def say(self, text: str) -> None:
        """A line for people, from the same one process."""
        if self.speaks:
            print(f"{text}\n", end="", file=self._stream, flush=True)  # one write: other ranks may share the pipe


def encode(document: Mapping[str, object], limit: int) -> str:
    """The document as one line of ASCII JSON of at most `limit` bytes: `metrics` gives way first, its last entry
    first.
    """
    kept = {key: _finite(value) for key, value in document.items()}
    metrics = kept.get("metrics")
    while True:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
        if len(text) <= limit:
            return text
        if not isinstance(metrics, dict) or not metrics:
            raise ValueError(f"progress of {len(text)} bytes does not fit into {limit}; keep `result` small")
        metrics.popitem()


def leave_termination_message(text: str, environ: Mapping[str, str]) -> None:
    """Leave `text` where Kubernetes reads a container's last words; where that cannot be written, do nothing."""
    named = environ.get("DISTTRAIN_TERMINATION_LOG")
    path = Path(named) if named else TERMINATION_LOG
    if len(text) > TERMINATION_BYTES or not (named or path.exists()):
        return
    try:
        path.write_text(text)
    except OSError:
        pass  # a training that went well does not fail for this


def _finite(value: object) -> object:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return value
