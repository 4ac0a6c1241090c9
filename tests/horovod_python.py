"""The Python that has Horovod and mpi4py: both are built for one MPI, and too large for the tests' own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[1] / "training"
PYTHON = os.environ.get("DISTTRAIN_HOROVOD_PYTHON") or sys.executable
NEEDED = ("horovod", "mpi4py", "torch", "tensorflow", "tf_keras", "sklearn")
_ASKED = subprocess.run(
    [PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))", *NEEDED],
    check=False,
)
MARKS = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        _ASKED.returncode != 0 and not os.environ.get("CI"),
        reason=f"{PYTHON} lacks horovod or what it is built for: make venv-horovod, and set DISTTRAIN_HOROVOD_PYTHON",
    ),
]
"""What marks a module whose tests train with Horovod. In CI they run, and fail without it."""
