"""The CEL rules: how a rule becomes an entry of the schema, and what holds for all of them."""

from __future__ import annotations

import re
from typing import Any

import cel
import pytest

from disttrain.api import crd
from disttrain.api.cel import Rule, attach, literal, says, words
from disttrain.api.rules import rules

SCHEMA = crd.openapi()
SUBSET = {"matches", "size", "type", "string", "format", "hasValue", "value", "has", "@in"}
"""Functions of the one-machine API."""


@pytest.mark.parametrize(
    ("when", "rule"),
    [
        ("Unbroken", "(self.a > 1) || (oldSelf.hasValue() && !(oldSelf.value().a > 1))"),
        ("Changed", "(self.a > 1) || (oldSelf.hasValue() && oldSelf.value() == self)"),
        ("Created", "(self.a > 1) || (oldSelf.hasValue())"),
    ],
)
def test_what_runs_already_is_pardoned(when: Any, rule: str) -> None:
    assert Rule(at="spec", holds="self.a > 1", message="no", when=when).validation() == {
        "rule": rule,
        "optionalOldSelf": True,
        "message": "no",
        "reason": "FieldValueInvalid",
    }


def test_a_rule_without_pardon() -> None:
    rule = Rule(
        at="spec",
        holds="self == oldSelf",
        message=says("it's %s", "self"),
        field=".a",
        reason="FieldValueForbidden",
        when="Always",
    )
    assert rule.validation() == {
        "rule": "self == oldSelf",
        "messageExpression": r"'it\'s %s'.format([self])",
        "reason": "FieldValueForbidden",
        "fieldPath": ".a",
    }


def test_literals_are_read_back_as_they_were() -> None:
    for value in ("it's", r"a\.b", "größe", "", True, False):
        assert cel.evaluate(literal(value)) == value


def test_words() -> None:
    assert [words(["a"]), words(["a", "b"], "or"), words(["a", "b", "c"])] == ["a", "a or b", "a, b and c"]


def test_attach_finds_lists_and_properties() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"items": {"properties": {"b": {"items": {}}}}}},
    }
    attach(schema, [Rule(at="a[].b[]", holds="true", message="no", when="Always"), Rule(at="", holds="x", message="y")])
    assert (
        schema["properties"]["a"]["items"]["properties"]["b"]["items"]["x-kubernetes-validations"][0]["rule"] == "true"
    )
    assert len(schema["x-kubernetes-validations"]) == 1


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule.at}{rule.field}")
def test_rule(rule: Rule) -> None:
    """It keeps to the subset that the one-machine API evaluates, and blames a field that there is."""
    entry = rule.validation()
    for expression in (entry["rule"], entry.get("messageExpression", "''")):
        used = {name for name in cel.compile(expression).functions() if re.fullmatch(r"@?\w+", name)}
        assert used <= SUBSET | {name for name in used if name.startswith("_")}, used
    node = SCHEMA
    for step in re.findall(r"\w+|\[\]", rule.at + rule.field):
        node = node["items"] if step == "[]" else node["properties"][step]
    assert len(str(rule.message)) < 2048, "the API server's bound"


def test_every_rule_is_in_the_schema() -> None:
    def count(node: Any) -> int:
        if isinstance(node, list):
            return sum(map(count, node))
        if not isinstance(node, dict):
            return 0
        return len(node.get("x-kubernetes-validations", [])) + sum(map(count, node.values()))

    assert count(crd.openapi()) == len(rules())
    assert count(crd.openapi(later=False)) == len(rules(later=False)) < len(rules())
