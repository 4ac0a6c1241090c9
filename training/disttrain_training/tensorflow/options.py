"""The flags of `train` and `parameter_server`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..flags import add_checkpoint_flags, add_running_flags, number
from ..shutdown import Refused

STRATEGIES = ("auto", "mirrored", "multiworker", "ps", "tpu")


@dataclass(frozen=True)
class Options:
    """See `--help`: the fields are its flags."""

    strategy: str
    loop: str
    logical_cpus: int
    epochs: int
    global_batch_size: int
    lr: float
    momentum: float
    warmup_steps: int
    seed: int
    checkpoint_dir: Path | None
    checkpoint_every: int
    keep_last: int
    resume: bool
    resume_from: Path | None
    log_every: int
    min_step_seconds: float

    def steps_an_epoch(self, count: int) -> int:
        """Steps over `count` images; the last one may be smaller."""
        return math.ceil(count / self.global_batch_size)

    @property
    def sources(self) -> list[Path]:
        """Folders to resume from, the first that has a checkpoint counts."""
        return [folder for folder in (self.checkpoint_dir, self.resume_from) if folder] if self.resume else []

    def check(self) -> None:
        """Raises Refused for what the flags alone do not show."""
        if self.strategy == "ps" and self.loop == "fit":
            raise Refused("--loop=fit does not go with parameter servers here: leave --loop away, or give custom")


def parse(arguments: Sequence[str] | None = None, *, prog: str = "train") -> Options:
    """Options from the command line; wrong ones end the process with code 2 and a message, as argparse does."""
    parser = argparse.ArgumentParser(
        prog=f"disttrain_training.tensorflow.{prog}",
        description="Trains a small convolutional network on scikit-learn's digits, with any number of processes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    whole, count, positive = number(int, 0), number(int, 1), number(float, 0.0, 1e6)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="auto: ps where TF_CONFIG has parameter servers, multiworker where it has workers, else mirrored",
    )
    how.add_argument("--loop", choices=("custom", "fit"), default="custom", help="our own loop, or Keras' fit")
    how.add_argument(
        "--logical-cpus", type=count, default=1, help="replicas of a process that has no GPU: to try several on one CPU"
    )
    how.add_argument("--epochs", type=count, default=5, help="5 reach an accuracy of about 0.98")
    how.add_argument(
        "--global-batch-size",
        type=count,
        default=24,
        help="samples a step over all workers, however many; with parameter servers, of the one worker that takes it",
    )
    how.add_argument("--lr", type=positive, default=0.06, help="the peak: after the warm-up a cosine falls to 0")
    how.add_argument("--momentum", type=number(float, 0.0, 0.99), default=0.9, help="of SGD")
    how.add_argument("--warmup-steps", type=whole, default=10, help="steps in which the learning rate rises from 0")
    how.add_argument("--seed", type=whole, default=0, help="of weights and order; the split stays the same")
    add_checkpoint_flags(parser)
    add_running_flags(parser)
    options = Options(**vars(parser.parse_args(arguments)))
    options.check()
    return options
