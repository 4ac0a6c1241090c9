"""A validation rule of a CRD, written in CEL, and where it goes.

Source: "Custom resource validation rules" and "Common Expression Language in Kubernetes" of the Kubernetes
documentation. The one-machine API evaluates the rules too, so they keep to a subset: has, !, &&, ||, ?:, comparison,
in, size, all, exists, matches, type, string, format, and oldSelf's hasValue and value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from .schema import Schema

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


class Cel(str):
    """An expression, as opposed to plain text."""


class Rule(Struct, frozen=True, kw_only=True):
    """One rule."""

    at: str
    """Path in the schema of what `self` is: `spec.template.spec.containers[].env[]`."""
    holds: str
    """What must be true."""
    message: str | Cel
    """What was given and what would do; the API server puts the field's path before it."""
    field: str = ""
    """Path of the field to blame, below `at`."""
    reason: Reason = "FieldValueInvalid"
    when: Literal["Unbroken", "Changed", "Created", "Always"] = "Unbroken"
    """When the rule counts, so that a stricter rule in a new version of the CRD never refuses the status of a job that
    runs:

    - `Unbroken`: unless what was there broke it already,
    - `Changed`: unless the value was there already (`matches` on an old value is beyond the cost budget),
    - `Created`: only for an object that is new,
    - `Always`: for a rule about a change, and below a list whose items have no keys, where no old value can be seen;
      there the API server itself forgives what is unchanged, since Kubernetes 1.30.
    """

    def validation(self) -> Schema:
        """The rule as an entry of `x-kubernetes-validations`."""
        entry: Schema = {"rule": self.holds}
        if self.when != "Always":
            before = re.sub(r"\bself\b", "oldSelf.value()", self.holds)
            pardons = {"Unbroken": f" && !({before})", "Changed": " && oldSelf.value() == self", "Created": ""}
            entry = {"rule": f"({self.holds}) || (oldSelf.hasValue(){pardons[self.when]})", "optionalOldSelf": True}
        entry["messageExpression" if isinstance(self.message, Cel) else "message"] = str(self.message)
        entry["reason"] = self.reason
        if self.field:
            entry["fieldPath"] = self.field
        return entry


def says(text: str, *values: str) -> Cel:
    """A message of plain text with `%s` and `%d` for the values of CEL expressions."""
    return Cel(f"{literal(text)}.format([{', '.join(values)}])")


def literal(value: str | bool) -> str:
    """A value as CEL writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def words(items: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return f" {last} ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def attach(schema: Schema, found: list[Rule]) -> None:
    """Writes the rules into the schema, each where it belongs."""
    for rule in found:
        node = schema
        for step in re.findall(r"[^.\[\]]+|\[\]", rule.at):
            node = node["items"] if step == "[]" else node["properties"][step]
        node.setdefault("x-kubernetes-validations", []).append(rule.validation())
