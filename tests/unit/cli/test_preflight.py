from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from disttrain.cli import preflight
from disttrain.cli.console import CliError


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("torchrun -m disttrain_training.pytorch.train", ["torch", "disttrain_training", "sklearn"]),
        ("/opt/venv/bin/torchrun train.py", ["torch"]),
        ("mpirun python -m disttrain_training.mpi.pi", ["disttrain_training", "mpi4py"]),
        (
            "horovodrun python -m disttrain_training.horovod.train_torch",
            ["disttrain_training", "horovod", "torch", "sklearn"],
        ),
        ("python -m torch.distributed.run train.py", ["torch"]),
        ("python train.py", []),
        ("sh -c echo torch", []),
    ],
)
def test_what_a_command_needs(command: str, needed: list[str]) -> None:
    assert preflight.modules(command.split()) == needed


def test_programs_of_mpi_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"ssh", "mpirun"}
    monkeypatch.setattr("shutil.which", lambda name, path: name if name in found else None)
    python = tmp_path / "python"
    with pytest.raises(CliError) as error:
        preflight.check_programs(python, "mpi", ["mpirun", "mpirun", "x"])
    words = str(error.value)
    assert "there is no sshd: sshd comes with Debian's package openssh-server" in words
    assert "mpirun" not in words
    found.add("sshd")
    preflight.check_programs(python, "mpi", ["mpirun", "x"])
    with pytest.raises(CliError, match=r"there is no disttrain-horovodrun: .*pip install \./training"):
        preflight.check_programs(python, "horovod", ["disttrain-horovodrun", "x"])
    preflight.check_programs(python, "pytorch", ["mpirun"])


def test_a_python_without_torch_is_named_with_the_cure(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # no site-packages
    bare.chmod(0o755)
    with pytest.raises(CliError) as error:
        preflight.check(bare, ["torchrun", "-m", "disttrain_training.pytorch.train"])
    words = str(error.value)
    assert f"needs torch, disttrain_training, sklearn, which {bare} cannot import" in words
    assert f"{bare} -m pip install torch ./training" in words
    assert "scikit-learn" in words
    preflight.check(bare, ["python", "train.py"])


def test_this_python_has_what_the_example_needs() -> None:
    preflight.check(Path(sys.executable), ["torchrun", "-m", "disttrain_training.pytorch.train"])


def test_what_is_no_python(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(CliError, match=r"is not a Python that works \(broken\)"):
        preflight.check(broken, ["torchrun"])
    with pytest.raises(CliError, match="there is no such program"):
        preflight.interpreter(str(tmp_path / "none"))


def test_the_interpreter_of_a_virtual_environment_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert preflight.interpreter(str(link)) == link
    assert preflight.interpreter(os.path.relpath(link)) == link
    assert preflight.interpreter(None) == Path(sys.executable)
