"""Who am I, and what do we do together: the environment in all its forms, and worlds of real processes."""

from __future__ import annotations

import pytest
import torch

from disttrain_training.progress import warn_if_alone
from disttrain_training.pytorch.distributed import World, pick_device, place
from disttrain_training.pytorch.metrics import Tally
from disttrain_training.shutdown import Refused
from training.launch import Launcher

pytestmark = pytest.mark.timeout(300)  # seconds; processes start slowly on a busy machine

ADDRESS = {"MASTER_ADDR": "digits-worker-0.digits.default.svc", "MASTER_PORT": "23456"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 0, 1)),
        ({"LOCAL_RANK": "3"}, (0, 0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 0, 1)),
        (ADDRESS | {"RANK": "2", "WORLD_SIZE": "3"}, (2, 0, 3)),
        (ADDRESS | {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (5, 1, 8)),
    ],
)
def test_place(environ: dict[str, str], expected: tuple[int, int, int]) -> None:
    assert place(environ) == expected


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (ADDRESS, "MASTER_ADDR is 'digits-worker-0.* but RANK and WORLD_SIZE are not set: .* start with torchrun"),
        ({"RANK": "0"}, "WORLD_SIZE is '', must be a whole number"),
        ({"WORLD_SIZE": "2"}, "RANK is '', must be a whole number"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', must be a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "-1"}, "LOCAL_RANK is '-1', must be a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"} | ADDRESS, "RANK is 2 and WORLD_SIZE 2: ranks are 0 to"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "WORLD_SIZE is 2 but MASTER_ADDR and MASTER_PORT not set"),
    ],
)
def test_a_world_that_is_half_described_is_refused(environ: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        place(environ)


@pytest.mark.parametrize(
    ("expected", "size", "warns"), [("3", 1, True), ("3", 3, False), ("", 1, False), ("x", 1, False)]
)
def test_a_pod_that_trains_alone_is_warned_of(
    expected: str, size: int, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_if_alone(size, "Start anew", {"DISTTRAIN_WORLD_SIZE": expected})
    said = capsys.readouterr().err
    assert (
        said.startswith("WARNING: the job has 3 processes, this one sees a world of 1: each pod trains alone") == warns
    )
    assert bool(said) == warns


def test_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device("auto", 0) == pick_device("cpu", 3) == torch.device("cpu")
    with pytest.raises(Refused, match=r"local rank 0 finds 0 CUDA devices: .* --device=cpu"):
        pick_device("cuda", 0)


def test_alone_everything_is_ones_own() -> None:
    world = World()
    assert world.sum([1.0, 2.0]) == [1.0, 2.0]
    assert world.gather("x") == ["x"]
    assert world.on_rank_0(lambda: 3) == 3
    with pytest.raises(OSError, match="full"):
        world.on_rank_0(lambda: (_ for _ in ()).throw(OSError("full")))


def test_a_mean_of_nothing_is_not_a_number() -> None:
    assert str(Tally().loss) == str(Tally().accuracy) == "nan"


TOGETHER = """
from disttrain_training.pytorch.distributed import joined
from disttrain_training.pytorch.metrics import Tally
from disttrain_training.shutdown import Refused, run

def main():
    with joined("cpu", start_timeout=90) as world:
        assert world.sum([1.0, world.rank]) == [3.0, 3.0]
        assert world.on_rank_0(lambda: f"from {world.rank}") == "from 0"
        assert world.gather(world.rank) == ([0, 1, 2] if world.rank == 0 else [])
        tally = Tally()
        tally.add(loss_sum=10.0 * (world.rank + 1), correct=world.rank, count=world.rank + 1)
        total = tally.over(world)
        assert (total.loss, total.accuracy, total.count) == (10.0, 0.5, 6), total
        def refuse():
            raise Refused("no: this would do")
        world.on_rank_0(refuse)

run(main)
"""


def test_together(launcher: Launcher) -> None:
    runs = launcher.plain(3, "-c", TOGETHER)
    assert [run.wait() for run in runs] == [1, 1, 1]
    assert [run.output for run in runs] == ["error: no: this would do\n"] * 3


def test_a_peer_that_does_not_come_is_said(launcher: Launcher) -> None:
    run, other = launcher.plain(2, "-c", TOGETHER.replace("start_timeout=90", "start_timeout=1"))
    other.end()
    assert run.wait() == 1
    assert "error: the 2 processes did not all meet at 127.0.0.1:" in run.output
    assert "within 1 s (this is rank 0)" in run.output


REDUCE_AND_LEAVE = """
import torch
from torch.nn.parallel import DistributedDataParallel
from disttrain_training.pytorch.distributed import joined
from disttrain_training.shutdown import at_exit, run

def main():
    at_exit(lambda: print("flushed"))
    with joined("cpu") as world:
        model = DistributedDataParallel(torch.nn.Linear(100, 100))
        for _ in range(20):
            model(torch.ones(8, 100)).sum().backward()

run(main)
"""


def test_nobody_aborts_at_exit(launcher: Launcher) -> None:
    """Several worlds at once, so that the machine is busy: that is when threads of gloo outlive the interpreter."""
    worlds = [launcher.plain(2, "-c", REDUCE_AND_LEAVE) for _ in range(3)]
    assert [[run.wait() for run in world] for world in worlds] == [[0, 0]] * 3
    assert {run.output for world in worlds for run in world} == {"flushed\n"}
