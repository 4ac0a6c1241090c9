"""The entrypoint as a user starts it, with its defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.launch import Launcher, Run

pytestmark = pytest.mark.timeout(300)  # seconds; processes start slowly on a busy machine

KEYS = {"rank", "worldSize", "epoch", "epochs", "step", "of", "loss", "samplesPerSecond", "time", "final", "metrics"}


@pytest.fixture(scope="module")
def last_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pod") / "termination-log"


@pytest.fixture(scope="module")
def run(launcher: Launcher, last_words: Path) -> Run:
    """Three workers, five epochs, as in the first example; rank 0's pod leads."""
    run = launcher.torchrun(
        3, "--epochs=5", f"--checkpoint-dir={last_words.parent / 'state'}", DISTTRAIN_TERMINATION_LOG=str(last_words)
    )
    assert run.wait() == 0, run.output
    return run


def test_it_learns_and_no_held_out_image_is_counted_twice(run: Run) -> None:
    result = run.progress[-1]["result"]
    assert result["samples"] == 359
    assert result["accuracy"] >= 0.95
    assert f"accuracy {result['accuracy']:.4f} ({round(result['accuracy'] * 359)} of 359 held-out images)" in run.lines


def test_every_rank_ends_with_the_same_weights(run: Run) -> None:
    assert run.weights == dict.fromkeys(range(3), run.progress[-1]["result"]["weightsSha256"])


def test_progress_lines_keep_the_contract(run: Run) -> None:
    lines = [line for line in run.lines if line.startswith("DISTTRAIN_PROGRESS ")]
    assert all(len(line.encode()) <= 2000 for line in lines)
    progress = run.progress
    assert all(line.keys() >= KEYS for line in progress)
    assert {line["rank"] for line in progress} == {0}
    assert [line["final"] for line in progress] == [False] * (len(progress) - 1) + [True]
    ends = [line for line in progress if line["step"] % 60 == 0 and not line["final"] and "accuracy" in line]
    assert {(line["epoch"], line["step"]) for line in ends} >= {(n, 60 * n) for n in range(1, 6)}
    assert progress[-1] | {"time": 0} == progress[-1] | {
        "worldSize": 3,
        "epoch": 5,
        "epochs": 5,
        "step": 300,
        "of": 300,
        "checkpoint": {"step": 300, "round": 0},
        "time": 0,
    }


def test_the_final_line_is_the_termination_message(run: Run, last_words: Path) -> None:
    assert json.loads(last_words.read_text()) == run.progress[-1]
