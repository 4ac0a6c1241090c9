"""CEL rules of custom types."""

from __future__ import annotations

from typing import Any

import pytest

from disttrain.local.server.rules import RuleError, check, compile_rules

OBJECT = {"type": "object"}


def faults(schema: dict[str, Any], value: Any, *old: Any) -> list[str]:
    node = compile_rules(schema)
    assert node is not None
    return [str(cause) for cause in check(node, value, *old)]


def spec(rule: str, **more: Any) -> dict[str, Any]:
    """A schema with a typed object under `spec` and one rule on it."""
    properties = {"a": {"type": "integer"}, "s": {"type": "string"}, "r": {"type": "number"}, "l": {"type": "array"}}
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule, **more}]}
    return {"type": "object", "properties": {"spec": inner}}


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("has(self.a)", {"a": 1}, True),
        ("has(self.a)", {}, False),
        ("!has(self.a) || self.a > 3", {"a": 2}, False),
        ("self.a >= 1 && self.a <= 3", {"a": 3}, True),
        ("self.s in ['x', 'y']", {"s": "y"}, True),
        ("self.s in ['x', 'y']", {"s": "z"}, False),
        ("size(self.l) == 2", {"l": [1, 2]}, True),
        ("self.l.size() == 2", {"l": [1, 2, 3]}, False),
        ("self.s.size() == 2", {"s": "é€"}, True),  # characters, not bytes
        ("self.s == 'size(' || self.s.size() > 0", {"s": ""}, False),
        ("self.l.all(x, x > 1)", {"l": [2, 3]}, True),
        ("self.l.exists(x, x > 2)", {"l": [2, 3]}, True),
        ("self.l.exists_one(x, x > 1)", {"l": [2, 3]}, False),
        ("self.l.filter(x, x > 2).size() == 1", {"l": [2, 3]}, True),
        ("self.l.map(x, x * 2) == [4, 6]", {"l": [2, 3]}, True),
        ("self.s.matches('^[a-z]+$')", {"s": "ab1"}, False),
        ("self.s.startsWith('ab')", {"s": "abc"}, True),
        ("string(self.a).size() == 3", {"a": 100}, True),
        ("int(self.s) == 5", {"s": "5"}, True),
        ("self.a > 1 ? self.s == 'x' : self.s == 'y'", {"a": 2, "s": "y"}, False),
        ("self.r > 1.0", {"r": 2}, True),  # JSON's 2 is a double where the schema says number
        ("type(self.a) == int", {"a": 2}, True),
        ("self == {'a': 1}", {"a": 1}, True),
    ],
)
def test_rules(rule: str, value: dict[str, Any], holds: bool) -> None:
    expected = [] if holds else [f'spec: Invalid value: "object": failed rule: {rule}']
    assert faults(spec(rule), {"spec": value}) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 'spec: Invalid value: "object": failed rule: self.a > 1'),
        ({"message": "too small"}, 'spec: Invalid value: "object": too small'),
        ({"message": "m", "messageExpression": "'%d is not %s (%.1f)'.format([self.a, 'two', 1.25])"},
         'spec: Invalid value: "object": 1 is not two (1.2)'),
        ({"message": "m", "messageExpression": "self.nothing"}, 'spec: Invalid value: "object": m'),
        ({"message": "m", "reason": "FieldValueForbidden"}, "spec: Forbidden: m"),
        ({"message": "m", "reason": "FieldValueRequired", "fieldPath": ".a"}, "spec.a: Required value: m"),
        ({"message": "m", "fieldPath": ".a"}, 'spec.a: Invalid value: "object": m'),
    ],
)  # fmt: skip
def test_words(more: dict[str, Any], expected: str) -> None:
    assert faults(spec("self.a > 1", **more), {"spec": {"a": 1}}) == [expected]


def test_transition_rules_are_asked_of_updates_only() -> None:
    schema = spec("self.a >= oldSelf.a", message="shrinks")
    assert faults(schema, {"spec": {"a": 1}}) == []
    assert faults(schema, {"spec": {"a": 1}}, {"spec": {"a": 2}}) == ['spec: Invalid value: "object": shrinks']
    assert faults(schema, {"spec": {"a": 1}}, {}) == []  # the field is new


def test_an_optional_old_self_is_asked_of_new_objects_too() -> None:
    schema = spec("oldSelf.hasValue() || self.a > 1", message="bad", optionalOldSelf=True)
    assert faults(schema, {"spec": {"a": 1}}) == ['spec: Invalid value: "object": bad']
    assert faults(schema, {"spec": {"a": 1}}, {"spec": {"a": 0}}) == []
    schema = spec("!oldSelf.hasValue() || oldSelf.value().a <= self.a", message="shrinks", optionalOldSelf=True)
    assert faults(schema, {"spec": {"a": 1}}) == []
    assert faults(schema, {"spec": {"a": 1}}, {"spec": {"a": 2}}) == ['spec: Invalid value: "object": shrinks']


def test_a_rule_that_only_looks_is_not_asked_of_what_stayed() -> None:
    schema = spec("self.a > 1")
    assert faults(schema, {"spec": {"a": 1}, "status": {}}, {"spec": {"a": 1}}) == []
    assert len(faults(schema, {"spec": {"a": 0}}, {"spec": {"a": 1}})) == 1


def test_items_of_a_keyed_list_know_what_they_were() -> None:
    item = {"type": "object", "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "shrinks"}]}
    keyed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema = {"type": "object", "properties": {"l": keyed}}
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    new = {"l": [{"k": "b", "v": 4}, {"k": "c", "v": 0}, {"k": "a", "v": 1}]}
    assert faults(schema, new, old) == ['l[0]: Invalid value: "object": shrinks']


def test_rules_of_map_values_and_of_the_root() -> None:
    schema = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name.size() < 3", "message": "long"}],
        "properties": {
            "m": {
                "type": "object",
                "additionalProperties": {
                    "type": "integer",
                    "x-kubernetes-validations": [{"rule": "self > 0", "message": "low"}],
                },
            }
        },
    }  # fmt: skip
    assert faults(schema, {"metadata": {"name": "abc"}, "m": {"x": 0}}) == [
        '<nil>: Invalid value: "object": long',
        'm[x]: Invalid value: "integer": low',
    ]


def test_a_rule_that_fails_to_evaluate_refuses() -> None:
    (words,) = faults(spec("self.nothing.at.all == 1", message="m"), {"spec": {}})
    assert words.startswith('spec: Invalid value: "object": ')
    assert words.endswith("evaluating rule: m")


def test_a_rule_that_cannot_be_compiled() -> None:
    with pytest.raises(RuleError, match=r"self\.a >.*compilation failed"):
        compile_rules(spec("self.a > "))
