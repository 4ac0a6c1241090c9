"""Kubernetes quantities (`500m`, `2Gi`, `1e3`) as exact numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"),
    "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
}  # fmt: skip
_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]|)")


def parse(text: str | int | float) -> Decimal:
    """The number; raises ValueError with what was given."""
    match = _PATTERN.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, suffix = match.groups()
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1] != "i":
        return Decimal(number + suffix)
    return Decimal(number) * (_BINARY.get(suffix) or _DECIMAL[suffix])


def in_units(text: str | int | float, divisor: str | int | float) -> str:
    """The quantity counted in `divisor`s, rounded up, as resourceFieldRef gives it; divisor 0 stands for 1."""
    return str(math.ceil(parse(text) / (parse(divisor) or 1)))
