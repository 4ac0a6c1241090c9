"""A folder to start `disttrain` in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()
    shell.nothing_left()
