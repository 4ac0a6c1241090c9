from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from disttrain.api.pods import PodView
from disttrain.api.types import Job, Metadata, Progress, Spec, State, Status
from disttrain.cli.phrases import facts, headline, remark
from disttrain.cli.view import LiveView, PlainView, Snapshot, choose


def job(state: State = "Running", message: str = "All 3 pods run.", restarts: int = 0) -> Job:
    status = Status(state=state, message=message, ready="3/3", restarts=restarts)
    return Job(metadata=Metadata(name="digits"), spec=Spec(framework="pytorch"), status=status)


def pod(index: Any = 0, **facts: Any) -> PodView:
    base: dict[str, Any] = {
        "namespace": "default", "name": f"digits-worker-{index}", "uid": str(index), "version": 1, "owner": "u",
        "job": "digits", "job_uid": "u", "role": "worker", "index": index, "round": 1, "live": True,
    }  # fmt: skip
    return PodView(**{**base, **facts})


PROGRESS = Progress(epoch=3, epochs=5, step=150, of=300, loss=0.123456, accuracy=0.97, samples_per_second=1234.5)


def test_phrases() -> None:
    assert facts(PROGRESS) == "epoch 3/5, step 150/300, loss 0.1235, accuracy 0.9700, 1,234 samples/s"
    assert facts(Progress(step=3)) == "step 3"
    assert headline(job()) == "Running, 3/3 ready: All 3 pods run."
    assert headline(job(restarts=2)) == "Running, 3/3 ready, 2 restarts: All 3 pods run."
    assert headline(job("Succeeded", "Done.", restarts=1)) == "Succeeded, 1 restart: Done."
    assert headline(job(message="", restarts=1)) == "Running, 3/3 ready, 1 restart"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        ({"exit_code": 0, "exit_reason": "Completed"}, "exit code 0"),
        ({"exit_code": 137, "exit_reason": "OOMKilled"}, "exit code 137 (OOMKilled)"),
        ({"waiting": "ErrImagePull", "waiting_message": "no such image"}, "ErrImagePull: no such image"),
        ({"unscheduled": "no node"}, "no node"),
        ({"deletion": 1.0}, "stopping"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ],
)
def test_remarks(facts: dict[str, Any], words: str) -> None:
    assert remark(pod(**facts)) == words


def test_lines_say_nothing_twice() -> None:
    now = [0.0]
    stream = io.StringIO()
    view = PlainView(stream, clock=lambda: now[0])
    view.update(Snapshot())
    for _ in range(2):
        view.update(Snapshot(job(), progress=Progress(epoch=1, step=1, of=9)))
    view.update(Snapshot(job(), progress=Progress(epoch=1, step=2, of=9)))  # too soon
    view.update(Snapshot(job(), progress=Progress(epoch=2, step=3, of=9)))  # an epoch is news
    now[0] = 11.0
    view.update(Snapshot(job("Succeeded", "Done."), progress=Progress(epoch=2, step=4, of=9)))
    view.line("worker-0", "hello")
    view.close()
    assert stream.getvalue().splitlines() == [
        "disttrain | Running, 3/3 ready: All 3 pods run.",
        "disttrain | epoch 1, step 1/9",
        "disttrain | epoch 2, step 3/9",
        "disttrain | Succeeded: Done.",
        "disttrain | epoch 2, step 4/9",
        "worker-0  | hello",
    ]


def terminal(height: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=110, height=height, color_system=None)


def screen(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_view_shows_job_pods_and_training() -> None:
    console = terminal()
    view = LiveView(console)
    view.note("a new run in ./disttrain-runs/x")
    view.update(Snapshot(job(), [pod(0, phase="Running", ready=True), pod(1, phase="Pending")], PROGRESS))
    view.line("worker-0", "an \x1b[31mold\x1b[0m log line [not markup]")
    view._live.refresh()
    picture = screen(console)
    view.note("stopping: wait", pin=True)
    view._live.refresh()
    stopping = screen(console)[len(picture) :]
    view.update(Snapshot(job("Succeeded", "Done.")))
    view.close()
    for words in ("digits: Running, 3/3 ready", "POD", "worker-0", "Pending", "epoch 3/5, step 150/300", "━"):
        assert words in picture
    assert stopping.count("stopping: wait") == 2  # as a line, and in the picture in place of the state
    assert "All 3 pods run" not in stopping[stopping.rindex("stopping: wait") :]
    assert "worker-0  │ an old log line [not markup]" in picture
    assert screen(console).rstrip().endswith("Succeeded: Done.")


def test_more_pods_than_fit() -> None:
    console = terminal(height=20)
    view = LiveView(console)
    view.update(Snapshot(job(), [pod(index, phase="Running") for index in range(100)]))
    view._live.refresh()
    view.close()
    assert "and 94 more" in screen(console)
    assert "94 Running" in screen(console)


def test_a_file_gets_lines() -> None:
    assert isinstance(choose(io.StringIO()), PlainView)
