"""The built-in types by their fields: for strict decoding, strategic merge patches and `kubectl explain`."""

from __future__ import annotations

import base64
import re
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
_QUANTITY = r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)"
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


class Mismatch(Exception):
    """A value that does not fit its field. Reads as the real server's decoder puts it, indices and keys left out."""

    def __init__(self, given: str, wanted: str, owner: str) -> None:
        super().__init__()
        self.path, self.given, self.wanted, self.owner = "", given, wanted, owner

    def __str__(self) -> str:
        place = f"{self.owner}.{self.path}".rstrip(".")
        return f"json: cannot unmarshal {self.given} into Go struct field {place} of type {self.wanted}"


class Malformed(Mismatch):
    """A text that is not what its field wants of a text."""

    def __init__(self, words: str) -> None:
        super().__init__("", "", "")
        self.words = words

    def __str__(self) -> str:
        return self.words


def check(name: str, value: Any) -> list[str]:
    """Remove nulls and the fields that a type does not have, in place.

    Returns the paths of the latter; raises Mismatch at the first value that is of another type than its field.
    """
    known = fields(name)
    return _check_object(name, known, value) if known is not None else []


def _check_object(name: str, known: dict[str, Field], value: Any) -> list[str]:
    unknown: list[str] = []
    for key, inner in list(value.items()):
        field = known.get(key)
        if field is None or inner is None:
            del value[key]
            if field is None:
                unknown.append(key)
            continue
        try:
            found = _check_field(name, field, inner)
        except Mismatch as error:
            error.path = f"{key}.{error.path}".rstrip(".")
            raise
        if found:
            unknown += [key + path if path.startswith("[") else f"{key}.{path}" for path in found]
    return unknown


def _check_field(owner: str, field: Field, value: Any) -> list[str]:
    if field.shape == "one":
        return _check_one(owner, field, value)
    element = _GO.get(field.of, field.of if field.of in _PYTHON else f"v1.{field.of}")
    unknown: list[str] = []
    if field.shape == "map":
        if not isinstance(value, dict):
            raise Mismatch(_given(value), f"map[string]{element}", owner)
        pairs = [(str(key), _present(field, value, key)) for key in value]
    else:
        if not isinstance(value, list):
            raise Mismatch(_given(value), f"[]{element}", owner)
        pairs = [(f"[{index}]", _present(field, value, index)) for index in range(len(value))]
    for step, item in pairs:
        unknown += [f"{step}.{path}" for path in _check_one(owner, field, item)]
    return unknown


def _present(field: Field, holder: Any, place: Any) -> Any:
    """An item of a list or map. A null among them stands for the empty value of its type, as in Go."""
    if holder[place] is None:
        kinds = _PYTHON.get(field.of)
        holder[place] = {} if kinds is None else kinds[0]()
    return holder[place]


def _check_one(owner: str, field: Field, value: Any) -> list[str]:
    kinds = _PYTHON.get(field.of)
    if kinds is not None:
        if value is not None and (not isinstance(value, kinds) or (value.__class__ is bool and field.of != "bool")):
            raise Mismatch(_given(value), _GO.get(field.of, field.of), owner)
        if field.of == "quantity" and isinstance(value, str) and not re.fullmatch(_QUANTITY, value):
            raise Malformed(f"quantities must match the regular expression '^{_QUANTITY}$'")
        if field.of == "bytes" and isinstance(value, str):
            _check_base64(value)
        return []
    known = fields(field.of)
    if known is None or value is None:
        return []
    if not isinstance(value, dict):
        raise Mismatch(_given(value), f"v1.{field.of}", owner)
    return _check_object(field.of, known, value)


def _check_base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        wrong = re.search(r"[^A-Za-z0-9+/=]", text)
        raise Malformed(f"illegal base64 data at input byte {wrong.start() if wrong else len(text)}") from None


def _given(value: Any) -> str:
    """The word of Go's JSON decoder for what a value is."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "number"
