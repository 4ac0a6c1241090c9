"""How pods find each other, one module a framework."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.types import Framework as FrameworkName
from .base import Framework, World
from .horovod import Horovod
from .mpi import MPI
from .pytorch import PyTorch
from .tensorflow import TensorFlow

FRAMEWORKS: Mapping[FrameworkName, Framework] = {
    "pytorch": PyTorch(),
    "tensorflow": TensorFlow(),
    "horovod": Horovod(),
    "mpi": MPI(),
}
"""The frameworks that this version runs; admission refuses the others."""

__all__ = ["FRAMEWORKS", "Framework", "World"]
