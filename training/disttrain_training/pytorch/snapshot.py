"""A whole training as one checkpoint: parameters, optimizer, schedule, every rank's random states, the place in the
data.

Rank 0 alone touches the folder; the others get what it read from it, so only its machine needs to see the files.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from ..checkpoint import Checkpoint, CheckpointWriter
from ..shutdown import Refused
from .distributed import World
from .seeds import random_states, restore_random_states


class Stateful(Protocol):
    """A model, an optimizer, a schedule, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


@dataclass
class Position:
    """How far a training is. `samples` of the epoch are done, counted over all ranks: true for any world size."""

    epoch: int = 0
    samples: int = 0
    step: int = 0


def save(
    world: World,
    writer: CheckpointWriter | None,
    parts: Mapping[str, Stateful],
    position: Position,
    score: float | None = None,
) -> Checkpoint:
    """Write a checkpoint (every rank calls it; `writer` is rank 0's). It is durable when this returns, on any
    rank.
    """
    states = world.gather(random_states())

    def write() -> Checkpoint:
        assert writer is not None, "rank 0 opens the folder"
        buffer = io.BytesIO()
        document = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"parts": document, "position": asdict(position), "random": states}, buffer)
        return writer.save(buffer.getvalue(), step=position.step, score=score)

    return world.on_rank_0(write)


def resume(
    world: World,
    newest: Callable[[], tuple[Checkpoint, bytes] | None],
    parts: Mapping[str, Stateful],
    position: Position,
) -> Checkpoint | None:
    """Put the checkpoint that `newest` finds on rank 0 into `parts` and `position`; every rank calls it.

    Raises Refused when it is of another model or optimizer.
    """
    found = world.on_rank_0(newest)
    if found is None:
        return None
    checkpoint, payload = found
    document = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    try:
        for name, part in parts.items():
            part.load_state_dict(document["parts"][name])
    except (KeyError, RuntimeError, ValueError) as error:
        raise Refused(
            f"checkpoint {checkpoint.name} is of another training: {error}. "
            "Give another --checkpoint-dir, or --no-resume to start anew beside it"
        ) from error
    for key, value in document["position"].items():
        setattr(position, key, value)
    if len(document["random"]) == world.size:  # of a world of another size: the ranks stay as they were seeded
        restore_random_states(document["random"][world.rank])
    return checkpoint


def weights_sha256(model: torch.nn.Module) -> str:
    """One hash over every parameter and buffer, with name, type and shape: equal bits, equal hash."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
