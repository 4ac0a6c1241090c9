"""torchrun's error summary, as torch 2.13 prints it."""

from __future__ import annotations

from jobs import failed, plan, pod, started

from disttrain.lifecycle import cause

KILLED = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
========================================================
train.py FAILED
--------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
--------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_20:00:00
  host      : worker-1
  rank      : 2 (local_rank: 0)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
========================================================
"""
RAISED = KILLED.replace("exitcode  : -9 (pid: 4711)", "exitcode  : 3 (pid: 4711)")


def test_read() -> None:
    assert cause.read(KILLED) == cause.Cause(rank=2, exit_code=137, signal=9)
    assert cause.read(RAISED) == cause.Cause(rank=2, exit_code=3)
    assert cause.read("Traceback (most recent call last): ...") is None
    assert cause.read("Root Cause (first observed failure):\n") is None


def test_the_killed_rank_is_the_cause_not_the_survivors_exit() -> None:
    survivor = failed(
        index=0, code=1, ended_at=5, exit_message=RAISED.replace(": 3", ": 1").replace("rank      : 2", "rank      : 0")
    )
    victim = failed(index=1, code=1, ended_at=5, exit_message=KILLED)
    found = plan(started(), survivor, victim, pod(index=2))
    assert found.commit is not None
    assert found.commit.message.startswith("Worker-1 failed, rank 2 first with exit code 137 (SIGKILL); restart 1 of 3")
    assert found.commit.failures[-1].exit_code == 137
