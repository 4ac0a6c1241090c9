"""How pods find each other, one module a framework."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.types import Framework as FrameworkName
from .base import Framework, World
from .pytorch import PyTorch
from .tensorflow import TensorFlow

FRAMEWORKS: Mapping[FrameworkName, Framework] = {"pytorch": PyTorch(), "tensorflow": TensorFlow()}
"""The frameworks that this version runs; admission refuses the others."""

__all__ = ["FRAMEWORKS", "Framework", "World"]
