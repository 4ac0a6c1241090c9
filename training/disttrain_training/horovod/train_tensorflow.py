"""Train a small Keras network on real data with Horovod: an entrypoint to run as it is, or to copy.

Two processes on this machine:
    horovodrun -np 2 python -m disttrain_training.horovod.train_tensorflow
In the launcher of a job:
    disttrain-horovodrun python -m disttrain_training.horovod.train_tensorflow

Horovod's Keras callbacks do the work: weights broadcast from rank 0, metrics averaged, learning rate warmed up. They
need Keras 2 (tf_keras): those of Horovod 0.28 fail under Keras 3.
"""

from __future__ import annotations

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported: what Horovod takes from it is then Keras 2

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
import tf_keras as keras

from .. import shutdown
from ..checkpoint import Claim, job_round
from ..data import digits
from ..flags import add_checkpoint_flags, add_running_flags, number
from ..progress import Progress, warn_if_alone
from ..sampling import GlobalBatchSampler, shard
from ..tensorflow import checkpoints
from ..tensorflow.data import channels_last
from ..tensorflow.model import weights_sha256


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Flags; wrong ones end the process with code 2 and a message."""
    parser = argparse.ArgumentParser(
        prog="disttrain_training.horovod.train_tensorflow",
        description="Trains a small convolutional network on scikit-learn's digits, with Horovod and Keras.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--epochs", type=number(int, 1), default=5, help="5 reach an accuracy of about 0.97")
    parser.add_argument("--global-batch-size", type=number(int, 1), default=24, help="samples a step, over all workers")
    parser.add_argument("--lr", type=number(float, 0, 1e6), default=0.03, help="reached at the end of the warm-up")
    parser.add_argument("--momentum", type=number(float, 0, 0.99), default=0.9, help="of SGD")
    parser.add_argument("--warmup-epochs", type=number(int, 0), default=1, help="in which --lr is reached step by step")
    parser.add_argument("--seed", type=number(int, 0), default=0, help="of weights and order")
    parser.add_argument("--compression", choices=("none", "fp16"), default="none", help="of gradients on their way")
    add_checkpoint_flags(parser)
    add_running_flags(parser)
    return parser.parse_args(arguments)


def build_model(options: argparse.Namespace) -> Any:
    """[n, 8, 8, 1] -> [n, 10], compiled with Horovod's optimizer."""
    keras.utils.set_random_seed(options.seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Conv2D(16, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    compression = hvd.Compression.fp16 if options.compression == "fp16" else hvd.Compression.none
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(options.lr, momentum=options.momentum), compression=compression
    )
    # The sum, since the weights of the samples (batches, below) make it a mean over the global batch.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(optimizer, loss, weighted_metrics=[], experimental_run_tf_function=False)
    return model


class Report(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Progress lines, checkpoints, and the stop that all ranks make together."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trainer = trainer
        self.began = self.step_began = 0.0
        self.done = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began, self.done = time.monotonic(), 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.step_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trainer, options = self.trainer, self.trainer.options
        trainer.stop.wait(options.min_step_seconds - (time.monotonic() - self.step_began))
        trainer.step += 1
        self.done += options.global_batch_size
        # One small reduction a step: whether any rank was asked to stop.
        stopping = float(hvd.allreduce(tf.constant(float(trainer.stop.signal)), op=hvd.Sum, name="stop"))
        due = options.checkpoint_every and trainer.step % options.checkpoint_every == 0
        if due or (stopping and trainer.step < trainer.of):
            trainer.save()
        if stopping and trainer.step < trainer.of:
            trainer.stopped = True
            self.model.stop_training = True
        trainer.loss = float((logs or {})["loss"])  # Keras' mean over this rank's epoch so far
        if options.log_every and trainer.step % options.log_every == 0:
            trainer.progress.say(f"step {trainer.step}/{trainer.of}  loss {trainer.loss:.9f}")
        trainer.progress.report(trainer.facts(self.done / (time.monotonic() - self.began)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        trainer = self.trainer
        if trainer.stopped:
            return
        trainer.loss = float((logs or {})["loss"])  # averaged over the ranks by now
        trainer.evaluate()
        trainer.save()
        rate = self.done / (time.monotonic() - self.began)
        trainer.progress.say(
            f"epoch {epoch + 1}/{trainer.options.epochs}  step {trainer.step}/{trainer.of}  loss {trainer.loss:.4f}  "
            f"held-out loss {trainer.held_out_loss:.4f}  accuracy {trainer.accuracy:.4f}  {rate:.0f} samples/s"
        )
        trainer.progress.report(trainer.facts(rate), now=True)


class Trainer:
    """One training: built, resumed where there is something to resume, then `fit`."""

    def __init__(self, options: argparse.Namespace, stop: shutdown.StopRequest) -> None:
        self.options, self.stop, self.stopped = options, stop, False
        self.rank, self.size = hvd.rank(), hvd.size()
        warn_if_alone(self.size, "Start with disttrain-horovodrun, or with mpirun, in the launcher")
        # The leader is the launcher's pod, whose log shows what rank 0 prints, whatever pod that runs in.
        environ = {name: value for name, value in os.environ.items() if name != "DISTTRAIN_LEADER"}
        self.progress = Progress(rank=self.rank, local_rank=hvd.local_rank(), world_size=self.size, environ=environ)
        self.data = digits()
        self.sampler = GlobalBatchSampler(
            len(self.data.train_labels),
            options.global_batch_size,
            rank=self.rank,
            world_size=self.size,
            seed=options.seed,
        )
        self.epoch_steps = len(self.sampler)
        self.of = self.epoch_steps * options.epochs
        self.step, self.loss, self.held_out_loss, self.accuracy = 0, float("nan"), float("nan"), float("nan")
        self.saved: dict[str, int] | None = None
        self.model = build_model(options)
        self.claim: Claim | None = None
        self.writer: checkpoints.Writer | None = None
        if options.checkpoint_dir and self.rank == 0:
            self.claim = checkpoints.claim(options.checkpoint_dir, job_round(os.environ))
            self.resume()
            self.writer = checkpoints.Writer(self.model, options.checkpoint_dir, self.claim, options.keep_last)
        # Weights and optimizer follow in the first step, by the callback.
        self.step = hvd.broadcast_object(self.step, root_rank=0)
        self.progress.say(f"{self.size} Horovod processes with Keras, {self.of} steps in {options.epochs} epochs")
        if self.step:
            self.progress.say(f"resumed at step {self.step}/{self.of}")

    def resume(self) -> None:
        """On rank 0."""
        if not self.options.resume:
            return
        found = checkpoints.restore_newest(self.model, [self.options.checkpoint_dir])
        if found:
            _, round_, self.step = found
            self.saved = {"step": self.step, "round": round_}

    def dataset(self) -> Any:
        """From where the training is to its end."""
        step = self.step
        kinds = (tf.TensorSpec([None, 8, 8, 1]), tf.TensorSpec([None], tf.int64), tf.TensorSpec([None]))
        return tf.data.Dataset.from_generator(lambda: self.batches(step), output_signature=kinds).prefetch(2)

    def batches(self, step: int) -> Iterator[tuple[Any, Any, Any]]:
        """This rank's share of each global batch from a step on.

        Horovod averages gradients over the ranks. With weights of ranks over the global count, and losses summed, that
        average is the gradient of the mean over the global batch, also where the shares differ in size.
        """
        images, labels = channels_last(self.data.train_images), self.data.train_labels
        first, done = divmod(step, self.epoch_steps)
        for epoch in range(first, self.options.epochs):
            start = done * self.options.global_batch_size if epoch == first else 0
            self.sampler.set_epoch(epoch, start=start)
            for mine in self.sampler:
                weight = self.size / self.sampler.batch_size_at(start)
                start += self.options.global_batch_size
                yield images[mine], labels[mine], np.full(len(mine), weight, np.float32)

    def fit(self) -> int:
        """Train to the end, or until a stop is asked for. Returns the exit code."""
        options = self.options
        callbacks = [
            # One rank's weights and optimizer for all, whatever each was seeded or loaded with.
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
            Report(self),
        ]
        if options.warmup_epochs:
            warmup = hvd_keras.callbacks.LearningRateWarmupCallback(
                initial_lr=options.lr,
                warmup_epochs=options.warmup_epochs,
                steps_per_epoch=self.epoch_steps,
                momentum_correction=False,  # it would set the momentum, which is a constant since Keras 2.11
            )
            callbacks.insert(1, warmup)
        first, done = divmod(self.step, self.epoch_steps)
        if done:  # the rest of an epoch that was broken off
            self.model.fit(self.dataset(), epochs=first + 1, initial_epoch=first,
                           steps_per_epoch=self.epoch_steps - done, callbacks=callbacks, verbose=0)  # fmt: skip
            first += 1
        if not self.stopped and first < options.epochs:
            self.model.fit(self.dataset(), epochs=options.epochs, initial_epoch=first,
                           steps_per_epoch=self.epoch_steps, callbacks=callbacks, verbose=0)  # fmt: skip
        if self.stopped:
            self.progress.say(f"asked to stop: ended after step {self.step}/{self.of}")
            return self.stop.exit_code
        self.finish()
        return 0

    def evaluate(self) -> None:
        """Over every held-out image once. Sums and counts are added up: a mean of the ranks' means would be wrong,
        since their shards differ in size."""
        mine = shard(len(self.data.held_out_labels), self.rank, self.size)
        labels = self.data.held_out_labels[mine]
        scores = self.model(channels_last(self.data.held_out_images[mine]), training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        correct = np.sum(np.argmax(scores, axis=1) == labels)
        sums = tf.stack([tf.reduce_sum(losses), tf.constant(float(correct)), tf.constant(float(len(labels)))])
        loss, right, count = hvd.allreduce(sums, op=hvd.Sum, name="held-out").numpy().tolist()
        self.held_out_loss, self.accuracy, self.count = loss / count, right / count, round(count)

    def save(self) -> None:
        if self.writer and self.claim:
            self.writer.save(self.step)
            self.saved = {"step": self.step, "round": self.claim.round}

    def finish(self) -> None:
        if np.isnan(self.accuracy):  # a finished training is resumed: weights are rank 0's alone as yet
            hvd.broadcast_variables(self.model.variables, root_rank=0)
            self.evaluate()
        sha256 = weights_sha256(self.model)
        print(f"weights sha256 {sha256} rank {self.rank}", flush=True)
        self.progress.say(f"accuracy {self.accuracy:.4f} of {self.count} held-out images")
        result = {"accuracy": self.accuracy, "loss": self.held_out_loss, "samples": self.count, "weightsSha256": sha256}
        self.progress.report(self.facts(0.0) | {"result": result}, final=True)

    def facts(self, rate: float) -> dict[str, object]:
        """What a progress line says."""
        return {
            "epoch": min(self.step // self.epoch_steps + 1, self.options.epochs),
            "epochs": self.options.epochs,
            "step": self.step,
            "of": self.of,
            "loss": self.loss,
            "accuracy": None if np.isnan(self.accuracy) else self.accuracy,
            "samplesPerSecond": rate or None,
            "checkpoint": self.saved,
        }


def main() -> int:
    """Returns the exit code."""
    options = parse()
    hvd.init()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    stop = shutdown.StopRequest()
    stop.listen()
    code = Trainer(options, stop).fit()
    hvd.allreduce(tf.constant(0.0), name="end")  # nobody goes while a peer may still need them
    hvd.shutdown()
    return code


if __name__ == "__main__":
    shutdown.run(main)
