"""Checkpoints by `tf.train.CheckpointManager`, for rounds: `r000002-s-480` is round 2, step 480."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..checkpoint import Claim
from ..shutdown import Refused

_NAME = re.compile(r"r(\d{6,})-s-(\d+)\.index")
DAMAGED = (tf.errors.OpError, ValueError, IndexError, RuntimeError)
"""What TensorFlow raises for a checkpoint that is cut short, altered or gone."""
KERAS_BACKUP = "chief"
"""The folder into which Keras' BackupAndRestore writes its one checkpoint."""


def found(folder: Path) -> list[tuple[int, int]]:
    """(round, step) of the checkpoints in a folder, the newest first."""
    if not folder.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(((int(m[1]), int(m[2])) for m in matches if m), reverse=True)


def path(folder: Path, round_: int, step: int) -> str:
    """What TensorFlow calls the checkpoint."""
    return str(folder / f"r{round_:06d}-s-{step}")


def claim(folder: Path, round_: int | None) -> Claim:
    """The folder for this round, for the one process that writes into it. Raises Refused."""
    try:
        return Claim(folder, round_, newest=lambda: next((found_round for found_round, _ in found(folder)), -1))
    except OSError as error:
        raise Refused(f"--checkpoint-dir: {error}. Give a folder that this user may write to") from error


def restore_newest(model: Any, folders: Sequence[Path]) -> tuple[int, int, int] | None:
    """Puts the newest checkpoint that is whole into the model, of the first folder that has one. What is passed over is
    said. Returns the folder's index, round and step.
    """
    for index, folder in enumerate(folders):
        for round_, step in found(folder):
            try:
                check(path(folder, round_, step))
            except DAMAGED as error:
                print(f"checkpoint {path(folder, round_, step)} is passed over: {error}", flush=True)
                continue
            restore(model, folder, round_, step)
            return index, round_, step
    return None


def check(checkpoint: str) -> None:
    """Reads all of it, which compares checksums, before anything is changed by a part of it. Raises one of DAMAGED."""
    reader = tf.train.load_checkpoint(checkpoint)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)


def restore(model: Any, folder: Path, round_: int, step: int) -> None:
    """Raises AssertionError where it is of another model."""
    status = tf.train.Checkpoint(model=model).restore(path(folder, round_, step))
    status.assert_existing_objects_matched()


class Writer:
    """Writes checkpoints. All processes of the world call `save`, since variables may need all of them to be read; only
    the one with a claim keeps what it wrote, the others write into a folder of their own that goes at once.
    """

    def __init__(self, model: Any, folder: Path, held: Claim | None, keep_last: int) -> None:
        self._held = held
        self._checkpoint = tf.train.Checkpoint(model=model)
        self._manager = None
        if held:
            self._manager = tf.train.CheckpointManager(
                self._checkpoint, str(folder), max_to_keep=keep_last, checkpoint_name=f"r{held.round:06d}-s"
            )

    def save(self, step: int) -> None:
        """Raises Superseded where a newer round has the folder."""
        if self._manager is None or self._held is None:
            scratch = tempfile.mkdtemp(prefix="disttrain-")
            self._checkpoint.write(f"{scratch}/unused")
            shutil.rmtree(scratch)
            return
        self._held.give_way()
        self._manager.save(checkpoint_number=step)
        self._held.prune()
