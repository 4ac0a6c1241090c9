"""The flags of `train`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..flags import add_checkpoint_flags, add_running_flags, number
from ..shutdown import Refused


@dataclass(frozen=True)
class Options:
    """See `--help`: the fields are its flags."""

    epochs: int
    max_steps: int | None
    batch_size: int | None
    global_batch_size: int
    accumulate: int
    lr: float
    momentum: float
    warmup_steps: int
    scale_lr: bool
    dropout: float
    precision: str
    device: str
    seed: int
    deterministic: bool
    checkpoint_dir: Path | None
    checkpoint_every: int
    keep_last: int
    resume: bool
    resume_from: Path | None
    log_every: int
    min_step_seconds: float
    start_timeout: float
    step_timeout: float

    def global_batch(self, world_size: int) -> int:
        """Samples an optimizer step, over all workers and accumulated micro-batches."""
        if self.batch_size is not None:
            return self.batch_size * world_size * self.accumulate
        return self.global_batch_size

    def learning_rate(self, world_size: int) -> float:
        return self.lr * world_size if self.scale_lr else self.lr

    def check(self, device: torch.device) -> None:
        """Raises Refused for what the flags alone do not show."""
        if self.precision == "fp16" and device.type != "cuda":
            raise Refused(
                f"--precision=fp16 needs CUDA, this is {device.type}: use bf16, which needs no gradient scaling"
            )
        if self.scale_lr and self.batch_size is None:
            raise Refused(
                "--scale-lr goes with --batch-size: a global batch that is fixed does not grow with the workers"
            )


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options from the command line; wrong ones end the process with code 2 and a message, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="disttrain_training.pytorch.train",
        description="Trains a small convolutional network on scikit-learn's digits, with any number of processes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    whole, count, positive, fraction = (
        number(int, 0),
        number(int, 1),
        number(float, 0.0, 1e6),
        number(float, 0.0, 0.99),
    )

    length = parser.add_argument_group("how long")
    length.add_argument("--epochs", type=count, default=5, help="5 reach an accuracy of about 0.98")
    length.add_argument("--max-steps", type=count, help="end after so many optimizer steps, resumed ones counted")

    batch = parser.add_argument_group("batches and learning rate")
    size = batch.add_mutually_exclusive_group()
    size.add_argument(
        "--global-batch-size", type=count, default=24, help="samples a step over all workers, however many"
    )
    size.add_argument(
        "--batch-size", type=count, help="samples a worker and micro-batch: a step grows with the workers"
    )
    batch.add_argument("--accumulate", type=count, default=1, help="micro-batches a step; gradients are reduced once")
    batch.add_argument("--lr", type=positive, default=0.06, help="the peak: after the warm-up a cosine falls to 0")
    batch.add_argument("--momentum", type=fraction, default=0.9, help="of SGD")
    batch.add_argument("--warmup-steps", type=whole, default=10, help="steps in which the learning rate rises from 0")
    batch.add_argument("--scale-lr", action="store_true", help="multiply --lr by the number of workers: no law, try it")

    numbers = parser.add_argument_group("numbers")
    numbers.add_argument("--dropout", type=fraction, default=0.0, help="before the last layer")
    numbers.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="of the forward pass")
    numbers.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA where there is any"
    )
    numbers.add_argument(
        "--seed", type=whole, default=0, help="of weights, order and dropout; the split stays the same"
    )
    numbers.add_argument("--deterministic", action="store_true", help="only algorithms that repeat bit by bit")

    add_checkpoint_flags(parser)
    running = add_running_flags(parser)
    running.add_argument("--start-timeout", type=positive, default=1800.0, help="seconds to wait for the other workers")
    running.add_argument(
        "--step-timeout", type=positive, default=300.0, help="seconds to wait for a silent worker later on"
    )
    return Options(**vars(parser.parse_args(arguments)))
