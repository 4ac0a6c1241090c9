"""`disttrain-horovodrun`: which flags it adds, and what it does with output, signals and exit codes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disttrain_training.horovod import run

TRAINING = Path(__file__).parents[2] / "training"
COMMAND = ["python", "train.py", "--hosts", "mine", "-np", "7"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("worker-0.j.n.svc slots=2\nworker-1.j.n.svc slots=2\n")
    return {
        "DISTTRAIN_WORLD_SIZE": "4",
        "DISTTRAIN_HOSTFILE": str(hostfile),
        "DISTTRAIN_DISCOVERY_SCRIPT": "/etc/disttrain/discover_hosts.sh",
        "HOROVOD_GLOO_IFACE": "lo",
    }


HOSTS = ["-H", "worker-0.j.n.svc:2,worker-1.j.n.svc:2"]
ELASTIC = ["--host-discovery-script", "/etc/disttrain/discover_hosts.sh", "--blacklist-cooldown-range", "5", "30"]
LAST = ["--network-interface", "lo", "--disable-cache"]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["-np", "4", *HOSTS, *LAST]),
        (["--gloo", "--verbose"], ["-np", "4", *HOSTS, *LAST]),
        (["--fusion-threshold-mb", "32"], ["-np", "4", *HOSTS, *LAST]),
        (["--log-level=DEBUG"], ["-np", "4", *HOSTS, *LAST]),
        (["-np", "2"], [*HOSTS, *LAST]),
        (["--num-proc=2"], [*HOSTS, *LAST]),
        (["-H", "a:1,b:1"], ["-np", "4", *LAST]),
        (["--hostfile", "mine"], ["-np", "4", *LAST]),
        (["--network-interface", "eth1", "--disable-cache"], ["-np", "4", *HOSTS]),
        (["--min-np", "2", "--max-np", "8"], ["-np", "4", *ELASTIC, *LAST]),
        (["--host-discovery-script", "mine.sh"], ["-np", "4", *ELASTIC[2:], *LAST]),
        (["--min-np", "2", "--blacklist-cooldown-range", "1", "2"], ["-np", "4", *ELASTIC[:2], *LAST]),
    ],
)
def test_adds_what_is_missing(given: list[str], added: list[str], environ: dict[str, str]) -> None:
    flags, command = run.split([*given, *COMMAND])
    assert command == COMMAND
    assert run.missing(flags, environ) == added


def test_both_formats_of_hostfile(tmp_path: Path) -> None:
    for text in ("a slots=2\nb slots=1\n", "a:2\nb:1\n", "# hosts\na  slots=2\n\nb:1"):
        (tmp_path / "hostfile").write_text(text)
        assert run.hosts(tmp_path / "hostfile") == "a:2,b:1"


def test_the_interface_of_a_pod(tmp_path: Path) -> None:
    assert run.container_interface(tmp_path) == ""
    (tmp_path / "eth0").mkdir()
    assert run.container_interface(tmp_path) == "eth0"


def test_progress_lines_lose_their_prefix() -> None:
    given = (
        b'[0]<stdout>:DISTTRAIN_PROGRESS {"step":1,"final":false}\n'
        b"[1]<stdout>:DISTTRAIN_PROGRESS is a word too\n[0]<stdout>:epoch 1\n"
        b'[1,0]<stdout>: DISTTRAIN_PROGRESS {"step":2,"final":true}\n[1]<stderr>:no newline'
    )
    sink = io.BytesIO()
    assert run.relay(io.BytesIO(given), sink) == '{"step":2,"final":true}'
    assert sink.getvalue() == (
        b'DISTTRAIN_PROGRESS {"step":1,"final":false}\nDISTTRAIN_PROGRESS is a word too\n[0]<stdout>:epoch 1\n'
        b'DISTTRAIN_PROGRESS {"step":2,"final":true}\n[1]<stderr>:no newline'
    )


def start(environ: dict[str, str], script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program, with a shell script for horovodrun."""
    (folder / "horovodrun").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "horovodrun").chmod(0o755)
    env = {**environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(TRAINING)}
    command = [sys.executable, "-m", "disttrain_training.horovod.run", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_prints_the_command_and_takes_its_exit_code(environ: dict[str, str], tmp_path: Path) -> None:
    message = tmp_path / "termination"
    environ["DISTTRAIN_TERMINATION_LOG"] = str(message)
    final = 'DISTTRAIN_PROGRESS {"step":2,"final":true}'
    process = start(environ, f"echo \"$@\"; echo '[0]<stdout>:{final}'; exit 3", tmp_path, "--gloo", "python", "x y")
    out, _ = process.communicate(timeout=60)
    words = " ".join(["-np", "4", *HOSTS, *LAST, "--gloo", "python"])
    assert out == f"disttrain-horovodrun: horovodrun {words} 'x y'\n{words} x y\n{final}\n"
    assert process.returncode == 3
    assert message.read_text() == '{"step":2,"final":true}'


def test_a_signal_is_handed_on(environ: dict[str, str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    script = f"trap 'exit 41' TERM; touch {begun}; while :; do sleep 0.05; done"
    process = start(environ, script, tmp_path, "python", "x")
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 41


def test_a_killed_horovodrun_reads_as_by_a_shell(environ: dict[str, str], tmp_path: Path) -> None:
    process = start(environ, "kill -9 $$", tmp_path, "python", "x")
    process.communicate(timeout=60)
    assert process.returncode == 137


def test_outside_a_job_it_says_what_to_give(environ: dict[str, str], tmp_path: Path) -> None:
    del environ["DISTTRAIN_HOSTFILE"]
    process = start(environ, "echo never", tmp_path, "python", "x")
    out, error = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 2)
    assert error == "disttrain-horovodrun: DISTTRAIN_HOSTFILE is not set, as it is in the launcher of a job: give -H\n"


def test_without_horovod_it_says_so(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["python", "x"], {**environ, "PATH": "/nowhere"}) == 127
    assert "install horovod" in capsys.readouterr().err
