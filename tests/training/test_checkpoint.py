"""Checkpoint files: whole or not there, the damaged passed over, the newer round's untouched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from disttrain_training import checkpoint
from disttrain_training.checkpoint import Checkpoints, CheckpointWriter, Superseded, job_round
from disttrain_training.shutdown import Refused


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def writer(tmp_path: Path, said: list[str]) -> CheckpointWriter:
    return CheckpointWriter(tmp_path / "state", round_=1, keep_last=2, say=said.append)


def steps(writer: Checkpoints) -> list[int]:
    return [checkpoint.step for checkpoint in writer.all()]


def test_what_was_saved_comes_back(writer: CheckpointWriter, said: list[str]) -> None:
    saved = writer.save(b"state at 10", step=10, score=0.5)
    assert writer.newest() == (saved, b"state at 10")
    assert Checkpoints(writer.folder).newest() == (saved, b"state at 10")
    assert (saved.round, saved.step, saved.size, saved.score) == (1, 10, 11, 0.5)
    assert said == []


def test_an_empty_or_absent_folder_has_none(writer: CheckpointWriter, tmp_path: Path) -> None:
    assert writer.newest() is None
    assert writer.best() is None
    assert Checkpoints(tmp_path / "nowhere").newest() is None


def test_the_last_and_the_best_are_kept(writer: CheckpointWriter) -> None:
    for step, score in [(1, 0.1), (2, 0.9), (3, None), (4, 0.3), (5, 0.2)]:
        writer.save(b"x", step=step, score=score)
    assert steps(writer) == [2, 4, 5]
    best = writer.best()
    assert best is not None
    assert best.step == 2
    assert {path.suffix for path in writer.folder.iterdir()} == {".json", ".ckpt", ".claim"}


def test_of_equal_scores_the_newest_is_best(writer: CheckpointWriter) -> None:
    for step in (1, 2, 3):
        writer.save(b"x", step=step, score=0.0)
    assert writer.best() == writer.all()[-1]


def test_a_step_may_be_saved_again(writer: CheckpointWriter) -> None:
    writer.save(b"before validation", step=10)
    again = writer.save(b"after it", step=10, score=0.7)
    assert writer.newest() == (again, b"after it")
    assert writer.all() == [again]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def garble(path: Path) -> None:
    path.with_suffix(".json").write_text("{")


def borrow(path: Path) -> None:
    manifest = path.with_suffix(".json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"step": 19}))


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (truncate, "it has 8 bytes, its manifest says 9: half written"),
    (flip, "its SHA-256 is"),
    (lambda path: path.unlink(), "its bytes cannot be read"),
    (lambda path: path.with_suffix(".json").unlink(), "it has no manifest: half written"),
    (garble, "its manifest r000001-s0000000020.json cannot be read"),
    (borrow, "its manifest r000001-s0000000020.json is that of r000001-s0000000019"),
    (lambda path: path.with_suffix(".json").write_text('{"step": 20}'), "cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_said(
    writer: CheckpointWriter, said: list[str], damage: Callable[[Path], object], words: str
) -> None:
    before = writer.save(b"state 010", step=10)
    newest = writer.save(b"state 020", step=20, score=1.0)
    damage(writer.folder / f"{newest.name}.ckpt")
    assert writer.newest() == (before, b"state 010")
    assert len(said) == 1
    assert said[0].startswith(f"checkpoint {newest.name} in {writer.folder} is passed over: ")
    assert words in said[0]
    writer.save(b"state 015", step=15)
    assert steps(writer) == [10, 15], "the damaged one counts neither as one of the last nor as the best"
    assert not list(writer.folder.glob("*s0000000020*"))


def test_a_write_that_is_cut_off_leaves_the_checkpoint_before(
    writer: CheckpointWriter, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = writer.save(b"old", step=1)

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match=r"No space left on device: '.*s0000000002\.ckpt'"):
            writer.save(b"new", step=2)
    assert writer.newest() == (before, b"old")
    assert said == []
    assert not list(writer.folder.glob("*.part"))


def test_what_a_killed_writer_left_is_said_and_cleared(writer: CheckpointWriter, said: list[str]) -> None:
    (writer.folder / "r000001-s0000000030.ckpt.part").write_bytes(b"hal")
    assert writer.newest() is None
    assert "it has no manifest: half written" in said[0]
    writer.save(b"x", step=31)
    assert not list(writer.folder.glob("*.part"))


def test_an_older_round_gives_way(writer: CheckpointWriter) -> None:
    writer.save(b"old", step=10)
    newer = CheckpointWriter(writer.folder, round_=2)
    with pytest.raises(Superseded, match=r"round 2 of this job has .* this process is of round 1 and gives way"):
        writer.save(b"from the dead", step=20)
    saved = newer.save(b"new", step=11)
    assert newer.newest() == (saved, b"new")
    with pytest.raises(Superseded):
        CheckpointWriter(writer.folder, round_=1)


def test_an_older_round_deletes_nothing_of_a_newer_one_that_came_while_it_wrote(
    writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer: list[CheckpointWriter] = []
    write = checkpoint._write

    def interrupted(path: Path, payload: bytes) -> None:
        write(path, payload)
        if path.suffix == ".json" and not newer:
            newer.append(CheckpointWriter(writer.folder, round_=2))
            newer[0].save(b"new", step=3)

    monkeypatch.setattr(checkpoint, "_write", interrupted)
    with pytest.raises(Superseded):
        writer.save(b"old", step=9)
    assert newer[0].newest() == (newer[0].all()[-1], b"new")


def test_a_higher_round_is_newer_whatever_its_step(writer: CheckpointWriter) -> None:
    writer.save(b"further, but of a world that was given up", step=60)
    newer = CheckpointWriter(writer.folder, round_=2)
    newer.save(b"new", step=55)
    found = newer.newest()
    assert found is not None
    assert found[1] == b"new"


def test_without_a_job_each_start_is_a_round(tmp_path: Path) -> None:
    assert CheckpointWriter(tmp_path).round == 0
    second = CheckpointWriter(tmp_path)
    assert second.round == 1
    second.save(b"x", step=1)
    assert CheckpointWriter(tmp_path).round == 2


def test_foreign_files_are_left_alone(writer: CheckpointWriter) -> None:
    notes = writer.folder / "notes.json"
    notes.write_text("mine")
    for step in range(5):
        writer.save(b"x", step=step)
    assert notes.read_text() == "mine"


def test_keep_last_is_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_last is 0, must be at least 1"):
        CheckpointWriter(tmp_path, keep_last=0)


def test_the_round_of_the_job() -> None:
    assert job_round({}) is None
    assert job_round({"DISTTRAIN_ROUND": "7"}) == 7
    with pytest.raises(Refused, match="DISTTRAIN_ROUND is 'x', must be a whole number"):
        job_round({"DISTTRAIN_ROUND": "x"})
