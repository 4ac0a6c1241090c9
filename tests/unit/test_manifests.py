"""Nothing that is generated is stale, and what is generated is fit to be applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from disttrain.api import crd, reference
from disttrain.api.__main__ import generated, main
from disttrain.api.schema import fields
from disttrain.api.types import Spec, Status

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("name", generated())
def test_not_stale(name: str) -> None:
    assert (REPOSITORY / name).read_text(encoding="utf-8") == generated()[name], "run `make manifests`"


def test_main_writes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["disttrain.api", str(tmp_path)])
    main()
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in generated()]
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in generated()} == generated()


def test_the_crd_is_read_back_as_it_was() -> None:
    assert yaml.safe_load(crd.manifest()) == crd.definition()


def test_the_crd_leaves_room_for_client_side_apply() -> None:
    """kubectl writes the whole manifest into an annotation, and all annotations may be 256 KiB together."""
    assert len(json.dumps(crd.definition())) < 160 * 1024


def test_the_reference_has_every_field() -> None:
    page = reference.markdown()
    for cls in (Spec, Status):
        for field in fields(cls):
            assert f"| `{field.name}` |" in page
            assert field.description in page
    for link in set(page.split("](#")[1:]):
        anchor = link.split(")")[0]
        assert any(reference.link(line[3:]) == f"#{anchor}" for line in page.splitlines() if line.startswith("## "))
