"""Killed, stopped, its checkpoints damaged: the final weights are those of a run that nobody disturbed.

Dropout is on, so the random states of each rank must be restored as well, and checkpoints lie within epochs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from training.launch import TRAIN, Launcher, Run

pytestmark = pytest.mark.timeout(300)  # seconds; processes start slowly on a busy machine

FLAGS = ("--epochs=2", "--seed=5", "--dropout=0.3", "--checkpoint-every=10")
SLOW = ("--min-step-seconds=0.03",)


@pytest.fixture(scope="module")
def undisturbed(launcher: Launcher) -> str:
    run = launcher.torchrun(3, *FLAGS)
    assert run.wait() == 0, run.output
    assert "no --checkpoint-dir: a restart begins at step 0" in run.lines
    return run.weights[0]


def checkpointed(run: Run, step: int) -> bool:
    return any(line.get("checkpoint", {}).get("step", 0) >= step for line in run.progress)


def test_killed_and_with_its_newest_checkpoints_damaged_it_ends_the_same(
    launcher: Launcher, undisturbed: str, tmp_path: Path
) -> None:
    folder = f"--checkpoint-dir={tmp_path}"
    run = launcher.torchrun(3, *FLAGS, *SLOW, folder)
    run.until(lambda: checkpointed(run, 40))
    os.kill(run.pid_of_rank(2), signal.SIGKILL)
    assert run.wait() != 0
    assert not run.weights, "the survivors ended as well"

    *_, third, second, newest = sorted(tmp_path.glob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:1000])  # half written
    flipped = bytearray(second.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    second.write_bytes(flipped)

    again = launcher.torchrun(3, *FLAGS, folder)
    assert again.wait() == 0, again.output
    assert f"checkpoint {newest.stem} in {tmp_path} is passed over: it has 1000 bytes" in again.output
    assert f"checkpoint {second.stem} in {tmp_path} is passed over: its SHA-256 is" in again.output
    assert f"resumed from checkpoint {third.stem} at step {int(third.stem.split('s')[1])}/120" in again.lines
    assert again.weights == dict.fromkeys(range(3), undisturbed)
    assert len(list(tmp_path.glob("*.ckpt"))) <= 4, "the last 3 and the best are kept"


def test_sigterm_to_one_ends_all_after_the_same_step_and_they_go_on_later(
    launcher: Launcher, undisturbed: str, tmp_path: Path
) -> None:
    train = ("-m", TRAIN, *FLAGS, f"--checkpoint-dir={tmp_path}", "--resume")
    runs = launcher.plain(3, *train, *SLOW, DISTTRAIN_ROUND="1")
    runs[0].until(lambda: len(runs[0].progress) > 1)
    runs[1].process.send_signal(signal.SIGTERM)
    assert [run.wait() for run in runs] == [143] * 3, "\n".join(run.output for run in runs)
    newest = sorted(tmp_path.glob("*.ckpt"))[-1]
    step = int(newest.stem.split("s")[1])
    assert f"asked to stop: ended after step {step}/120; checkpoint {newest.stem} is written" in runs[0].lines
    assert runs[0].progress[-1]["step"] == step
    assert runs[0].progress[-1]["checkpoint"] == {"step": step, "round": 1}
    assert not runs[0].progress[-1]["final"]

    again = launcher.plain(3, *train, DISTTRAIN_ROUND="2")
    assert [run.wait() for run in again] == [0] * 3, "\n".join(run.output for run in again)
    assert f"resumed from checkpoint {newest.stem} at step {step}/120" in again[0].lines
    assert [run.weights[rank] for rank, run in enumerate(again)] == [undisturbed] * 3
