"""Schemas of custom types: defaults, pruning, validation."""

from __future__ import annotations

from typing import Any

import pytest

from disttrain.local.server.schema import apply_defaults, blocks_rules, prune, validate
from local.server.conftest import widget_crd

SCHEMA: dict[str, Any] = widget_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]


def test_defaults_at_every_depth() -> None:
    value: dict[str, Any] = {"size": "small", "parts": [{"name": "a"}, {"name": "b", "weight": 0}]}
    apply_defaults(SPEC, value)
    assert value == {
        "size": "small",
        "replicas": 1,
        "parts": [{"name": "a", "weight": 3}, {"name": "b", "weight": 0}],
        "nested": {"a": {"b": 5}},
    }
    again: dict[str, Any] = {"size": "small"}
    apply_defaults(SPEC, again)
    again["nested"]["a"]["b"] = 6
    assert SPEC["properties"]["nested"]["default"] == {}  # a default is copied, not handed out


def test_pruning_keeps_what_is_to_be_kept() -> None:
    value = {
        "size": "small",
        "foo": 1,
        "free": {"any": {"thing": 1}, "known": 2},
        "nested": {"zz": 1},
        "map": {"a": 1},
        "parts": [{"name": "a", "odd": 1, "env": [{"name": "X", "valueFrom": {}}]}],
        "note": None,
        "maybe": None,
    }
    assert list(prune(SPEC, value, "spec")) == ["spec.foo", "spec.nested.zz", "spec.parts[0].odd"]
    assert value == {
        "size": "small",
        "free": {"any": {"thing": 1}, "known": 2},
        "nested": {},
        "map": {"a": 1},
        "parts": [{"name": "a", "env": [{"name": "X", "valueFrom": {}}]}],
        "maybe": None,  # nullable
    }


def typed(path: str, given: str, wanted: str) -> str:
    return f'{path}: Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'


def bad(path: str, value: str, words: str) -> str:
    return f"{path}: Invalid value: {value}: {path} in body should {words}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [  # the words as a kube-apiserver 1.34 has them
        ({"replicas": "x"}, typed("spec.replicas", "string", "integer")),
        ({"replicas": 1.5}, typed("spec.replicas", "number", "integer")),
        ({"flag": "x"}, typed("spec.flag", "string", "boolean")),
        ({"tags": "x"}, typed("spec.tags", "string", "array")),
        ({"nested": 3}, typed("spec.nested", "integer", "object")),
        ({"tags": [None]}, typed("spec.tags[0]", "null", "string")),
        ({"size": "x"}, 'spec.size: Unsupported value: "x": supported values: "small", "large"'),
        ({"replicas": 0}, bad("spec.replicas", "0", "be greater than or equal to 1")),
        ({"replicas": 11}, bad("spec.replicas", "11", "be less than or equal to 10")),
        ({"ratio": 0}, bad("spec.ratio", "0", "be greater than 0")),
        ({"ratio": 1.5}, bad("spec.ratio", "1.5", "be less than or equal to 1")),
        ({"note": "a"}, bad("spec.note", '"a"', "be at least 2 chars long")),
        ({"note": "abcdefghij"}, "spec.note: Too long: may not be more than 8 bytes"),
        ({"note": "AB"}, bad("spec.note", r'"AB"', "match '^[a-z]*$'")),
        ({"note": "ab\n"}, bad("spec.note", r'"ab\n"', "match '^[a-z]*$'")),
        ({"when": "yesterday"}, typed("spec.when", "yesterday", "date-time")),
        ({"port": 1.5}, typed("spec.port", "number", "integer,string")),
        ({"tags": []}, bad("spec.tags", "0", "have at least 1 items")),
        ({"tags": ["a", "b", "c"]}, "spec.tags: Too many: 3: must have at most 2 items"),
        ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
        ({"tags": ["abcdefgh"]}, "spec.tags[0]: Too long: may not be more than 5 bytes"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, 'spec.parts[1]: Duplicate value: {"name":"a"}'),
        ({"parts": [{"weight": 1}]}, "spec.parts[0].name: Required value"),
        ({"map": {"a": -1}}, bad("spec.map.a", "-1", "be greater than or equal to 0")),
        ({"map": {"a": 1, "b": 1, "c": 1, "d": 1}}, "spec.map: Too many: 4: must have at most 3 items"),
    ],
)  # fmt: skip
def test_faults(spec: dict[str, Any], expected: str) -> None:
    assert [str(cause) for cause in validate(SCHEMA, {"spec": {"size": "small", **spec}})] == [expected]


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 1.0}, {"ratio": 1}, {"port": 80}, {"port": "http"}, {"maybe": None}, {"maybe": "x"},
        {"when": "2026-01-01T00:00:00Z"}, {"when": "2026-01-01T00:00:00.5+02:00"}, {"free": {"x": [1]}}, {"map": {}},
    ],
)  # fmt: skip
def test_what_passes(spec: dict[str, Any]) -> None:
    assert validate(SCHEMA, {"spec": {"size": "small", **spec}}) == []


def test_required_is_said_of_the_root_too() -> None:
    assert [str(cause) for cause in validate(SCHEMA, {})] == ["spec: Required value"]


def test_which_faults_leave_out_the_rules() -> None:
    assert blocks_rules(validate(SCHEMA, {"spec": {"size": "x"}}))
    assert not blocks_rules(validate(SCHEMA, {"spec": {"size": "small", "replicas": 0}}))


def test_what_an_update_leaves_alone_is_not_judged_anew() -> None:
    old: dict[str, dict[str, Any]] = {"spec": {"size": "tiny", "replicas": 99, "parts": [{"name": "much-too-long"}]}}
    changed: dict[str, Any] = {
        "spec": {**old["spec"], "parts": [*old["spec"]["parts"], {"name": "b"}]},
        "status": {"state": "x"},
    }
    assert validate(SCHEMA, changed, old) == []
    changed["spec"] = {**old["spec"], "replicas": 98}
    assert [cause.field for cause in validate(SCHEMA, changed, old)] == ["spec.replicas"]
