"""CustomResourceDefinitions: the types that they add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CustomType:
    """What a CRD says of its storage version, beside the names."""

    schema: dict[str, Any]
    columns: tuple[dict[str, Any], ...] = ()
    scale: dict[str, str] | None = None
