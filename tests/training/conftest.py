from __future__ import annotations

from collections.abc import Iterator

import pytest

from training.launch import Launcher


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Runs that may be shared by the tests of one module."""
    launcher = Launcher(tmp_path_factory.mktemp("runs"))
    yield launcher
    launcher.end()
