"""The examples, as they stand: real training on the one-machine cluster, through the real operator."""

from __future__ import annotations

import re
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
