"""Structural schemas of CRDs: defaults, pruning and validation, with the real API server's words.

Validation takes the object before: what an update does not change is not judged anew, so that a stricter CRD does not
refuse the other writes of an object that exists (ratcheting, as Kubernetes 1.33 and newer do it).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

from disttrain.local.server.errors import Cause
from disttrain.local.server.store import encode

Schema = dict[str, Any]

NOT_CHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation",
)
# With one of these an object's rules cannot be trusted to see what they expect, so they are not asked.
_BLOCKING = {
    "FieldValueRequired",
    "FieldValueTypeInvalid",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueNotSupported",
}
_RANGES = {"int32": 2**31, "int64": 2**63}
_MISSING: Any = object()


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill in the defaults of absent properties, in place, at every depth."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for key, inner in properties.items():
            if "default" in inner and (key not in value or (value[key] is None and not inner.get("nullable"))):
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                apply_defaults(inner, value[key])
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict):
            for key, item in value.items():
                if key not in properties:
                    apply_defaults(rest, item)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(schema["items"], item)


def prune(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Remove what the schema does not know, in place, and yield the paths of it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from prune(schema.get("items") or {}, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for key in sorted(value):
        where = f"{path}.{key}" if path else key
        inner = properties.get(key, rest if isinstance(rest, dict) else None)
        if inner is not None:
            if value[key] is None and not inner.get("nullable"):
                del value[key]  # an explicit null says nothing: the field is as good as absent
            else:
                yield from prune(inner, value[key], where)
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and rest is not True:
            del value[key]
            yield where


def validate(schema: Schema, value: Any, old: Any = _MISSING, path: str = "") -> list[Cause]:
    """The faults of a value. `old` is what it was before an update."""
    if old is not _MISSING and old == value:
        return []
    if value is None and schema.get("nullable"):
        return []
    if (wrong := _type_fault(schema, value, path)) is not None:
        return [wrong, *_enum(schema, value, path)]
    causes = _enum(schema, value, path)
    if isinstance(value, str):
        causes += _string(schema, value, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        causes += _number(schema, value, path)
    elif isinstance(value, list):
        causes += _list(schema, value, old, path)
    elif isinstance(value, dict):
        causes += _object(schema, value, old, path)
    return causes


def blocks_rules(causes: list[Cause]) -> bool:
    """Whether the rules are left out for these faults."""
    return any(cause.reason in _BLOCKING for cause in causes)


def quoted(value: Any) -> str:
    return encode(value).decode()


def _bad(path: str, value: Any, words: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {path} in body {words}")


def type_of(value: Any) -> str:
    """The name of a JSON type."""
    for name, kinds in (("boolean", bool), ("integer", int), ("string", str), ("array", list), ("object", dict)):
        if isinstance(value, kinds):
            return name
    return "null" if value is None else "number"


def _type_fault(schema: Schema, value: Any, path: str) -> Cause | None:
    wanted = "integer,string" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    given = type_of(value)
    if not wanted or given in wanted.split(","):
        return None
    if (wanted == "number" and given == "integer") or (
        wanted == "integer" and given == "number" and value == int(value)
    ):
        return None
    return _wrong_type(path or "<nil>", given, wanted)


def _wrong_type(path: str, given: str, wanted: str) -> Cause:
    words = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
    return Cause(path, "FieldValueTypeInvalid", words)


def _enum(schema: Schema, value: Any, path: str) -> list[Cause]:
    allowed = schema.get("enum")
    if allowed is None or value in allowed:
        return []
    words = f"Unsupported value: {quoted(value)}: supported values: {', '.join(quoted(item) for item in allowed)}"
    return [Cause(path, "FieldValueNotSupported", words)]


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Go's dialect in Python's: `$` is the end of the text, without an exception for a last newline."""
    return re.compile(re.sub(r"(?<!\\)\$(?=$|\))", r"\\Z", pattern))


def _is_time(text: str) -> bool:
    try:
        return bool(re.match(r"\d{4}-\d\d-\d\d[Tt ]", text)) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _string(schema: Schema, value: str, path: str) -> list[Cause]:
    causes = []
    shortest, longest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        causes.append(Cause(path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes"))
    elif shortest is not None and len(value) < shortest:
        causes.append(_bad(path, value, f"should be at least {shortest} chars long"))
    elif pattern and not _pattern(pattern).search(value):
        causes.append(_bad(path, value, f"should match '{pattern}'"))
    if schema.get("format") == "date-time" and not _is_time(value):
        words = f"Invalid value: {quoted(value)}: {path} in body must be of type date-time: {quoted(value)}"
        causes.append(Cause(path, "FieldValueTypeInvalid", words))
    return causes


def _number(schema: Schema, value: float, path: str) -> list[Cause]:
    causes = []
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and schema.get("exclusiveMinimum") and value <= least:
        causes.append(_bad(path, value, f"should be greater than {quoted(least)}"))
    elif least is not None and value < least:
        causes.append(_bad(path, value, f"should be greater than or equal to {quoted(least)}"))
    if most is not None and schema.get("exclusiveMaximum") and value >= most:
        causes.append(_bad(path, value, f"should be less than {quoted(most)}"))
    elif most is not None and value > most:
        causes.append(_bad(path, value, f"should be less than or equal to {quoted(most)}"))
    bound = _RANGES.get(schema.get("format", ""))
    if bound is not None and not causes and not -bound <= value < bound:
        causes.append(_bad(path, value, f"should be a valid {schema['format']}"))
    return causes


def item_key(schema: Schema, item: Any) -> Any:
    """What identifies an item of a list of type map, None if this is no such list or no such item."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return None
    return quoted({key: item.get(key) for key in schema.get("x-kubernetes-list-map-keys") or () if key in item})


def _list(schema: Schema, value: list[Any], old: Any, path: str) -> list[Cause]:
    causes = []
    most, least, items = schema.get("maxItems"), schema.get("minItems"), schema.get("items") or {}
    if most is not None and len(value) > most:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes.append(_bad(path, len(value), f"should have at least {least} items"))
    before = {item_key(schema, item): item for item in old} if isinstance(old, list) else {}
    before.pop(None, None)
    kind = schema.get("x-kubernetes-list-type")
    seen: set[str] = set()
    for index, item in enumerate(value):
        key = item_key(schema, item)
        causes += validate(items, item, before.get(key, _MISSING), f"{path}[{index}]")
        identity = key if kind == "map" else quoted(item) if kind == "set" else None
        if identity is not None:
            if identity in seen:
                causes.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {identity}"))
            seen.add(identity)
    return causes


def _object(schema: Schema, value: dict[str, Any], old: Any, path: str) -> list[Cause]:
    causes = []
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes.append(_bad(path, len(value), f"should have at least {least} properties"))
    before = old if isinstance(old, dict) else {}
    for key in schema.get("required") or ():
        if key not in value:
            causes.append(Cause(f"{path}.{key}" if path else key, "FieldValueRequired", "Required value"))
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key, rest if isinstance(rest, dict) else None)
        if inner is not None:
            causes += validate(inner, item, before.get(key, _MISSING), f"{path}.{key}" if path else key)
    return causes
