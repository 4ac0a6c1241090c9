"""The task "evaluator": evaluates each new checkpoint of a training over the held-out images, beside it.

It is in nobody's cluster: it only reads the folder of checkpoints. It ends once it has evaluated the last step's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..data import digits
from ..shutdown import Refused
from . import checkpoints, data, model
from .options import Options

POLL_SECONDS = 0.5


def measure(network: Any, images: Any, labels: Any) -> tuple[float, float]:
    """Mean loss and accuracy."""
    scores = tf.convert_to_tensor(network(images, training=False))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    hits = tf.equal(tf.argmax(scores, axis=1), labels)
    return float(tf.reduce_mean(losses)), float(tf.reduce_mean(tf.cast(hits, tf.float64)))


def evaluate(options: Options) -> int:
    """Returns the exit code. Raises Refused without a folder to look at."""
    if options.checkpoint_dir is None:
        raise Refused("an evaluator needs the folder of checkpoints: set spec.checkpoints, or give --checkpoint-dir")
    held_out = digits()
    images, labels = data.channels_last(held_out.held_out_images), held_out.held_out_labels
    of = options.steps_an_epoch(len(held_out.train_images)) * options.epochs
    network = model.build(options, of)
    seen: str | None = None
    print(f"evaluating the checkpoints in {options.checkpoint_dir} up to step {of}", flush=True)
    while True:
        newest = _newest(options.checkpoint_dir)
        if newest and newest != seen:
            try:
                checkpoints.check(newest)
                tf.train.Checkpoint(model=network).restore(newest).expect_partial()
            except checkpoints.DAMAGED as error:  # deleted meanwhile, or being written
                print(f"{newest} cannot be read: {error}", flush=True)
            else:
                seen = newest
                step = int(network.optimizer.iterations.numpy())
                loss, accuracy = measure(network, images, labels)
                print(
                    f"evaluated step {step}/{of}: held-out loss {loss:.4f} accuracy {accuracy:.4f} "
                    f"({len(labels)} images) weights sha256 {model.weights_sha256(network)}",
                    flush=True,
                )
                if step >= of:
                    return 0
        time.sleep(POLL_SECONDS)


def _newest(folder: Path) -> str | None:
    """Ours, or that of Keras' BackupAndRestore."""
    for round_, step in checkpoints.found(folder):
        return checkpoints.path(folder, round_, step)
    found: str | None = tf.train.latest_checkpoint(str(folder / checkpoints.KERAS_BACKUP))
    return found
