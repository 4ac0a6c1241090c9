"""The training's progress as its leader prints it: a marked line of JSON in the log, and the same JSON, unmarked, as
the container's termination message. Reading never fails, whatever was printed: what does not fit is dropped.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from .constants import PROGRESS_MARK
from .types import Checkpoint, Progress

MAX_LINE = 4096
"""Bytes of a line that are looked at; longer ones are not ours."""
MAX_RESULT = 2048
"""Bytes of JSON that `status.result` may take."""
_MARKED = re.compile(r"(\[\d+(,\d+)?\]<std(out|err)>: ?)?" + re.escape(PROGRESS_MARK))


def parse(text: str) -> dict[str, Any] | None:
    """The JSON object of a log's last marked line, or of a text that is one JSON object; None where there is none."""
    for line in reversed(text.splitlines()):
        if (told := unmarked(line)) is not None and (found := _object(told)) is not None:
            return found
    return _object(text)


def unmarked(line: str) -> str | None:
    """What a marked line says; None for any other. Launchers may put the process and its stream before the mark:
    `[0]<stdout>:` (horovodrun) and `[1,0]<stdout>:` (mpirun --tag-output)."""
    marked = _MARKED.match(line)
    return line[marked.end() :] if marked else None


def _object(text: str) -> dict[str, Any] | None:
    if len(text) > MAX_LINE or not text.lstrip().startswith("{"):
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_progress(text: str) -> Progress | None:
    """The progress in a text's last marked line, or in a text that is one JSON object; None where there is none."""
    found = parse(text)
    return None if found is None else progress_of(found)


def progress_of(found: dict[str, Any]) -> Progress:
    """The progress that such an object tells; fields of a wrong type or out of range read as absent."""
    written = found.get("checkpoint")
    checkpoint = None
    if isinstance(written, dict):
        checkpoint = Checkpoint(step=_whole(written.get("step")), round=_whole(written.get("round")))
    return Progress(
        rank=_whole(found.get("rank")),
        world_size=_whole(found.get("worldSize")),
        epoch=_whole(found.get("epoch")),
        epochs=_whole(found.get("epochs")),
        step=_whole(found.get("step")),
        of=_whole(found.get("of")),
        loss=_real(found.get("loss")),
        accuracy=_real(found.get("accuracy")),
        samples_per_second=_real(found.get("samplesPerSecond")),
        checkpoint=checkpoint,
        time=_real(found.get("time")) or 0.0,
    )


def result(found: dict[str, Any]) -> dict[str, Any]:
    """The final numbers: accuracy and loss, and what the training put under `result`, if it is small enough."""
    numbers = {key: value for key in ("accuracy", "loss") if (value := _real(found.get(key))) is not None}
    more = found.get("result")
    if isinstance(more, dict):
        # Integers beyond 64 bits are legal JSON, and no API server takes them.
        more = {
            key: value
            for key, value in more.items()
            if isinstance(value, str | float | bool) or (isinstance(value, int) and -(2**63) <= value < 2**63)
        }
        if len(msgspec.json.encode(more)) <= MAX_RESULT:
            numbers.update(more)
    return numbers


def summary(seen: Progress) -> str:
    """The progress in short, for a printer column: `epoch 3/5, 60%`."""
    parts = []
    if seen.epoch:
        parts.append(f"epoch {seen.epoch}/{seen.epochs}" if seen.epochs else f"epoch {seen.epoch}")
    if seen.of:
        parts.append(f"{100 * min(seen.step, seen.of) // seen.of}%")
    elif seen.step:
        parts.append(f"step {seen.step}")
    return ", ".join(parts)[:64]


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON's integers have no bound, and msgspec keeps them whole
        return None
    return number if math.isfinite(number) else None
