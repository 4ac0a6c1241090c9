"""Samples: each exactly once, in the same order for every world size, from any place in the epoch on."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain_training.sampling import GlobalBatchSampler, shard


def batches(count: int, batch: int, world: int, *, epoch: int = 0, start: int = 0, seed: int = 7) -> list[list[int]]:
    """The global batches as the ranks of a world together see them, each sorted."""
    samplers = [GlobalBatchSampler(count, batch, rank=rank, world_size=world, seed=seed) for rank in range(world)]
    for sampler in samplers:
        sampler.set_epoch(epoch, start)
    return [sorted(np.concatenate(parts).tolist()) for parts in zip(*samplers, strict=True)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 10, 359, 1438])
def test_an_epoch_has_each_sample_once(count: int, world: int) -> None:
    seen = [index for batch in batches(count, 24, world) for index in batch]
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("world", [2, 3, 4, 7])
def test_the_batches_are_those_of_one_process(world: int) -> None:
    assert batches(1438, 24, world) == batches(1438, 24, 1)


def test_shares_differ_by_at_most_one() -> None:
    parts = [list(GlobalBatchSampler(1438, 25, rank=r, world_size=4, seed=0)) for r in range(4)]
    for shares in zip(*parts, strict=True):
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first = batches(1438, 24, 3)
    assert first != batches(1438, 24, 3, epoch=1)
    assert first != batches(1438, 24, 3, seed=8)
    assert first == batches(1438, 24, 3)


def test_it_goes_on_from_the_middle_of_an_epoch_in_a_world_of_another_size() -> None:
    assert batches(1438, 24, 2, epoch=3, start=480) == batches(1438, 24, 3, epoch=3)[20:]


def test_length_and_last_batch() -> None:
    sampler = GlobalBatchSampler(1438, 24, rank=0, world_size=3, seed=0)
    assert len(sampler) == len(list(sampler)) == 60
    assert sampler.batch_size_at(0) == 24
    assert sampler.batch_size_at(59 * 24) == 22
    sampler.set_epoch(0, start=1438)
    assert len(sampler) == len(list(sampler)) == 0


@pytest.mark.parametrize(("batch", "rank", "world"), [(0, 0, 1), (24, 3, 3), (24, -1, 3)])
def test_nonsense_is_refused(batch: int, rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        GlobalBatchSampler(10, batch, rank=rank, world_size=world, seed=0)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7, 400])
def test_evaluation_shards_have_each_sample_once(world: int) -> None:
    shards = np.concatenate([shard(359, rank, world) for rank in range(world)])
    assert sorted(shards.tolist()) == list(range(359))
