"""The trainer in a world of one, in this process: what needs no second process to be shown."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from disttrain_training.checkpoint import Superseded
from disttrain_training.data import digits
from disttrain_training.pytorch.distributed import World
from disttrain_training.pytorch.options import parse
from disttrain_training.pytorch.seeds import random_states, restore_random_states, seed_everything
from disttrain_training.pytorch.snapshot import weights_sha256
from disttrain_training.pytorch.train import Trainer
from disttrain_training.shutdown import Refused, StopRequest


@pytest.fixture(autouse=True)
def _plain_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("DISTTRAIN_ROUND", "DISTTRAIN_LEADER", "DISTTRAIN_CHECKPOINT_DIR", "DISTTRAIN_RESUME_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def trainer(*flags: str, stop: StopRequest | None = None) -> Trainer:
    return Trainer(parse(["--device=cpu", *flags]), World(), stop or StopRequest())


def trained(*flags: str) -> Trainer:
    """A trainer that went all the way."""
    it = trainer(*flags)
    assert it.fit() == 0
    return it


def accuracy(it: Trainer) -> float:
    assert it.validated is not None
    assert it.validated.count == 359
    return it.validated.accuracy


def test_the_mean_of_three_seeds() -> None:
    reached = [accuracy(trained("--epochs=5", f"--seed={seed}")) for seed in range(3)]
    assert sum(reached) / 3 >= 0.97
    assert min(reached) >= 0.95
    assert len(set(reached)) > 1, "seeds differ"


def test_the_split_is_stratified_and_always_the_same() -> None:
    data = digits()
    assert (len(data.train_labels), len(data.held_out_labels)) == (1438, 359)
    share = np.bincount(data.held_out_labels) / np.bincount(np.concatenate([data.train_labels, data.held_out_labels]))
    assert np.all(np.abs(share - 359 / 1797) < 0.01)
    assert data.train_images.shape == (1438, 1, 8, 8)
    assert data.train_images.dtype == np.float32
    assert abs(float(data.train_images.mean())) < 0.1
    assert np.array_equal(data.held_out_images, digits().held_out_images)


def test_a_finished_training_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = trained("--epochs=1", f"--checkpoint-dir={tmp_path}")
    capsys.readouterr()
    again = trained("--epochs=1", f"--checkpoint-dir={tmp_path}")
    assert "resumed from checkpoint r000000-s0000000060 at step 60/60" in capsys.readouterr().out
    assert again.validated == first.validated
    assert weights_sha256(again.module) == weights_sha256(first.module)


def test_stopped_within_an_epoch_it_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    flags = ("--epochs=1", "--dropout=0.2", "--deterministic")
    stop = StopRequest()
    stopped = trainer(*flags, f"--checkpoint-dir={tmp_path}", stop=stop)
    stop.signal = 15
    assert stopped.fit() == 143
    assert stopped.position.step == 1
    resumed = trained(*flags, f"--checkpoint-dir={tmp_path}")
    assert weights_sha256(resumed.module) == weights_sha256(trained(*flags).module)


def test_a_stop_in_the_last_step_is_no_stop() -> None:
    stop = StopRequest()
    stop.signal = 15
    it = trainer("--max-steps=1", stop=stop)
    assert it.fit() == 0


def test_a_run_goes_on_with_batches_of_another_size(tmp_path: Path) -> None:
    """As after a resize, with a batch size by worker: every sample of the epoch is still seen once."""
    stop = StopRequest()
    first = trainer("--epochs=2", "--batch-size=40", f"--checkpoint-dir={tmp_path}", stop=stop)
    assert first.of == 2 * 36
    stop.signal = 15
    first.fit()
    second = trainer("--epochs=2", "--batch-size=20", f"--checkpoint-dir={tmp_path}")
    assert second.of == 1 + 70 + 72, "one step of 40 done, 1,398 samples of this epoch and 1,438 of the next left"
    assert second.fit() == 0
    assert (second.position.epoch, second.position.samples, second.position.step) == (2, 0, second.of)
    assert second.schedule.get_last_lr() == [0.0]


def test_an_older_round_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTTRAIN_ROUND", "1")
    old = trainer("--epochs=1", f"--checkpoint-dir={tmp_path}")
    monkeypatch.setenv("DISTTRAIN_ROUND", "2")
    trainer("--epochs=1", f"--checkpoint-dir={tmp_path}")
    with pytest.raises(Superseded, match="this process is of round 1 and gives way"):
        old.fit()
    assert not list(tmp_path.glob("*.ckpt"))


def test_another_trainings_folder_is_only_read(tmp_path: Path) -> None:
    old = trained("--epochs=1", f"--checkpoint-dir={tmp_path / 'old'}")
    before = sorted(path.name for path in (tmp_path / "old").iterdir())
    flags = (f"--resume-from={tmp_path / 'old'}", f"--checkpoint-dir={tmp_path / 'new'}")
    new = trainer("--epochs=2", *flags)
    assert weights_sha256(new.module) == weights_sha256(old.module)
    assert (new.position.epoch, new.position.step, new.of) == (1, 60, 120)
    assert new.fit() == 0
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == before
    assert trainer("--epochs=2", *flags).position.step == 120, "its own checkpoints come first"


def test_no_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--epochs=1", f"--checkpoint-dir={tmp_path}", "--no-resume")
    trained(*flags)
    assert trainer(*flags).position.step == 0
    monkeypatch.setenv("DISTTRAIN_ROUND", "5")
    trained(*flags)
    with pytest.raises(Refused, match=r"--no-resume, but .* has checkpoints of this very round"):
        trainer(*flags)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"--checkpoint-dir: .*file.* Give a folder that this user may write to"):
        trainer(f"--checkpoint-dir={tmp_path / 'file' / 'state'}")


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--seed=1", "made with {'seed': 0, 'count': 1438}, this training has {'seed': 1, 'count': 1438}")],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path, flag: str, words: str) -> None:
    trained("--max-steps=1", f"--checkpoint-dir={tmp_path}")
    with pytest.raises(Refused, match="is of another training") as refused:
        trainer("--max-steps=1", f"--checkpoint-dir={tmp_path}", flag)
    assert words in str(refused.value)
    assert "--no-resume" in str(refused.value)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("--max-steps=1", f"--checkpoint-dir={tmp_path}")
    monkeypatch.setattr(
        "disttrain_training.pytorch.train.build_model",
        lambda dropout: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
    )
    with pytest.raises(Refused, match=r"is of another training: Error\(s\) in loading state_dict"):
        trainer("--max-steps=1", f"--checkpoint-dir={tmp_path}")


def test_bf16_trains_as_well() -> None:
    it = trained("--epochs=2", "--precision=bf16")
    assert accuracy(it) > 0.9
    assert next(it.module.parameters()).dtype == torch.float32


def test_the_learning_rate(tmp_path: Path) -> None:
    it = trainer("--max-steps=100", "--warmup-steps=10", "--lr=0.1")
    factors = [it.learning_rate_factor(step) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == factors[9] > 0.97
    assert factors[9:] == sorted(factors[9:], reverse=True)
    assert factors[100] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--precision=fp16"], "needs CUDA, this is cpu: use bf16"),
        (["--scale-lr"], "--scale-lr goes with --batch-size"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        trainer(*flags)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epochs=0"], "argument --epochs: 0 is out of range, must be at least 1"),
        (["--epochs=x"], "argument --epochs: invalid whole number value: 'x'"),
        (["--dropout=1"], "argument --dropout: 1 is out of range, must be at least 0 and at most 0.99"),
        (["--batch-size=8", "--global-batch-size=8"], "not allowed with argument"),
        (["--keep-last=0"], "must be at least 1"),
        (["--precision=fp8"], "invalid choice: 'fp8'"),
        (["--lr=nan"], "argument --lr: nan is out of range"),
        (["--start-timeout=inf"], "must be at least 0 and at most 1e+06"),
        (["--epoch=3"], "unrecognized arguments"),
    ],
)
def test_wrong_flags_are_refused(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(flags)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_sizes_and_rates_by_world() -> None:
    assert parse([]).global_batch(3) == parse([]).global_batch(8) == 24
    by_worker = parse(["--batch-size=8", "--accumulate=2", "--scale-lr", "--lr=0.01"])
    assert by_worker.global_batch(3) == 48
    assert by_worker.learning_rate(3) == pytest.approx(0.03)
    assert parse(["--batch-size=8", "--lr=0.01"]).learning_rate(3) == 0.01


def test_the_folder_comes_from_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse([]).checkpoint_dir is None
    monkeypatch.setenv("DISTTRAIN_CHECKPOINT_DIR", "/checkpoints/uid")
    assert parse([]).checkpoint_dir == Path("/checkpoints/uid")
    assert parse(["--checkpoint-dir=elsewhere"]).checkpoint_dir == Path("elsewhere")


def draw() -> list[Any]:
    return [random.random(), np.random.random(), np.random.standard_normal(), torch.rand(2).tolist()]


def test_random_states_come_back(tmp_path: Path) -> None:
    seed_everything(4)
    np.random.standard_normal()  # one of a pair: the other one is part of the state
    torch.save(random_states(), tmp_path / "states")
    expected = draw()
    assert draw() != expected
    restore_random_states(torch.load(tmp_path / "states", weights_only=True))
    assert draw() == expected
