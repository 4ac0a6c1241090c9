"""Train a small network on real data, alone or distributed: an entrypoint to run as it is, or to copy.

One process:
    python -m disttrain_training.tensorflow.train --epochs=5
One process with two replicas:
    python -m disttrain_training.tensorflow.train --logical-cpus=2 --epochs=5
In the pods of a job, whose TF_CONFIG says who and where (--loop=fit: Keras' own loop):
    python -m disttrain_training.tensorflow.train --epochs=5
By hand, on machine i of 2:
    TF_CONFIG='{"cluster": {"worker": ["first:2222", "second:2222"]}, "task": {"type": "worker", "index": i}}' \
    python -m disttrain_training.tensorflow.train --epochs=5

With the same seed and global batch the losses are those of one process, whatever the number of workers. Killed or
stopped, it goes on from its newest checkpoint (--checkpoint-dir, which all workers must see). On SIGTERM to any worker
all of them finish the step, write a checkpoint and exit with 143. The task "evaluator" evaluates each new checkpoint
instead (`evaluator`), and where there are parameter servers `parameter_server` takes over.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .. import shutdown
from ..checkpoint import Claim, job_round
from ..data import digits
from ..progress import Progress
from ..sampling import Indices
from . import checkpoints, data, evaluator, fit, model, options, parameter_server, world
from .options import Options
from .world import World


class Trainer:
    """One training: built, resumed where there is something to resume, then `custom` or `fit`."""

    def __init__(self, options: Options, world: World, stop: shutdown.StopRequest) -> None:
        self.options, self.world, self.stop = options, world, stop
        self.progress = Progress(rank=world.rank, local_rank=0, world_size=world.size)
        self.digits = digits()
        self.images = data.channels_last(self.digits.train_images)
        self.held_out = data.channels_last(self.digits.held_out_images)
        self.count = len(self.images)
        self.epoch_steps = options.steps_an_epoch(self.count)
        self.of = self.epoch_steps * options.epochs
        with world.strategy.scope():
            self.model = model.build(options, self.of)
        self.step = 0  # optimizer steps done
        self.loss = math.nan  # of the last step, over all replicas
        self.rate = 0.0  # samples a second, all replicas together
        self.validated: tuple[float, float, int] | None = None  # mean loss, accuracy and number of held-out images
        self.saved: dict[str, int] | None = None  # the newest durable checkpoint
        self.train_step = tf.function(self._train_step)
        self.validation_step = tf.function(self._validation_step)
        self.round, self.claim = self.claim_folder()
        self.progress.say(
            f"{world.size} {'replica' if world.size == 1 else 'replicas'} under {type(world.strategy).__name__}, "
            f"{self.count} images, {options.global_batch_size} a step, {self.of} steps in {options.epochs} epochs"
        )
        if not options.checkpoint_dir:
            self.progress.say("no --checkpoint-dir: a restart begins at step 0")

    def claim_folder(self) -> tuple[int, Claim | None]:
        """The round, and the first rank's hold on the checkpoints' folder."""
        folder, held = self.options.checkpoint_dir, None
        if folder and self.world.rank == 0:
            held = checkpoints.claim(folder, job_round(os.environ))
        (round_,) = self.world.from_first([held.round if held else 0])
        return int(round_), held

    def training_batches(self) -> Iterator[Indices]:
        """What is left to train on; looked at when the pipeline starts, so after a resume."""
        return data.training_batches(
            self.count,
            self.options.global_batch_size,
            seed=self.options.seed,
            epochs=self.options.epochs,
            step=self.step,
        )

    def training_data(self) -> Any:
        """The distributed dataset of all steps that are left."""
        return self.world.strategy.distribute_datasets_from_function(
            lambda context: data.shares(self.images, self.digits.train_labels, self.training_batches, context)
        )

    def custom(self) -> int:
        """A loop of our own. Returns the exit code."""
        writer = None
        if folder := self.options.checkpoint_dir:
            writer = checkpoints.Writer(self.model, folder, self.claim, self.options.keep_last)
        if self.options.sources:
            self.resume(self.options.sources)
        batches = iter(self.training_data())
        began, done = time.monotonic(), 0
        while self.step < self.of:
            step_began = time.monotonic()
            loss, stopping = self.train_step(next(batches), float(self.stop.signal)).numpy()
            self.stop.wait(self.options.min_step_seconds - (time.monotonic() - step_began))
            self.step, self.loss, done = self.step + 1, float(loss), done + self.options.global_batch_size
            self.rate = done / (time.monotonic() - began)
            self.report_step()
            ends_epoch = self.step % self.epoch_steps == 0
            due = self.options.checkpoint_every and self.step % self.options.checkpoint_every == 0
            if writer and (ends_epoch or due or stopping):
                writer.save(self.step)
                self.saved = {"step": self.step, "round": self.round}
            if ends_epoch:
                self.end_epoch()
                began, done = time.monotonic(), 0
            if stopping and self.step < self.of:
                return self.stop_early()
        self.finish()
        return 0

    def _train_step(self, batch: Any, stop: Any) -> Any:
        """One step on all replicas. Returns the loss over the global batch, and whether any process is to stop."""
        optimizer, loss_of = self.model.optimizer, self.model.loss

        def replica(images: Any, labels: Any, weights: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, self.model(images, training=True), sample_weight=weights)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))  # adds them up
            return tf.stack([loss, tf.cast(stop, tf.float32)])

        return self.world.strategy.reduce("SUM", self.world.strategy.run(replica, args=batch), axis=None)

    def resume(self, folders: Sequence[Path]) -> None:
        """The first rank looks for the newest checkpoint that is whole; the others take the same one."""
        newest = checkpoints.restore_newest(self.model, folders) if self.world.rank == 0 else None
        index, round_, step = (int(value) for value in self.world.from_first(newest or (-1, 0, 0)))
        if index < 0:
            return
        if self.world.rank:
            checkpoints.restore(self.model, folders[index], round_, step)
        self.resumed(step, round_)

    def resumed(self, step: int, round_: int | None = None) -> None:
        """Notes where the training goes on; `round_` is the checkpoint's, if that is known."""
        self.step, self.saved = step, {"step": step, "round": self.round if round_ is None else round_}
        self.progress.say(f"resumed from a checkpoint at step {step}/{self.of}")

    def validate(self) -> tuple[float, float, int]:
        """Mean loss, accuracy and number of the held-out images, each counted once; all processes must call it."""

        def batches() -> Iterator[Indices]:
            return data.evaluation_batches(len(self.held_out))

        dataset = self.world.strategy.distribute_datasets_from_function(
            lambda context: data.shares(self.held_out, self.digits.held_out_labels, batches, context)
        )
        parts = iter(dataset)
        loss, hits, count = np.sum([self.validation_step(next(parts)).numpy() for _ in batches()], axis=0)
        return float(loss / count), float(hits / count), int(count)

    def _validation_step(self, batch: Any) -> Any:
        def replica(images: Any, labels: Any, _: Any) -> Any:
            scores = self.model(images, training=False)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            hits = tf.equal(tf.argmax(scores, axis=1), labels)
            sums = [
                tf.reduce_sum(losses),
                tf.reduce_sum(tf.cast(hits, tf.float32)),
                tf.cast(tf.size(labels), tf.float32),
            ]
            return tf.cast(tf.stack(sums), tf.float64)

        return self.world.strategy.reduce("SUM", self.world.strategy.run(replica, args=batch), axis=None)

    def end_epoch(self) -> None:
        self.validated = self.validate()
        epoch = self.step // self.epoch_steps
        self.progress.say(
            f"epoch {epoch}/{self.options.epochs}  step {self.step}/{self.of}  loss {self.loss:.4f}  "
            f"held-out loss {self.validated[0]:.4f}  accuracy {self.validated[1]:.4f}  {self.rate:.0f} samples/s"
        )
        self.progress.report(self.facts(epoch), now=True)

    def stop_early(self) -> int:
        kept = f"checkpoint of step {self.step} is written" if self.saved else "nothing is kept (no --checkpoint-dir)"
        self.progress.say(f"asked to stop: ended after step {self.step}/{self.of}; {kept}")
        self.progress.report(self.facts(), now=True)
        return self.stop.exit_code

    def finish(self) -> None:
        loss, accuracy, samples = self.validated = self.validated or self.validate()
        sha256 = model.weights_sha256(self.model)
        print(f"weights sha256 {sha256} rank {self.world.rank}", flush=True)
        self.progress.say(f"accuracy {accuracy:.4f} ({round(accuracy * samples)} of {samples} held-out images)")
        result = {"accuracy": accuracy, "loss": loss, "samples": samples, "weightsSha256": sha256}
        self.progress.report(self.facts(self.options.epochs) | {"result": result}, final=True)
        self.world.sum([1.0])  # leave together: the first rank's end would be an error to a peer that still works

    def report_step(self) -> None:
        if self.options.log_every and self.step % self.options.log_every == 0:
            self.progress.say(f"step {self.step}/{self.of}  loss {self.loss:.9f}")
        self.progress.report(self.facts())

    def facts(self, epoch: int | None = None) -> dict[str, object]:
        """What a progress line says; `epoch` where it is not the one worked on."""
        return {
            "epoch": epoch or min(self.step // self.epoch_steps + 1, self.options.epochs),
            "epochs": self.options.epochs,
            "step": self.step,
            "of": self.of,
            "loss": self.loss,
            "accuracy": self.validated[1] if self.validated else None,
            "samplesPerSecond": self.rate,
            "checkpoint": self.saved,
            "metrics": {"heldOutLoss": self.validated[0]} if self.validated else None,
        }


def main() -> int:
    """Returns the exit code."""
    chosen, place = options.parse(), world.task()
    if place.role == "evaluator":
        return evaluator.evaluate(chosen)
    if place.strategy(chosen.strategy) == "ps":
        return parameter_server.run(chosen, place)
    joined = world.join(chosen, place)
    stop = shutdown.StopRequest()
    stop.listen()
    trainer = Trainer(chosen, joined, stop)
    return fit.fit(trainer) if chosen.loop == "fit" else trainer.custom()


if __name__ == "__main__":
    shutdown.run(main)
