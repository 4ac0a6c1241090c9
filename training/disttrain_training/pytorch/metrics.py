"""Means over all ranks, as sums and counts: the mean of the ranks' means would weigh small shards too much."""

from __future__ import annotations

from dataclasses import dataclass

from .distributed import World


@dataclass
class Tally:
    """Sums over samples; `loss` and `accuracy` are means over them, NaN without any."""

    loss_sum: float = 0.0
    correct: int = 0
    count: int = 0

    def add(self, loss_sum: float, correct: int, count: int) -> None:
        self.loss_sum += loss_sum
        self.correct += correct
        self.count += count

    def over(self, world: World) -> Tally:
        """The tally of all ranks together; every rank must call it."""
        loss_sum, correct, count = world.sum([self.loss_sum, self.correct, self.count])
        return Tally(loss_sum, round(correct), round(count))

    @property
    def loss(self) -> float:
        return self.loss_sum / self.count if self.count else float("nan")

    @property
    def accuracy(self) -> float:
        return self.correct / self.count if self.count else float("nan")
