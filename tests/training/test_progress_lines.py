"""The progress line, a contract with a reader that shares no code with its writer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from disttrain_training.progress import LINE_BYTES, MARK, Progress, speaks


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Reporting:
    """A `Progress` with a clock to turn and a stream to read."""

    def __init__(self, **environ: str) -> None:
        self.clock, self.stream = Clock(), io.StringIO()
        self.progress = Progress(
            rank=0, local_rank=0, world_size=3, environ=environ, stream=self.stream, clock=self.clock
        )

    def report(self, *, now: bool = False, final: bool = False, **facts: object) -> bool:
        return self.progress.report(facts, now=now, final=final)

    @property
    def lines(self) -> list[dict[str, Any]]:
        lines = self.stream.getvalue().splitlines()
        assert all(line.startswith(MARK) for line in lines)
        return [json.loads(line[len(MARK) :]) for line in lines]


@pytest.mark.parametrize(
    ("rank", "local_rank", "environ", "expected"),
    [
        (0, 0, {}, True),
        (1, 0, {}, False),
        (0, 0, {"DISTTRAIN_LEADER": "1"}, True),
        (2, 0, {"DISTTRAIN_LEADER": "1"}, True),
        (3, 1, {"DISTTRAIN_LEADER": "1"}, False),
        (0, 0, {"DISTTRAIN_LEADER": "0"}, False),
        (0, 0, {"DISTTRAIN_CHECKPOINT_DIR": "/checkpoints"}, True),
    ],
)
def test_one_process_speaks(rank: int, local_rank: int, environ: dict[str, str], expected: bool) -> None:
    assert speaks(rank, local_rank, environ) is expected


def test_the_line() -> None:
    reporting = Reporting()
    checkpoint = {"step": 5, "round": 2}
    assert reporting.report(epoch=1, epochs=5, step=7, of=300, loss=0.25, accuracy=None, checkpoint=checkpoint)
    assert reporting.stream.getvalue() == (
        'DISTTRAIN_PROGRESS {"rank":0,"worldSize":3,"epoch":1,"epochs":5,"step":7,"of":300,"loss":0.25,'
        '"checkpoint":{"step":5,"round":2},"time":1000.0,"final":false}\n'
    )


def test_at_most_a_line_a_second_but_for_epochs_and_the_end() -> None:
    reporting = Reporting()
    assert reporting.report(step=1)
    reporting.clock.now += 0.9
    assert not reporting.report(step=2)
    assert reporting.report(step=3, now=True)
    reporting.clock.now += 0.9
    assert not reporting.report(step=4)
    reporting.clock.now += 0.2
    assert reporting.report(step=5)
    assert reporting.report(step=6, final=True)
    assert [line["step"] for line in reporting.lines] == [1, 3, 5, 6]
    assert [line["final"] for line in reporting.lines] == [False, False, False, True]


def test_a_clock_that_is_set_back_does_not_silence_it() -> None:
    reporting = Reporting()
    assert reporting.report(step=1)
    reporting.clock.now -= 3600
    assert reporting.report(step=2)


def test_numbers_that_json_lacks_are_null() -> None:
    reporting = Reporting()
    reporting.report(loss=float("nan"), metrics={"gradient": float("inf"), "rate": 0.123456789})
    assert reporting.lines[0]["loss"] is None
    assert reporting.lines[0]["metrics"] == {"gradient": None, "rate": 0.123457}


def test_a_line_that_would_be_too_long_leaves_metrics_out() -> None:
    reporting = Reporting()
    reporting.report(loss=1.0, metrics={f"metric {n}": float(n) for n in range(500)})
    assert len(reporting.stream.getvalue().encode()) <= LINE_BYTES
    metrics = reporting.lines[0]["metrics"]
    assert 20 < len(metrics) < 500
    assert metrics == {f"metric {n}": float(n) for n in range(len(metrics))}


def test_a_result_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="keep `result` small"):
        Reporting().report(result={"text": "x" * LINE_BYTES}, final=True)


def test_others_are_silent(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    reporting = Reporting(DISTTRAIN_LEADER="0", DISTTRAIN_TERMINATION_LOG=str(log))
    assert not reporting.report(step=1, final=True)
    reporting.progress.say("hello")
    assert reporting.stream.getvalue() == ""
    assert not log.exists()


def test_the_final_line_is_left_as_termination_message(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    reporting = Reporting(DISTTRAIN_TERMINATION_LOG=str(log))
    reporting.report(step=1)
    assert not log.exists(), "only a finished training has a result"
    reporting.report(step=2, result={"accuracy": 0.97}, final=True)
    assert json.loads(log.read_text()) == reporting.lines[-1]


def test_a_termination_message_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    reporting = Reporting(DISTTRAIN_TERMINATION_LOG=str(tmp_path / "nowhere" / "log"))
    assert reporting.report(step=1, final=True)
