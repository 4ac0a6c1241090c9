"""Real worlds of TensorFlow processes: one model however many train it, stops, resumes, refusals."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorflow_python import MARKS, PYTHON
from training.launch import Run, clean_environment, free_port

pytestmark = MARKS
TRAIN = "disttrain_training.tensorflow.train"
STEPS = 50


class Worlds:
    """Starts worlds whose logs lie in one folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Run] = []

    def start(self, world: int, *flags: str, **env: str) -> list[Run]:
        """A world of so many workers, by rank; one has no TF_CONFIG."""
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(world)]
        started = []
        for index in range(world):
            config = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
            own = {"TF_CONFIG": config} if world > 1 else {}
            log = self.folder / f"run-{len(self.runs)}.log"
            run = Run([PYTHON, "-m", TRAIN, *flags], log, clean_environment(**own, **env))
            self.runs.append(run)
            started.append(run)
        return started

    def trained(self, world: int, *flags: str, **env: str) -> list[Run]:
        """A world that ran to its end."""
        runs = self.start(world, *flags, **env)
        for run in runs:
            assert run.wait() == 0, run.output
        return runs


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    worlds = Worlds(tmp_path_factory.mktemp("runs"))
    yield worlds
    for run in worlds.runs:
        run.end()


FLAGS = ("--epochs=2", "--log-every=1")


@pytest.fixture(scope="module")
def two(worlds: Worlds) -> list[Run]:
    """Two workers, undisturbed."""
    return worlds.trained(2, *FLAGS)


def test_losses_do_not_depend_on_the_number_of_workers(worlds: Worlds, two: list[Run]) -> None:
    [alone] = worlds.trained(1, *FLAGS)
    [replicas] = worlds.trained(1, *FLAGS, "--logical-cpus=5")  # shares of 4 and 5, and in the last step of an epoch
    assert len(alone.losses) == 120
    assert alone.losses[:STEPS] == pytest.approx(two[0].losses[:STEPS], abs=1e-5)
    assert alone.losses[:STEPS] == pytest.approx(replicas.losses[:STEPS], abs=1e-5)
    for run, size in ((alone, 1), (two[0], 2), (replicas, 5)):
        assert {line["worldSize"] for line in run.progress} == {size}
        assert run.progress[-1]["result"]["samples"] == 359
    assert two[0].weights[0] == two[1].weights[1] == two[0].progress[-1]["result"]["weightsSha256"]


def test_a_stop_and_a_damaged_checkpoint_change_nothing(worlds: Worlds, two: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    flags = (*FLAGS, f"--checkpoint-dir={folder}", "--checkpoint-every=20")
    first, second = worlds.start(2, *flags, "--min-step-seconds=0.05", DISTTRAIN_ROUND="1")
    first.until(lambda: len(first.losses) >= 45)
    second.process.send_signal(signal.SIGTERM)
    assert (first.wait(), second.wait()) == (143, 143), first.output + second.output
    stopped = len(first.losses)
    assert f"asked to stop: ended after step {stopped}/120; checkpoint of step {stopped} is written" in first.output
    assert first.losses == two[0].losses[:stopped]
    newest = folder / f"r000001-s-{stopped}.data-00000-of-00001"
    newest.write_bytes(newest.read_bytes()[:-100])

    resumed = worlds.trained(2, *flags, DISTTRAIN_ROUND="2")
    assert "is passed over" in resumed[0].output
    assert "resumed from a checkpoint at step 40/120" in resumed[0].output
    assert [run.weights for run in resumed] == [run.weights for run in two]
    assert {line["checkpoint"]["round"] for line in resumed[0].progress[-2:]} == {2}

    [late] = worlds.start(1, *flags, DISTTRAIN_ROUND="1")
    assert late.wait() == 1
    assert "round 2 of this job has" in late.output


def test_fit_goes_on_where_it_was_stopped(worlds: Worlds, two: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    flags = (*FLAGS, "--loop=fit", f"--checkpoint-dir={folder}")
    first, second = worlds.start(2, *flags, "--min-step-seconds=0.05")
    first.until(lambda: len(first.losses) >= 70)
    first.process.send_signal(signal.SIGTERM)
    assert (first.wait(), second.wait()) == (143, 143), first.output + second.output
    stopped = len(first.losses)
    other = (*FLAGS, "--loop=fit", f"--resume-from={folder}", f"--checkpoint-dir={tmp_path / 'other'}")
    resumed = worlds.trained(2, *other)
    assert f"resumed from a checkpoint at step {stopped}/120" in resumed[0].output
    assert len(resumed[0].losses) == 120 - stopped
    assert resumed[0].progress[-1]["accuracy"] == pytest.approx(two[0].progress[-1]["accuracy"], abs=0.01)
    assert resumed[0].weights[0] == resumed[1].weights[1]


@pytest.mark.parametrize(
    ("flags", "config", "words"),
    [
        (["--strategy=tpu"], "", "--strategy=tpu finds no TPU under the name 'local'"),
        (["--strategy=multiworker"], "", "needs TF_CONFIG, which a job sets; alone use --strategy=mirrored"),
        (["--strategy=ps"], "", "parameter servers need TF_CONFIG with a chief, workers and ps"),
        ([], '{"cluster": {}}', """TF_CONFIG is '{"cluster": {}}', must be"""),
    ],
)
def test_what_cannot_train_is_refused(worlds: Worlds, flags: list[str], config: str, words: str) -> None:
    [run] = worlds.start(1, *flags, TF_CONFIG=config)
    assert run.wait() == 1
    assert re.search(rf"^error: .*{re.escape(words)}", run.output, re.MULTILINE), run.output
