"""Asynchronous training with parameter servers: the chief hands out steps, the workers take them, the servers hold the
weights. An entrypoint to run as it is, or to copy.

In the pods of a job with `chief`, `ps` and `worker` roles (and an `evaluator`, if you like), whose TF_CONFIG says who
and where:
    python -m disttrain_training.tensorflow.parameter_server --epochs=5

A lost worker is not missed: the chief gives its step to another, and the one that comes back joins in. A lost server
takes the weights with it: the chief ends, and its successor restores the newest checkpoint. Servers and workers never
end by themselves; the job ends them once the chief has ended.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, NoReturn

import tensorflow as tf

from .. import shutdown
from ..checkpoint import job_round
from ..data import digits
from ..progress import Progress
from ..shutdown import Refused
from . import checkpoints, data, evaluator, model, options, world
from .options import Options
from .world import Task

STEPS_AHEAD = 8
"""Steps a worker that are handed out at once: enough to keep all busy, few enough to stop soon."""


def serve(place: Task) -> NoReturn:
    """A worker or server: does what the chief asks for, until the process is ended."""
    world.wait_for_port(place.address)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(dict(place.cluster)),
        job_name=place.role,
        task_index=place.index,
        protocol="grpc",
    )
    print(f"{place.role} {place.index} serves at {place.address}", flush=True)
    server.join()
    raise AssertionError("a TensorFlow server has no end")


class Coordinator:
    """The chief's part."""

    def __init__(self, options: Options, place: Task, stop: shutdown.StopRequest) -> None:
        self.options, self.stop = options, stop
        self.workers = len(place.cluster.get("worker", ()))
        self.progress = Progress(rank=0, local_rank=0, world_size=self.workers)
        self.digits = digits()
        self.images = data.channels_last(self.digits.train_images)
        self.held_out = data.channels_last(self.digits.held_out_images)
        self.epoch_steps = options.steps_an_epoch(len(self.images))
        self.of = self.epoch_steps * options.epochs
        self.loss, self.rate = math.nan, 0.0
        self.accuracy: float | None = None
        self.saved: dict[str, int] | None = None
        self.strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.model = model.build(options, self.of)
        self.train_step = tf.function(self._train_step)
        self.writer, self.round = None, 0
        self.step = 0
        if folder := options.checkpoint_dir:
            held = checkpoints.claim(folder, job_round(os.environ))
            self.round = held.round
            self.writer = checkpoints.Writer(self.model, folder, held, options.keep_last)
        if newest := checkpoints.restore_newest(self.model, options.sources):
            _, round_, self.step = newest
            self.saved = {"step": self.step, "round": round_}
            self.progress.say(f"resumed from a checkpoint at step {self.step}/{self.of}")
        self.progress.say(
            f"{self.workers} workers and {len(place.cluster['ps'])} parameter servers, {len(self.images)} images, "
            f"{options.global_batch_size} a step, {self.of} steps in {options.epochs} epochs"
        )

    def dataset(self, context: Any) -> Any:
        """Each worker draws from all images, in an order of its own: nobody waits for anybody."""
        pairs = tf.data.Dataset.from_tensor_slices((self.images, self.digits.train_labels))
        return pairs.shuffle(len(self.images)).repeat().batch(self.options.global_batch_size).prefetch(tf.data.AUTOTUNE)

    def _train_step(self, batches: Any) -> Any:
        """One step on the worker that takes it; its mean loss."""

        def replica(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = self.model.loss(labels, self.model(images, training=True))  # the sum
                loss = losses / tf.cast(tf.size(labels), tf.float32)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self.model.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
            return loss

        return self.strategy.run(replica, args=next(batches))

    def train(self) -> int:
        """To the end, or until a stop is asked for. Returns the exit code."""
        batches = iter(self.coordinator.create_per_worker_dataset(self._per_worker))
        began, done = time.monotonic(), 0
        while self.step < self.of:
            chunk_began = time.monotonic()
            steps = self.chunk()
            results = [self.coordinator.schedule(self.train_step, args=(batches,)) for _ in range(steps)]
            self.coordinator.join()  # raises once a server is lost; not for a worker
            self.step += steps
            done += steps * self.options.global_batch_size
            self.loss = float(results[-1].fetch())
            self.rate = done / (time.monotonic() - began)
            self.report_step()
            ends_epoch = self.step % self.epoch_steps == 0
            due = self.options.checkpoint_every and self.step % self.options.checkpoint_every == 0
            if ends_epoch or due or self.stop.signal:
                self.save()
            if ends_epoch:
                self.end_epoch()
            if self.stop.signal and self.step < self.of:
                self.progress.say(f"asked to stop: ended after step {self.step}/{self.of}")
                self.progress.report(self.facts(), now=True)
                return self.stop.exit_code
            pace = self.options.min_step_seconds * steps / self.workers
            self.stop.wait(pace - (time.monotonic() - chunk_began))
        self.finish()
        return 0

    def _per_worker(self) -> Any:
        return self.strategy.distribute_datasets_from_function(self.dataset)

    def chunk(self) -> int:
        """Steps to hand out next: none beyond the epoch or the next checkpoint."""
        left = [STEPS_AHEAD * self.workers, self.epoch_steps - self.step % self.epoch_steps]
        if every := self.options.checkpoint_every:
            left.append(every - self.step % every)
        return min(left)

    def save(self) -> None:
        if self.writer:
            self.writer.save(self.step)
            self.saved = {"step": self.step, "round": self.round}

    def end_epoch(self) -> None:
        loss, self.accuracy = evaluator.measure(self.model, self.held_out, self.digits.held_out_labels)
        epoch = self.step // self.epoch_steps
        self.progress.say(
            f"epoch {epoch}/{self.options.epochs}  step {self.step}/{self.of}  loss {self.loss:.4f}  "
            f"held-out loss {loss:.4f}  accuracy {self.accuracy:.4f}  {self.rate:.0f} samples/s"
        )
        self.progress.report(self.facts(epoch), now=True)

    def finish(self) -> None:
        loss, self.accuracy = evaluator.measure(self.model, self.held_out, self.digits.held_out_labels)
        sha256, samples = model.weights_sha256(self.model), len(self.held_out)
        print(f"weights sha256 {sha256} rank 0", flush=True)
        self.progress.say(
            f"accuracy {self.accuracy:.4f} ({round(self.accuracy * samples)} of {samples} held-out images)"
        )
        result = {"accuracy": self.accuracy, "loss": loss, "samples": samples, "weightsSha256": sha256}
        self.progress.report(self.facts(self.options.epochs) | {"result": result}, final=True)

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
            "accuracy": self.accuracy,
            "samplesPerSecond": self.rate,
            "checkpoint": self.saved,
        }


def run(chosen: Options, place: Task) -> int:
    """What the task is for. Returns the exit code. Raises Refused."""
    if chosen.loop == "fit":
        raise Refused("--loop=fit does not go with parameter servers here: leave --loop away, or give custom")
    if place.role == "evaluator":
        return evaluator.evaluate(chosen)
    if not place.cluster.get("ps") or not place.cluster.get("chief") or not place.cluster.get("worker"):
        raise Refused("parameter servers need TF_CONFIG with a chief, workers and ps: a job with these roles sets it")
    if place.role in ("worker", "ps"):
        serve(place)
    world.wait_for_port(place.address)
    stop = shutdown.StopRequest()
    stop.listen()
    return Coordinator(chosen, place, stop).train()


def main() -> int:
    """Returns the exit code."""
    return run(options.parse(prog="parameter_server"), world.task())


if __name__ == "__main__":
    shutdown.run(main)
