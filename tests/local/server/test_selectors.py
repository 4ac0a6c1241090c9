"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from disttrain.local.server.errors import ApiError
from disttrain.local.server.resources import PODS
from disttrain.local.server.selectors import fields, labels, selector
from disttrain.local.server.store import Record, snapshot


def record(**labels: str) -> Record:
    metadata: dict[str, Any] = {"name": "p", "namespace": "n", "uid": "u", "labels": labels}
    return snapshot(PODS, {"metadata": metadata, "spec": {"nodeName": "one"}, "status": {"phase": "Running"}}, 1)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("a=b", True),
        ("a==b", True),
        ("a = b", True),
        ("a=c", False),
        ("z=c", False),
        ("a!=b", False),
        ("z!=b", True),  # absent is different
        ("a", True),
        ("!a", False),
        ("!z", True),
        ("a in (x, b)", True),
        ("a in (x)", False),
        ("z in (b)", False),
        ("a notin (b,c)", False),
        ("z notin (b,c)", True),
        ("a=b,c=d", True),
        ("a=b,c=e", False),
        ("a in (b,x),c notin (e,f),!z", True),
        ("disttrain.dev/job=x", True),
        ("disttrain.dev/job in (x)", True),
        ("e=", True),
    ],
)
def test_labels(text: str, matches: bool) -> None:
    assert labels(text)(record(**{"a": "b", "c": "d", "e": "", "disttrain.dev/job": "x"})) is matches


@pytest.mark.parametrize("text", ["a b", "a in", "a in (b", "=b", "a=(b)", "a,,b"])
def test_bad_labels(text: str) -> None:
    with pytest.raises(ApiError, match="unable to parse requirement") as caught:
        labels(text)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.name!=p", False),
        ("metadata.namespace=n,status.phase=Running", True),
        ("status.phase!=Running", False),
        ("spec.nodeName=one", True),
        ("spec.nodeName=", False),
        ("spec.hostNetwork=", True),
    ],
)
def test_fields(text: str, matches: bool) -> None:
    assert fields(text, PODS)(record()) is matches


def test_a_field_that_is_not_offered() -> None:
    with pytest.raises(ApiError, match=r"field label not supported: spec\.foo"):
        fields("spec.foo=1", PODS)


def test_both() -> None:
    assert selector(PODS, "a=b", "metadata.name=p")(record(a="b"))
    assert not selector(PODS, "a=b", "metadata.name=q")(record(a="b"))
    assert not selector(PODS, "a=c", "metadata.name=p")(record(a="b"))
