"""What can be seen before a run starts: a Python that lacks the packages that the job's command names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .console import CliError, usage

_MISSING = """
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""
INSTALL = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "tf_keras": "tf_keras",
    "sklearn": "scikit-learn",
    "disttrain_training": "./training (from disttrain's repository)",
}
"""Module -> what pip installs it from."""


def interpreter(given: str | None) -> Path:
    """The Python whose environment the pods get: the one given, else ours. Raises CliError."""
    if given is None:
        return Path(sys.executable)
    found = shutil.which(given)
    if found is None:
        raise usage(f"--python {given}: there is no such program; give the path of a Python, such as .venv/bin/python")
    # Not resolved: a virtual environment's link is what makes it one.
    return Path(os.path.normpath(Path(found).absolute()))


def modules(words: Iterable[str]) -> list[str]:
    """The modules that a command needs, as far as its words show."""
    needed: list[str] = []
    for word in words:
        if Path(word).name == "torchrun" or word.startswith(("torch.distributed", "disttrain_training.pytorch")):
            needed.append("torch")
        if word.startswith("disttrain_training."):
            needed.append("disttrain_training")
        if word.startswith("disttrain_training.tensorflow"):
            needed += ["tensorflow", "tf_keras"]
        if word.startswith(("disttrain_training.pytorch", "disttrain_training.tensorflow")):
            needed.append("sklearn")  # whose digits it trains on
    return list(dict.fromkeys(needed))


def check(python: Path, words: Iterable[str]) -> None:
    """Raises CliError, before anything is started, where a module is missing that the command names."""
    needed = modules(words)
    if not needed:
        return
    asked = subprocess.run([str(python), "-c", _MISSING, *needed], capture_output=True, text=True, check=False)
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no words"])[-1]
        raise usage(f"{python} is not a Python that works ({last}): name another with --python")
    missing = asked.stdout.split()
    if missing:
        names = ", ".join(missing)
        packages = " ".join(INSTALL[name] for name in missing)
        raise CliError(
            f"the job's command needs {names}, which {python} cannot import: install it with "
            f"`{python} -m pip install {packages}`, or name a Python that has it with --python"
        )
