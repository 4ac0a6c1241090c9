"""Which loss is the cause, and what it calls for."""

from __future__ import annotations

import pytest
from jobs import NOW, failed, pod, started

from disttrain.api.pods import PodView, Slot
from disttrain.lifecycle import restart
from disttrain.lifecycle.view import View


def view(*pods: PodView, limit: int = 3) -> View:
    given = started({"restart": {"limit": limit}})
    slots = [Slot("worker", i) for i in range(3)]
    return View(
        job=given, now=NOW, slots=slots, rounds=dict.fromkeys(slots, 1), current={p.slot: p for p in pods}, old=[]
    )


@pytest.mark.parametrize(
    ("pods", "cause"),
    [
        pytest.param([failed(index=0, ended_at=9), failed(index=1, ended_at=8), pod(index=2)], "worker-1", id="first"),
        pytest.param(
            [failed(index=0, ended_at=9), failed(index=1, code=139, ended_at=9), pod(index=2)],
            "worker-1",
            id="one second: not the survivor's exit 1",
        ),
        pytest.param(
            [failed(index=0, ended_at=8), failed(index=1, code=137, reason="Evicted", ended_at=9), pod(index=2)],
            "worker-1",
            id="what the cluster took comes first",
        ),
    ],
)
def test_cause(pods: list[PodView], cause: str) -> None:
    assert str(restart.losses(view(*pods))[0].slot) == cause


def test_nothing_lost() -> None:
    assert restart.judge(view(*(pod(index=i) for i in range(3)))) is None


def test_a_sidecar_that_goes_on_does_not_hide_the_failure() -> None:
    broken = pod(index=1, exit_code=3, exit_reason="Error")  # phase Running: the sidecar runs
    verdict = restart.judge(view(pod(index=0), broken, pod(index=2)))
    assert verdict is not None
    assert verdict.loss.exit_code == 3


def test_limit_zero_says_so() -> None:
    verdict = restart.judge(view(pod(index=0), failed(index=1, code=2), pod(index=2), limit=0))
    assert verdict is not None
    assert verdict.fails
    assert verdict.message == (
        "Worker-1 failed with exit code 2, and restart.limit allows no restart (restart.limit is 0). "
        "`kubectl logs digits-worker-1` shows why."
    )


def test_start_error_fails_at_once() -> None:
    broken = failed(index=1, code=128, exit_reason="StartError", exit_message="no pyton3\n in PATH.\n")
    verdict = restart.judge(view(pod(index=0), broken, pod(index=2)))
    assert verdict is not None
    assert verdict.fails
    assert not verdict.charged
    assert verdict.message == (
        "Worker-1 failed with exit code 128 (StartError): the container could not be started: no pyton3 in PATH. "
        "A restart would not help."
    )


@pytest.mark.parametrize(("words", "ends"), [("", "could not be started. A"), ("x" * 4096, "xxx. A")])
def test_start_error_of_few_or_many_words(words: str, ends: str) -> None:
    broken = failed(index=0, code=128, exit_reason="StartError", exit_message=words)
    verdict = restart.judge(view(broken, pod(index=1), pod(index=2)))
    assert verdict is not None
    assert verdict.message.endswith(f"{ends} restart would not help.")
    assert len(verdict.message) < 700


def test_a_pod_that_this_machine_cannot_run_fails_at_once_with_the_way_out() -> None:
    refused = pod(index=1, phase="Failed", reason="UnsupportedPodSpec", message="no GPU here; run with --cpu")
    verdict = restart.judge(view(pod(index=0), refused, pod(index=2)))
    assert verdict is not None
    assert verdict.fails
    assert verdict.message == "Worker-1 failed (UnsupportedPodSpec): no GPU here; run with --cpu"
