"""Real data without a download: the handwritten digits that ship with scikit-learn (1,797 images of 8 x 8)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HELD_OUT = 359
"""Images held out for validation: a prime, so an evaluation that pads its shards with repeats shows."""
SPLIT_SEED = 0
"""The split is stratified by digit and always the same, whatever the training's seed."""


class Digits(NamedTuple):
    """Images are float32 [n, 1, 8, 8] of about zero mean and unit variance; labels are int64 [n], 0 to 9."""

    train_images: npt.NDArray[np.float32]
    train_labels: npt.NDArray[np.int64]
    held_out_images: npt.NDArray[np.float32]
    held_out_labels: npt.NDArray[np.int64]


def digits() -> Digits:
    """1,438 images to train on and 359 held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)  # pixels are 0 to 16
    images = ((pixels - 5.0) / 6.0).astype(np.float32).reshape(-1, 1, 8, 8)
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images, labels.astype(np.int64), test_size=HELD_OUT, stratify=labels, random_state=SPLIT_SEED
    )
    return Digits(train_images, train_labels, held_out_images, held_out_labels)
