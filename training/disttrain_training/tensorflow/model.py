"""The network, its optimizer and a hash of its weights."""

from __future__ import annotations

import hashlib
from typing import Any

# The Keras 3 trap: `tf.keras` is Keras 3 today, whose model.fit fails under MultiWorkerMirroredStrategy ("Attempt to
# convert a value (PerReplica...", keras-team/keras#20585, open) and under ParameterServerStrategy. Keras 2, which goes
# on as the package `tf_keras`, works under both. Code that says `tf.keras` gets it by TF_USE_LEGACY_KERAS=1 in the
# environment *before* TensorFlow is imported; here it is imported by its own name, which cannot come too late. Loops of
# one's own (strategy.run) work with either Keras.
import tf_keras as keras

from .options import Options


def build(options: Options, steps: int) -> Any:
    """[n, 8, 8, 1] -> [n, 10], compiled; `steps` is the length of the learning rate's schedule. Call it in the
    strategy's scope.

    No layer looks at other samples of the batch, so the batch can be split freely. The optimizer is part of the model,
    so `tf.train.Checkpoint(model=model)` holds the whole training.
    """
    keras.utils.set_random_seed(options.seed)
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    warmup = min(options.warmup_steps, steps - 1)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else options.lr, steps - warmup, warmup_target=options.lr if warmup else None, warmup_steps=warmup
    )
    optimizer = keras.optimizers.SGD(rate, momentum=options.momentum)
    # The sum, since the weights of the samples (data.shares) add up to 1 over all replicas.
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))
    optimizer.build(model.trainable_variables)
    return model


def weights_sha256(model: Any) -> str:
    """One hash over every weight, with type and shape: equal bits, equal hash."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(f"{weight.dtype} {weight.shape}\n".encode())
        digest.update(weight.tobytes())
    return digest.hexdigest()
