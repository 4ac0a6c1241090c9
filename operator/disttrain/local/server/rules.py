"""CEL rules of CRDs (`x-kubernetes-validations`), compiled once a CRD and asked of every write."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cel

from disttrain.local.server.crd_schema import PROPS
from disttrain.local.server.errors import Cause
from disttrain.local.server.schema import Schema, item_key, quoted, validate

_MISSING: Any = object()
REMEMBERED = 10_000  # values of a place in a schema whose passing is kept in mind


def _format(template: str, arguments: list[Any]) -> str:
    """CEL's `format` with %s, %d, %f (and a precision) and %%."""
    supply = iter(arguments)

    def verb(found: re.Match[str]) -> str:
        if found[2] == "%":
            return "%"
        value = next(supply)
        if found[2] == "f":
            return format(float(value), f"{found[1] or '.6'}f")
        if found[2] == "d":
            return str(int(value))
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, str) else quoted(value)

    return re.sub(r"%(\.\d+)?([sdf%])", verb, template)


# The library's own size() counts the bytes of a string, Kubernetes its characters: the name is changed for ours.
_FUNCTIONS: dict[str, Callable[..., Any]] = {"format": _format, "characters": len}
_LITERAL = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


class RuleError(ValueError):
    """A schema or a rule of it that cannot be compiled; says which."""


@dataclass(frozen=True)
class Rule:
    """One compiled rule."""

    source: str
    program: cel.Program
    message: str
    expression: cel.Program | None  # makes the message, where one is given
    reason: str
    field_path: str
    looks_back: bool  # reads oldSelf
    optional: bool  # oldSelf is an optional, and the rule is asked of new objects too

    def failure(self, context: cel.Context) -> str | None:
        """Why the value does not pass, None if it does."""
        try:
            if self.program.execute(context) is True:
                return None
        except Exception as error:
            return f"{error} evaluating rule: {self.message or self.source}"
        if self.expression is not None:
            try:
                made = self.expression.execute(context)
            except Exception:
                made = ""
            if isinstance(made, str) and made.strip() and "\n" not in made:
                return made
        return self.message or f"failed rule: {self.source}"


@dataclass
class Node:
    """The rules of one place in a schema, and the places below it that have any."""

    schema: Schema
    rules: list[Rule] = field(default_factory=list)
    properties: dict[str, Node] = field(default_factory=dict)
    items: Node | None = None
    additional: Node | None = None
    passed: set[bytes] = field(default_factory=set)  # digests of values that passed while they stayed as they were


def _compile(expression: str) -> cel.Program:
    parts = _LITERAL.split(expression)  # code and string literals in turn
    parts[::2] = [re.sub(r"\bsize\(", "characters(", code) for code in parts[::2]]
    try:
        return cel.compile("".join(parts))
    except Exception as error:
        raise RuleError(f"{expression!r}: compilation failed: {error}") from None


def _rule(given: dict[str, Any]) -> Rule:
    expression = given.get("messageExpression")
    program = _compile(given["rule"])
    return Rule(
        source=given["rule"].strip(),
        program=program,
        message=(given.get("message") or "").strip(),
        expression=_compile(expression) if expression else None,
        reason=given.get("reason") or "FieldValueInvalid",
        field_path=given.get("fieldPath") or "",
        looks_back="oldSelf" in program.variables(),
        optional=bool(given.get("optionalOldSelf")),
    )


def compile_rules(schema: Schema) -> Node | None:
    """The rules of a schema as a tree of the places that have any; raises RuleError."""
    if pattern := schema.get("pattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            raise RuleError(f"pattern {pattern!r}: {error}") from None
    node = Node(schema, [_rule(given) for given in schema.get("x-kubernetes-validations") or ()])
    for key, inner in (schema.get("properties") or {}).items():
        if (found := compile_rules(inner)) is not None:
            node.properties[key] = found
    if isinstance(schema.get("items"), dict):
        node.items = compile_rules(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        if faults := validate(PROPS, schema["additionalProperties"]):
            raise RuleError(f"additionalProperties: {faults[0]}")
        node.additional = compile_rules(schema["additionalProperties"])
    return node if node.rules or node.properties or node.items or node.additional else None


def check(node: Node, value: Any, old: Any = _MISSING, path: str = "", unchanged: bool = False) -> Iterator[Cause]:
    """The rules that a value breaks. Those that only look at a value that is as it was before are not asked again."""
    if not unchanged and old is not _MISSING and old == value:
        # Most writes are of a status: what the rules said of an unchanged spec they will say again.
        digest = hashlib.blake2b(quoted(value).encode(), digest_size=16).digest()
        if digest not in node.passed:
            causes = list(check(node, value, old, path, unchanged=True))
            yield from causes
            if not causes:
                if len(node.passed) >= REMEMBERED:
                    node.passed.clear()
                node.passed.add(digest)
        return
    yield from _own(node, value, old, path, unchanged)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            if (inner := node.properties.get(key)) is not None:
                yield from check(inner, item, before.get(key, _MISSING), f"{path}.{key}" if path else key, unchanged)
            elif node.additional is not None and key not in (node.schema.get("properties") or {}):
                yield from check(node.additional, item, before.get(key, _MISSING), f"{path}[{key}]", unchanged)
    elif isinstance(value, list) and node.items is not None:
        items = {item_key(node.schema, item): item for item in old} if isinstance(old, list) else {}
        items.pop(None, None)
        for index, item in enumerate(value):
            earlier = items.get(item_key(node.schema, item), _MISSING)
            yield from check(node.items, item, earlier, f"{path}[{index}]", unchanged)


def _own(node: Node, value: Any, old: Any, path: str, unchanged: bool) -> Iterator[Cause]:
    if value is None:
        return
    asked = [rule for rule in node.rules if _is_asked(rule, old, unchanged)]
    if not asked:
        return
    new_self = _typed(node.schema, value)
    old_self = None if old is _MISSING else _typed(node.schema, old)
    contexts: dict[bool, cel.Context] = {}
    for rule in asked:
        context = contexts.get(rule.optional)
        if context is None:
            variables: dict[str, Any] = {"self": new_self}
            if rule.optional:
                variables["oldSelf"] = cel.OptionalValue.none() if old is _MISSING else cel.OptionalValue.of(old_self)
            elif old is not _MISSING:
                variables["oldSelf"] = old_self
            context = contexts[rule.optional] = cel.Context(variables=variables, functions=_FUNCTIONS)
        failure = rule.failure(context)
        if failure is not None:
            yield _cause(rule, node.schema, path, failure)


def _is_asked(rule: Rule, old: Any, unchanged: bool) -> bool:
    if rule.looks_back:
        return rule.optional or old is not _MISSING
    return not unchanged


def _cause(rule: Rule, schema: Schema, path: str, words: str) -> Cause:
    where = (path + rule.field_path).lstrip(".") or "<nil>"
    if rule.reason == "FieldValueRequired":
        return Cause(where, rule.reason, f"Required value: {words}")
    if rule.reason == "FieldValueForbidden":
        return Cause(where, rule.reason, f"Forbidden: {words}")
    kind = schema.get("type") or ""
    if rule.reason == "FieldValueDuplicate":
        return Cause(where, rule.reason, f"Duplicate value: {quoted(kind)}")
    return Cause(where, rule.reason, f"Invalid value: {quoted(kind)}: {words}")


def _typed(schema: Schema, value: Any) -> Any:
    """The value as its schema types it: CEL does not compare a double with an int."""
    if isinstance(value, int) and not isinstance(value, bool) and schema.get("type") == "number":
        return float(value)
    if isinstance(value, float) and schema.get("type") == "integer":
        return int(value)
    if isinstance(value, dict):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        inner = rest if isinstance(rest, dict) else {}
        return {key: _typed(properties.get(key, inner), item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_typed(schema.get("items") or {}, item) for item in value]
    return value
