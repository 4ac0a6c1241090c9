"""The Python that has TensorFlow: it is too large for the tests' own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[1] / "training"
PYTHON = os.environ.get("DISTTRAIN_TF_PYTHON") or sys.executable
NEEDED = ("tensorflow", "tf_keras", "sklearn")
_ASK = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
_LACKS = subprocess.run([PYTHON, "-c", _ASK, *NEEDED], check=False).returncode != 0
MARKS = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        _LACKS and not os.environ.get("CI"),
        reason=f"{PYTHON} lacks one of {', '.join(NEEDED)}: make venv-tensorflow, and set DISTTRAIN_TF_PYTHON",
    ),
]
"""What marks a module whose tests train with TensorFlow. In CI they run, and fail without it."""
