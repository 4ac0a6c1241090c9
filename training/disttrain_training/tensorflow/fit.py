"""The training by Keras' `model.fit`, resumed by its BackupAndRestore."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras as keras  # not tf.keras: see model.py

from .checkpoints import KERAS_BACKUP

if TYPE_CHECKING:
    from .train import Trainer


class Stopped(Exception):
    """All processes left `fit` after the same step."""


class Backup(keras.callbacks.BackupAndRestore):
    """Keras' own, at the end of each epoch or every so many steps, and when a process is asked to stop.

    It takes care that all workers save and only the chief's file stays, and restores all of them from that.
    """

    def __init__(self, trainer: Trainer) -> None:
        options = trainer.options
        self.trainer = trainer
        super().__init__(
            str(options.checkpoint_dir),
            save_freq=options.checkpoint_every or trainer.epoch_steps,
            delete_checkpoint=False,  # a training that has ended says so again when it is started again
        )

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        if step := int(self.model.optimizer.iterations.numpy()):
            self.trainer.resumed(step)
            # BackupAndRestore counts the batches since the start; let it save at the same steps as if it went on.
            self._batches_count = step % self.save_freq

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trainer = self.trainer
        stopping = trainer.world.sum([float(trainer.stop.signal)])[0]
        if stopping:
            self.save_freq = 1  # now
        due = self._batches_count + 1 >= self.save_freq
        if due and trainer.claim:
            trainer.claim.give_way()
        super().on_train_batch_end(batch, logs)
        if due:
            trainer.saved = {"step": trainer.step, "round": trainer.round}
        if stopping and trainer.step < trainer.of:
            raise Stopped


class Report(keras.callbacks.Callback):
    """Progress lines; the loss is Keras' mean over the epoch so far."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trainer = trainer
        self.epoch_began = self.step_began = 0.0
        self.done = 0
        # Over several workers Keras adds up what is the mean already (tf_keras 2.21, training.reduce_per_replica).
        several = isinstance(trainer.world.strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.summed = trainer.world.size if several else 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch_began, self.done = time.monotonic(), 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.step_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trainer = self.trainer
        trainer.stop.wait(trainer.options.min_step_seconds - (time.monotonic() - self.step_began))
        trainer.step += 1
        self.done += trainer.options.global_batch_size
        trainer.rate = self.done / (time.monotonic() - self.epoch_began)
        trainer.loss = float((logs or {})["loss"]) / self.summed
        trainer.report_step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.trainer.end_epoch()


def fit(trainer: Trainer) -> int:
    """Returns the exit code."""
    options = trainer.options
    callbacks: list[Any] = [Report(trainer)]
    if options.checkpoint_dir and options.resume:
        callbacks.append(Backup(trainer))
    _bring(trainer)
    try:
        trainer.model.fit(
            trainer.training_data(),
            epochs=options.epochs,
            steps_per_epoch=trainer.epoch_steps,
            callbacks=callbacks,
            verbose=0,
        )
    except Stopped:
        return trainer.stop_early()
    trainer.finish()
    return 0


def _bring(trainer: Trainer) -> None:
    """BackupAndRestore knows one folder: what another training left (--resume-from) is copied into it first."""
    options = trainer.options
    if trainer.claim and options.resume and options.resume_from:
        backup, other = trainer.claim.folder / KERAS_BACKUP, options.resume_from / KERAS_BACKUP
        if other.is_dir() and not backup.exists():
            shutil.copytree(other, backup)
    trainer.world.sum([1.0])  # nobody looks before it is there
