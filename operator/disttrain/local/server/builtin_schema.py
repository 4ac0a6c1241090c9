"""The built-in types by their fields: for strict decoding, strategic merge patches and `kubectl explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from disttrain.local.server.builtin_types import FIELDS, META_TYPES
from disttrain.local.server.resources import Resource

_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intorstring": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "any": {"type": "object"},
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (str,),
    "int": (int,),
    "number": (int, float),
    "bool": (bool,),
    "time": (str,),
    "quantity": (str, int, float),
    "intorstring": (str, int),
}
_GO = {"bytes": "[]uint8", "int": "int64", "number": "float64", "time": "string", "quantity": "resource.Quantity"}


class Field(NamedTuple):
    """What a field holds: `shape` ("one", "list", "map") of `of`; no `merge_key`: a list that is replaced."""

    shape: str
    of: str
    merge_key: str | None
    retain_keys: bool


def _field(code: str) -> Field:
    found = re.fullmatch(r"(?P<open>[\[{]?)(?P<of>\w+|\[\w+\])[\]}]?(?::(?P<key>\w*))?(?P<retain>!?)", code)
    assert found is not None, code
    shape = {"[": "list", "{": "map", "": "one"}[found["open"]]
    return Field(shape, found["of"], found["key"], bool(found["retain"]))


@cache
def _table() -> dict[str, dict[str, Field]]:
    table = {}
    for entry in re.sub(r"\n  ", " ", FIELDS).splitlines():
        name, _, fields = entry.partition(":")
        table[name] = {key: _field(code) for key, _, code in (word.partition("=") for word in fields.split())}
    return table


def fields(name: str) -> dict[str, Field] | None:
    """The fields of a type, None if the table lacks it."""
    return _table().get(name)


def schema_name(resource: Resource) -> str:
    group = resource.group.split(".")[0] or "core"
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def _qualified(name: str) -> str:
    if name in META_TYPES:
        return f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}"
    return f"io.k8s.api.{'coordination' if name.startswith('Lease') else 'core'}.v1.{name}"


def _schema(field: Field) -> dict[str, Any]:
    if field.of in _SCALARS:
        inner = _SCALARS[field.of]
    elif field.of.startswith("["):
        inner = {"type": "array", "items": _SCALARS.get(field.of[1:-1], {"type": "string"})}
    else:
        inner = {"allOf": [{"$ref": f"#/components/schemas/{_qualified(field.of)}"}], "default": {}}
    if field.shape == "list":
        return {"type": "array", "items": inner}
    return {"type": "object", "additionalProperties": inner} if field.shape == "map" else inner


def closure(name: str) -> dict[str, Any]:
    """The schema of a type, and of all that it refers to, by their full names."""
    schemas: dict[str, Any] = {}
    waiting = [name]
    while waiting:
        full = waiting.pop()
        if full in schemas:
            continue
        known = fields(full.rsplit(".", 1)[1])
        if known is None:
            schemas[full] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            continue
        schemas[full] = {"type": "object", "properties": {key: _schema(field) for key, field in known.items()}}
        waiting += [_qualified(field.of) for field in known.values() if field.of in _table()]
    return schemas


class Mismatch(NamedTuple):
    """A value that does not fit its field: the path, the Go field that the real server names, and both types."""

    path: str
    given: str
    wanted: str
    owner: str


def prune(name: str, value: Any, path: str = "") -> Iterator[str]:
    """Remove nulls and the fields that a type does not have, in place, and yield the paths of the latter."""
    known = fields(name)
    if known is None or not isinstance(value, dict):
        return
    for key, inner in list(value.items()):
        where = f"{path}.{key}" if path else key
        field = known.get(key)
        if field is None:
            del value[key]
            yield where
        elif inner is None:
            del value[key]
        elif field.shape == "one":
            yield from prune(field.of, inner, where)
        elif field.shape == "list" and isinstance(inner, list):
            for index, item in enumerate(inner):
                yield from prune(field.of, item, f"{where}[{index}]")
        elif field.shape == "map" and isinstance(inner, dict):
            for item_key, item in inner.items():
                yield from prune(field.of, item, f"{where}.{item_key}")


def mismatch(name: str, value: Any, path: str = "") -> Mismatch | None:
    """The first value that is of another type than its field."""
    for key, field in (fields(name) or {}).items():
        inner = value.get(key)
        if inner is None:
            continue
        where = f"{path}.{key}" if path else key
        shape = {"list": list, "map": dict}.get(field.shape)
        if shape is not None and not isinstance(inner, shape):
            element = _GO.get(field.of, field.of if field.of in _PYTHON else f"v1.{field.of}")
            return Mismatch(where, _given(inner), f"[]{element}" if shape is list else f"map[string]{element}", name)
        items = inner.values() if shape is dict else inner if shape is list else (inner,)
        for index, item in enumerate(items):
            inside = f"{where}[{index}]" if shape is list else where
            if (found := _item_mismatch(field, item, inside, name)) is not None:
                return found
    return None


def _item_mismatch(field: Field, item: Any, path: str, owner: str) -> Mismatch | None:
    if item is None:
        return None
    if field.of in _PYTHON:
        fits = isinstance(item, _PYTHON[field.of]) and (field.of == "bool" or not isinstance(item, bool))
        return None if fits else Mismatch(path, _given(item), _GO.get(field.of, field.of), owner)
    if field.of in _table():
        return (
            mismatch(field.of, item, path)
            if isinstance(item, dict)
            else Mismatch(path, _given(item), f"v1.{field.of}", owner)
        )
    return None


def _given(value: Any) -> str:
    """The word of Go's JSON decoder for what a value is."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "number"
