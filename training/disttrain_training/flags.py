"""Command-line flags that every entrypoint has, so that they mean the same for every framework."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path


def number(kind: type[int] | type[float], least: float, most: float = float("inf")) -> Callable[[str], float]:
    """An argparse type: a number within bounds."""

    def read(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            bounds = f"at least {least:g}" + (f" and at most {most:g}" if most < float("inf") else "")
            raise argparse.ArgumentTypeError(f"{text} is out of range, must be {bounds}")
        return value

    read.__name__ = "whole number" if kind is int else "number"  # argparse names the type by it
    return read


def add_checkpoint_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """`--checkpoint-dir`, `--checkpoint-every`, `--keep-last`, `--resume`, `--resume-from`; returns their group."""
    saving = parser.add_argument_group("checkpoints")
    saving.add_argument(
        "--checkpoint-dir",
        type=Path,
        default=os.environ.get("DISTTRAIN_CHECKPOINT_DIR") or None,
        help="of this training alone ($DISTTRAIN_CHECKPOINT_DIR); none: a restart begins at step 0",
    )
    saving.add_argument("--checkpoint-every", type=number(int, 0), default=0, help="steps; 0: each epoch's end only")
    saving.add_argument("--keep-last", type=number(int, 1), default=3, help="newest checkpoints to keep")
    saving.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="go on from the newest whole checkpoint"
    )
    saving.add_argument(
        "--resume-from",
        type=Path,
        default=os.environ.get("DISTTRAIN_RESUME_FROM") or None,
        help="another training's folder, only read: where --checkpoint-dir has nothing yet ($DISTTRAIN_RESUME_FROM)",
    )
    return saving


def add_running_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """`--log-every`, `--min-step-seconds`; returns their group."""
    running = parser.add_argument_group("running")
    running.add_argument(
        "--log-every", type=number(int, 0), default=0, help="print the loss every so many steps; 0: each epoch only"
    )
    running.add_argument(
        "--min-step-seconds",
        type=number(float, 0.0, 1e6),
        default=0.0,
        help="make each step last at least so long, by sleeping: to watch a short training, or to kill it in time",
    )
    return running
