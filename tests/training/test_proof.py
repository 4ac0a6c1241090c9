"""The proof that distribution changes nothing: the same losses, step by step, from 1, 2, 3 and 4 processes.

The global batch is 35, which no world divides evenly, and the first epoch's last batch (step 42 of 50) has 3 samples:
of four ranks one has none. Neither may show.
"""

from __future__ import annotations

import pytest

from training.launch import Launcher

pytestmark = pytest.mark.timeout(300)  # seconds; processes start slowly on a busy machine

STEPS = 50
FLAGS = (f"--max-steps={STEPS}", "--global-batch-size=35", "--log-every=1")


@pytest.fixture(scope="module")
def alone(launcher: Launcher) -> list[float]:
    run = launcher.torchrun(1, *FLAGS)
    assert run.wait() == 0, run.output
    assert len(run.losses) == STEPS
    assert run.losses[0] > 2 > 1 > run.losses[-1], "it learns, so that equal losses mean something"
    return run.losses


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (3, 1), (4, 1), (2, 3)])
def test_the_loss_of_each_step_is_that_of_a_single_process(
    launcher: Launcher, alone: list[float], world: int, accumulate: int
) -> None:
    run = launcher.torchrun(world, *FLAGS, f"--accumulate={accumulate}")
    assert run.wait() == 0, run.output
    assert run.losses == pytest.approx(alone, rel=0, abs=1e-5)
    assert run.progress[-1]["worldSize"] == world
    assert sorted(run.weights) == list(range(world))
    assert len(set(run.weights.values())) == 1
