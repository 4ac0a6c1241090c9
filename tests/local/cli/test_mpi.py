"""MPI jobs on the one-machine cluster: the real mpirun, ssh and sshd, with shell scripts for a training."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from local.cli.shell import Command, Shell, eventually, processes

LACKING = [name for name in ("mpirun", "ssh", "sshd") if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="pods need mount namespaces"),
    pytest.mark.skipif(
        bool(LACKING) and not os.environ.get("CI"),
        reason=f"needs {', '.join(LACKING)} (Debian: openmpi-bin openssh-server openssh-client)",
    ),
    pytest.mark.timeout(300),
]
WHO = "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(hostname)"


def job(*command: str, limit: int = 0, workers: int = 2, env: dict[str, str] | None = None, **spec: Any) -> str:
    """A manifest, as JSON, which is YAML too."""
    listed = [{"name": name, "value": value} for name, value in (env or {}).items()]
    main = {"name": "main", "image": "none", "command": command, "env": listed}
    written = {
        "framework": "mpi",
        "worker": {"replicas": workers},
        "restart": {"limit": limit},
        "template": {"spec": {"terminationGracePeriodSeconds": 5, "containers": [main]}},
    }
    manifest = {"apiVersion": "disttrain.dev/v1alpha1", "kind": "DistTrainJob", "metadata": {"name": "hosts"}}
    return json.dumps({**manifest, "spec": {**written, **spec}})


def said(shell: Shell, pod: str = "launcher-0") -> list[str]:
    """The lines of a pod's log in the last run, in alphabetical order."""
    return sorted((shell.runs()[-1] / "logs" / f"{pod}.log").read_text().splitlines())


def test_every_worker_gets_its_processes(shell: Shell) -> None:
    shell.write("job.yaml", job("mpirun", "sh", "-c", f"echo {WHO}", workers=3))
    shell.run("run", "job.yaml")
    assert said(shell) == [f"rank {rank} of 3 in worker-{rank}" for rank in range(3)]


def test_slots_of_workers_and_launcher(shell: Shell) -> None:
    mpi = {"slotsPerWorker": 2, "launcherRunsTraining": True}
    shell.write("job.yaml", job("mpirun", "sh", "-c", f"echo {WHO}", mpi=mpi))
    shell.run("run", "job.yaml")
    hosts = ["launcher-0", "launcher-0", "worker-0", "worker-0", "worker-1", "worker-1"]
    assert said(shell) == [f"rank {rank} of 6 in {host}" for rank, host in enumerate(hosts)]


@pytest.mark.skipif(not shutil.which("mpiexec.mpich"), reason="needs mpiexec.mpich (Debian: mpich)")
def test_mpich(shell: Shell) -> None:
    shell.write("job.yaml", job("mpiexec.mpich", "hostname", mpi={"implementation": "MPICH", "slotsPerWorker": 2}))
    shell.run("run", "job.yaml")
    assert said(shell) == ["worker-0", "worker-0", "worker-1", "worker-1"]


def test_processes_have_the_environment_of_their_pod(shell: Shell) -> None:
    odd = "two words, 'single' and \"double\" quotes,\na line break, $HOME and \\"
    in_hex = '$(printf %s "$ODD" | od -An -tx1 | tr -d " \\n")'
    script = f'printf "%s|%s|%s\\n" "$DISTTRAIN_ROLE-$DISTTRAIN_INDEX" "$(pwd)" "{in_hex}"'
    shell.write("job.yaml", job("mpirun", "sh", "-c", script, env={"ODD": odd.replace("$", "$$")}))
    shell.run("run", "job.yaml")
    assert said(shell) == [f"worker-{index}|{shell.folder}|{odd.encode().hex()}" for index in range(2)]


def test_keys_are_told_to_nobody(shell: Shell) -> None:
    shell.write("job.yaml", job("mpirun", "sh", "-c", "cat /etc/disttrain/id_ed25519 | wc -l", debug=True))
    out = shell.run("run", "job.yaml")
    assert all(int(line) > 5 for line in said(shell) if line.isdigit()), "there is a key to be told"
    run = shell.runs()[-1]
    texts = [out, *(path.read_text() for path in (run / "operator.log", run / "run.json", *(run / "logs").iterdir()))]
    assert not any("PRIVATE KEY" in text or "b3BlbnNzaC1rZXk" in text for text in texts)


def port_of(command: Command, worker: str) -> str:
    """The last port that a worker's sshd said it listens on."""
    found = re.findall(rf"{worker} +\| disttrain: sshd listens on port (\d+)", command.out)
    assert found, command.out
    return str(found[-1])


def test_a_lost_worker_restarts_all_under_new_names(shell: Shell) -> None:
    script = f"echo {WHO}; if [ $DISTTRAIN_ROUND = 1 ]; then sleep 600; fi"
    shell.write("job.yaml", job("mpirun", "sh", "-c", script, limit=1))
    running = shell.start("run", "job.yaml")
    running.until("of 2 in worker-1\n")
    [sshd] = [pid for pid in processes(f"-p {port_of(running, 'worker-1')} ") if "sshd" in name_of(pid)]
    os.kill(sshd, signal.SIGKILL)
    assert running.wait() == 0, running.out
    assert "restart 1 of 1 follows" in running.out
    assert "rank 1 of 2 in worker-1-r2\n" in running.out


def name_of(pid: int) -> str:
    """The program of a process."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_launcher_that_fails_is_charged(shell: Shell) -> None:
    shell.write("job.yaml", job("sh", "-c", "[ $DISTTRAIN_ROUND = 2 ] && exec mpirun hostname; exit 7", limit=1))
    out = shell.run("run", "job.yaml")
    assert "Launcher-0 failed with exit code 7; restart 1 of 1 follows." in out
    assert "worker-0-r2\n" in out


def test_a_launcher_that_fails_for_good_fails_the_job(shell: Shell) -> None:
    shell.write("job.yaml", job("sh", "-c", "echo these are my last words >&2; exit 7"))
    out = shell.run("run", "job.yaml", code=1)
    assert "Launcher-0 failed with exit code 7" in out
    assert "these are my last words" in out.partition("The last lines of hosts-launcher-0")[2]
    assert shell.facts(shell.runs()[-1])["state"] == "Failed"
    assert not processes(f"-f /etc/disttrain/sshd_config -p {re.findall('listens on port ([0-9]+)', out)[-1]}")


def test_a_process_that_fails_takes_its_exit_code_through_mpirun(shell: Shell) -> None:
    shell.write("job.yaml", job("mpirun", "sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 9; sleep 600"))
    assert "Launcher-0 failed with exit code 9" in shell.run("run", "job.yaml", code=1)


def test_workers_end_with_a_launcher_that_is_killed(shell: Shell) -> None:
    shell.write("job.yaml", job("mpirun", "sh", "-c", f"echo {WHO}; sleep 600"))
    running = shell.start("run", "job.yaml")
    running.until("of 2 in worker-1\n")
    port = port_of(running, "worker-1")
    [mpirun] = [pid for pid in processes("mpirun sh -c echo rank") if name_of(pid) == "mpirun"]
    os.kill(mpirun, signal.SIGKILL)
    assert running.wait() == 1, running.out
    assert "Launcher-0 failed with exit code 137" in running.out
    eventually(lambda: not processes(f"-p {port} "), "sshd still runs")


def test_no_sshd_is_said_with_its_package(shell: Shell) -> None:
    tools = shell.folder / "tools"
    tools.mkdir()
    worker = job("mpirun", "hostname", env={"PATH": str(tools)})
    for name in ("sh", "id", "mkdir", "mktemp"):
        (tools / name).symlink_to(str(shutil.which(name)))
    # No sbin either: what the script adds to PATH is mapped to an empty folder.
    empty = shell.folder / "empty"
    empty.mkdir()
    shell.write("job.yaml", worker)
    maps = [word for folder in ("/usr/sbin", "/usr/local/sbin") for word in ("--map", f"{folder}={empty}")]
    out = shell.run("run", "job.yaml", *maps, code=1)
    assert "there is no sshd: put the package openssh-server into the image" in out
    assert "exit code 127: the command was not found" in out
