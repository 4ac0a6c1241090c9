"""The examples, as they stand: real training on the one-machine cluster, through the real operator."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from local.cli.shell import Shell

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pytorch_digits(shell: Shell) -> None:
    text = (EXAMPLES / "01-pytorch-digits.yaml").read_text()
    accuracies = []
    for seed in (0, 1, 2):  # 0 is the default: the manifest as it stands
        manifest = EXAMPLES / "01-pytorch-digits.yaml"
        if seed:
            assert text.count("--epochs=5]") == 1
            manifest = shell.write("job.yaml", text.replace("--epochs=5]", f"--epochs=5, --seed={seed}]"))
        shell.run("run", manifest)
        run = shell.runs()[-1]
        facts = shell.facts(run)
        assert facts["state"] == "Succeeded"
        assert facts["progress"]["worldSize"] == 3
        assert facts["progress"]["step"] == facts["progress"]["of"] == 300
        assert facts["result"]["samples"] == 359
        accuracies.append(facts["result"]["accuracy"])
        weights = {}
        for log in sorted((run / "logs").iterdir()):
            found = re.search(r"^weights sha256 ([0-9a-f]{64}) rank (\d)$", log.read_text(), re.MULTILINE)
            assert found, f"{log} has no weights"
            weights[log.stem] = found.groups()
        digest = facts["result"]["weightsSha256"]
        assert weights == {"master-0": (digest, "0"), "worker-0": (digest, "1"), "worker-1": (digest, "2")}
    assert sum(accuracies) / len(accuracies) >= 0.95, accuracies


def training(uid: str, role: str, index: int) -> list[int]:
    """Pids of the processes that train in a job's pod, the launcher last."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # no process, or it has ended
        wanted = {
            f"DISTTRAIN_ROLE={role}".encode(),
            f"DISTTRAIN_INDEX={index}".encode(),
            f"DISTTRAIN_CHECKPOINT_DIR=/checkpoints/{uid}".encode(),
        }
        if wanted <= set(environment) and any(name.startswith(b"TORCHELASTIC_RUN_ID=") for name in environment):
            found.append(int(entry.name))
    return sorted(found, reverse=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_worker_costs_one_restart_and_changes_no_weight(shell: Shell) -> None:
    text = (EXAMPLES / "01-pytorch-digits.yaml").read_text()
    flags = "--epochs=2, --checkpoint-every=20, --min-step-seconds=0.05]"
    manifest = shell.write("job.yaml", text.replace("--epochs=5]", flags))
    shell.run("run", manifest)
    undisturbed = shell.facts(shell.runs()[-1])
    command = shell.start("run", manifest)
    command.until("epoch 1/2  step 60/120")
    uid = shell.facts(shell.runs()[-1])["uid"]
    victims = training(uid, "worker", 1)
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    assert command.wait() == 0, command.out
    disturbed = shell.facts(shell.runs()[-1])
    assert disturbed["result"]["weightsSha256"] == undisturbed["result"]["weightsSha256"]
    assert "restart 1 of 3 follows" in command.out
    assert "restart 2 of 3" not in command.out
    log = shell.runs()[-1] / "logs" / "master-0-r2.log"
    assert re.search(r"^resumed from .* at step [1-9]\d+/120$", log.read_text(), re.MULTILINE), log.read_text()
