"""Which samples a rank works on. Nothing is padded, repeated or dropped, and the order is the same for every world
size.

Training: each epoch has one global order, cut into global batches; a batch is dealt out to the ranks in stride, like
cards. So the set of samples in step n depends on seed and batch size alone, never on how many processes share the
work, and a position in the data ("4 epochs and 480 samples") stays true when the world is resized. The epoch's last
batch may be smaller, and shares of a batch may differ by one sample (or be empty): a training loop divides by the
*global* count of the batch (`batch_size_at`), not by its own share's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def shard(count: int, rank: int, world_size: int) -> Indices:
    """This rank's part of `count` samples to evaluate: disjoint from the others', together all of them, no sample
    twice.
    """
    return np.arange(rank, count, world_size, dtype=np.int64)


class GlobalBatchSampler:
    """Yields this rank's share of each global batch, for a PyTorch `DataLoader(sampler=..., batch_size=None)` or any
    loop.

    `set_epoch(epoch, start)` says which epoch comes next, and how many of its samples are done already.
    """

    def __init__(self, count: int, global_batch: int, *, rank: int, world_size: int, seed: int) -> None:
        if global_batch < 1:
            raise ValueError(f"global batch is {global_batch}, must be at least 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}, must be at least 0 and below the world size, {world_size}")
        self.count = count
        self.global_batch = global_batch
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        self.epoch = epoch
        self.start = start

    def batch_size_at(self, start: int) -> int:
        """Samples, over all ranks, of the batch that begins after `start` samples of the epoch."""
        return min(self.global_batch, self.count - start)

    def state_dict(self) -> dict[str, int]:
        """What a place in the data depends on."""
        return {"seed": self.seed, "count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Raises ValueError where a place in the data of that time would now be another."""
        if state != self.state_dict():
            raise ValueError(f"it was made with {state}, this training has {self.state_dict()}")

    def __len__(self) -> int:
        """Batches left in the epoch."""
        return -(-(self.count - self.start) // self.global_batch)

    def __iter__(self) -> Iterator[Indices]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.count)
        for start in range(self.start, self.count, self.global_batch):
            yield order[start : start + self.global_batch][self.rank :: self.world_size]
