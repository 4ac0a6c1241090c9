"""What can be seen before a run starts: packages and programs that are missing and that the job's command names."""

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
    "mpi4py": "mpi4py",
    "horovod": "horovod (which images/horovod/build-wheel.sh of disttrain's repository builds)",
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
        if word.startswith("disttrain_training.mpi"):
            needed.append("mpi4py")
        if word.startswith("disttrain_training.horovod"):
            needed += ["horovod", "torch"] if word.endswith("_torch") else ["horovod", "tensorflow", "tf_keras"]
        if word.startswith(tuple(f"disttrain_training.{kind}" for kind in ("pytorch", "tensorflow", "horovod"))):
            needed.append("sklearn")  # whose digits it trains on
    return list(dict.fromkeys(needed))


PROGRAMS = {
    "ssh": "Debian's package openssh-client",
    "sshd": "Debian's package openssh-server",
    "mpirun": "Debian's package openmpi-bin",
    "mpiexec": "Debian's package openmpi-bin, or mpich",
    "horovodrun": "Horovod",
    "disttrain-horovodrun": "disttrain-training (pip install ./training, from disttrain's repository)",
}
"""What MPI and Horovod jobs start, and what brings it."""


def check_programs(python: Path, framework: object, words: Iterable[str]) -> None:
    """Raises CliError where an MPI or Horovod job would find no sshd, or not what its command names."""
    if framework not in ("mpi", "horovod"):
        return
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    needed = ["ssh", "sshd", *(word for word in words if word in PROGRAMS)]
    missing = [name for name in dict.fromkeys(needed) if shutil.which(name, path=path) is None]
    if missing:
        cures = "; ".join(f"{name} comes with {PROGRAMS[name]}" for name in missing)
        raise CliError(
            f"{framework} jobs on one machine run its own programs, and there is no {', '.join(missing)}: {cures}"
        )


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
