from __future__ import annotations

import json
from pathlib import Path

import pytest

from disttrain.cli import runs
from disttrain.cli.console import CliError


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = (runs.Run.new(tmp_path / "runs", "digits", "default") for _ in range(2))
    assert first.path != second.path
    assert first.path.name.startswith("digits-")
    claim = first.path / "cluster" / "volumes" / "default_kept"
    claim.mkdir()
    assert (second.path / "cluster" / "volumes" / "default_kept").is_dir()  # claims are shared
    second.discard()
    assert not second.path.exists()
    assert (tmp_path / "runs" / "volumes" / "default_kept").is_dir()


def test_the_last_run_of_a_job(tmp_path: Path) -> None:
    def run(job: str, started: float, uid: str, namespace: str = "default") -> None:
        made = runs.Run.new(tmp_path, job, namespace)
        made.save(started=started, uid=uid)

    with pytest.raises(CliError, match="there is no run of digits in"):
        runs.last(tmp_path, "digits", "default")
    run("digits", 1.0, "one")
    run("digits", 3.0, "three")
    run("digits", 2.0, "two")
    run("digits", 4.0, "")  # it was never created
    run("digits", 5.0, "five", "team-a")
    run("other", 6.0, "six")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text('{"job": "digi')
    assert runs.last(tmp_path, "digits", "default").facts["uid"] == "three"
    assert runs.last(tmp_path, "digits", "team-a").facts["uid"] == "five"
    for uid, file in (("two", "step-9.ckpt"), ("three", "r000001.claim")):
        folder = tmp_path / "volumes" / "default_kept" / uid
        folder.mkdir(parents=True)
        (folder / file).touch()
    assert runs.last(tmp_path, "digits", "default").facts["uid"] == "two"


def test_facts_are_added(tmp_path: Path) -> None:
    run = runs.Run.new(tmp_path, "digits", "default")
    run.save(uid="one")
    run.save(state="Succeeded")
    facts = json.loads((run.path / "run.json").read_text())
    assert (facts["job"], facts["uid"], facts["state"]) == ("digits", "one", "Succeeded")


def test_a_place_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="name another with --runs") as error:
        runs.Run.new(tmp_path / "file", "digits", "default")
    assert error.value.code == 2


def test_paths_as_a_person_would_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs.shown(tmp_path / "a" / "b") == "./a/b"
    assert runs.shown(Path("/etc")) == "/etc"
