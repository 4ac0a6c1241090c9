"""Input pipelines (`tf.data`): each replica's share of each global batch, in the same order for every world size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..sampling import GlobalBatchSampler, Indices

EVALUATION_BATCH = 256


def channels_last(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[n, 1, 8, 8] -> [n, 8, 8, 1]: the only order in which TensorFlow convolves on a CPU."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def training_batches(count: int, global_batch: int, *, seed: int, epochs: int, step: int) -> Iterator[Indices]:
    """The global batches from `step` to the end of the last epoch: each epoch has every sample once."""
    sampler = GlobalBatchSampler(count, global_batch, rank=0, world_size=1, seed=seed)
    first, done = divmod(step, len(sampler))
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch, start=done * global_batch if epoch == first else 0)
        yield from sampler


def evaluation_batches(count: int) -> Iterator[Indices]:
    """All samples once, in order."""
    for start in range(0, count, EVALUATION_BATCH):
        yield np.arange(start, min(start + EVALUATION_BATCH, count), dtype=np.int64)


def shares(
    images: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    batches: Callable[[], Iterator[Indices]],
    context: Any,
) -> Any:
    """The dataset of one worker, for `strategy.distribute_datasets_from_function`.

    Each global batch is dealt out to all replicas in stride, like cards (`context` says which of them are ours), so
    every replica takes part in every step, with a share that may be smaller than the others', or empty; nothing is
    padded or dropped. Elements are images, labels and weights; the weights of a global batch add up to 1 over all
    replicas, so a weighted *sum* of losses is the mean over the global batch, however uneven the shares are.
    """
    replicas = context.num_replicas_in_sync
    ours = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * ours

    def deal(batch: Any) -> Any:
        return tf.data.Dataset.range(ours).map(lambda one: (batch[first + one :: replicas], tf.size(batch)))

    def load(share: Any, count: Any) -> Any:
        weights = tf.fill(tf.shape(share), 1.0 / tf.cast(count, tf.float32))
        return tf.gather(images, share), tf.gather(labels, share), weights

    whole = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([None], tf.int64))
    return whole.flat_map(deal).map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
