"""Helm for the tests of the chart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chart.helm import find


@pytest.fixture(scope="session")
def helm() -> Path:
    """The Helm binary."""
    found = find()
    if found is None:
        words = "no Helm at hand: `make .tools/helm` fetches it"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found
