"""docs/reference.md, written from the types."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from msgspec import Struct
from msgspec import inspect as types

from .cel import words
from .constants import API_VERSION, KIND, RESERVED_ENV
from .schema import Field, fields, summary, unwrap
from .types import FRAMEWORK_ROLES, Spec, Status

HEAD = f"""\
<!-- Generated from operator/disttrain/api/types.py by `make manifests`: do not edit. -->

# Reference of fields

Every field of a `{KIND}` (`apiVersion: {API_VERSION}`). `kubectl explain disttrainjob.spec` shows the same in a
terminal. A field marked *later* belongs to the resource but is not in this version yet: a job that sets it is refused,
with words that say what does until then.
"""

ROLES = "\n".join(f"- `{framework}`: {', '.join(roles)}" for framework, roles in FRAMEWORK_ROLES.items())

RESERVED = (
    "The operator sets these in every container that needs them; a pod template that sets one is refused: "
    f"{', '.join(f'`{name}`' for name in RESERVED_ENV)}."
)
TAIL = f"""
## Roles of each framework

{ROLES}

## Reserved environment variables

{textwrap.fill(RESERVED, 120, break_on_hyphens=False)}
"""


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, cls in (("spec", Spec), ("status", Status)):
        sections = {section: words(paths) for section, paths in _sections(title, cls).items()}
        links = {section: link(heading) for section, heading in sections.items()}
        for section, heading in sections.items():
            parts.append(f"\n## {heading}\n\n{summary(section)}\n\n{_table(section, links)}")
    return "".join(parts) + TAIL


def _sections(path: str, root: type[Struct]) -> dict[type[Struct], list[str]]:
    """A type and those of its fields with every path that leads to it, in the order of first mention."""
    found: dict[type[Struct], list[str]] = {}

    def visit(path: str, cls: type[Struct]) -> None:
        new = cls not in found
        found.setdefault(cls, []).append(path)
        for field in fields(cls) if new else ():
            if field.struct is not None:
                visit(f"{path}.{field.name}{'[]' if isinstance(field.kind, types.ListType) else ''}", field.struct)

    visit(path, root)
    return found


def link(heading: str) -> str:
    """The anchor that Markdown renderers give to a heading."""
    return "#" + re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def _table(cls: type[Struct], links: dict[type[Struct], str]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for field in fields(cls):
        kind = "pod template" if field.extra.get("pod_template") else _words(field.kind)
        if field.struct is not None:
            kind = kind.replace("object", f"[object]({links[field.struct]})")
        rows.append(f"| `{field.name}` | {kind} | {_default(field)} | {_meaning(field)} |")
    return "\n".join(rows) + "\n"


def _words(kind: types.Type) -> str:
    """A type and its bounds in words."""
    kind, _, _ = unwrap(kind)
    match kind:
        case types.StructType():
            return "object"
        case types.DictType():
            return "object" if isinstance(kind.value_type, types.AnyType) else f"map to {_words(kind.value_type)}"
        case types.ListType():
            return f"list of {f'at most {kind.max_length}: ' if kind.max_length else ''}{_words(kind.item_type)}"
        case types.LiteralType():
            return ", ".join(f"`{value}`" for value in kind.values)
        case types.UnionType():
            return " or ".join(_words(part) for part in kind.types)
        case types.StrType():
            return f"string{_bounds(None, kind.max_length, 'characters')}"
        case types.IntType():
            return f"integer{_bounds(kind.ge, kind.le)}"
        case types.FloatType():
            return "number"
        case types.BoolType():
            return "boolean"
    raise TypeError(f"no words for {kind}")


def _bounds(least: int | None, most: int | None, unit: str = "") -> str:
    if least is not None and most is not None:
        return f", {least} to {most}"
    return f", at most {most} {unit}".rstrip() if most is not None else ""


def _default(field: Field) -> str:
    if field.required:
        return "required"
    if field.struct is not None and field.default == {}:
        return _code({inner.name: inner.default for inner in fields(field.struct) if inner.default is not None})
    empty: tuple[Any, ...] = (None, "", [], {})
    return "" if field.default in empty else _code(field.default)


def _code(value: Any) -> str:
    """A plain value, or an object of such, as YAML."""
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml(inner)}" for name, inner in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(field: Field) -> str:
    text = f"{field.description} *later*" if "later" in field.extra else field.description
    return text.replace("|", "\\|")
