"""The structural OpenAPI v3 schema of the resource, read from its types.

A null in place of an optional field is dropped by the API server before anything else, so nothing is `nullable`.
"""

from __future__ import annotations

import inspect as python
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec import inspect as types

Schema = dict[str, Any]

MAX_CONTAINERS = 64
MAX_ENV = 1024
"""Bounds of a template's lists: the API server multiplies the cost of a rule by them."""
DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Field(Struct, frozen=True, kw_only=True):
    """A field of a type with what its annotations say."""

    name: str
    """As on the wire."""
    kind: types.Type
    """Without its annotations and without None."""
    description: str
    extra: dict[str, Any]
    """See `types.doc` and `types.later`."""
    required: bool
    default: Any
    """As on the wire; None where there is none."""

    @property
    def struct(self) -> type[Struct] | None:
        """The field's own type, or its items', if that is a Struct."""
        inner, _, _ = unwrap(self.kind.item_type if isinstance(self.kind, types.ListType) else self.kind)
        return inner.cls if isinstance(inner, types.StructType) else None


def unwrap(kind: types.Type) -> tuple[types.Type, str, dict[str, Any]]:
    """A type without annotations and None, with the outermost description and all extras."""
    description = ""
    extra: dict[str, Any] = {}
    while True:
        if isinstance(kind, types.Metadata):
            description = description or (kind.extra_json_schema or {}).get("description", "")
            extra = (kind.extra or {}) | extra
            kind = kind.type
        elif isinstance(kind, types.UnionType) and len(rest := _not_none(kind)) == 1:
            kind = rest[0]
        else:
            return kind, description, extra


def _not_none(union: types.UnionType) -> list[types.Type]:
    return [kind for kind in union.types if not isinstance(kind, types.NoneType)]


def fields(cls: type[Struct]) -> list[Field]:
    """The fields of a type in the order in which they are written."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    return [_field(item) for item in info.fields]


def _field(item: types.Field) -> Field:
    kind, description, extra = unwrap(item.type)
    default = item.default_factory() if item.default_factory is not NODEFAULT else item.default
    return Field(
        name=item.encode_name,
        kind=kind,
        description=description,
        extra=extra,
        required=item.required,
        default=None if default is NODEFAULT else msgspec.to_builtins(default),
    )


def summary(cls: type[Struct]) -> str:
    """A type's docstring on one line."""
    return " ".join((python.getdoc(cls) or "").split())


def structural(cls: type[Struct], *, defaults: bool = True) -> Schema:
    """The schema of a type. `defaults`: whether the API server shall fill them in (the spec's, never the status')."""
    schema: Schema = {"type": "object", "description": summary(cls)}
    required = [field.name for field in fields(cls) if field.required]
    if required:
        schema["required"] = required
    schema["properties"] = {field.name: property_schema(field, defaults=defaults) for field in fields(cls)}
    return schema


def property_schema(field: Field, *, defaults: bool) -> Schema:
    """The schema of one field."""
    schema = pod_template() if field.extra.get("pod_template") else _schema(field.kind, defaults=defaults)
    if field.description:
        schema = schema | {"description": field.description}
    if keys := field.extra.get("map_keys"):
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    if field.extra.get("hint"):
        schema.pop("pattern")  # a rule says it in plain words, see rules.py
    if (defaults or field.extra.get("filled")) and field.default is not None:
        schema["default"] = field.default
    return schema


def _schema(kind: types.Type, *, defaults: bool) -> Schema:
    kind, _, _ = unwrap(kind)
    match kind:
        case types.StructType():
            return structural(kind.cls, defaults=defaults)
        case types.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case types.UnionType():  # of a number and a word, whose rule is in rules.py
            return {"x-kubernetes-int-or-string": True, "maxLength": 16}
        case types.StrType():
            return _bounded("string", minLength=kind.min_length, maxLength=kind.max_length, pattern=kind.pattern)
        case types.IntType():
            return _bounded("integer", minimum=kind.ge, maximum=kind.le)
        case types.FloatType():
            return _bounded("number", minimum=kind.ge, maximum=kind.le)
        case types.BoolType():
            return {"type": "boolean"}
        case types.ListType():
            items = _schema(kind.item_type, defaults=defaults)
            return _bounded(
                "array",
                minItems=kind.min_length,
                maxItems=kind.max_length,
                items=items,
                **{"x-kubernetes-list-type": "atomic"},
            )
        case types.DictType():
            bounds = _bounded("object", minProperties=kind.min_length, maxProperties=kind.max_length)
            if isinstance(kind.value_type, types.AnyType):
                return ANYTHING | bounds
            return bounds | {"additionalProperties": _schema(kind.value_type, defaults=defaults)}
    raise TypeError(f"no schema for {kind}")


def _bounded(name: str, **bounds: Any) -> Schema:
    return {"type": name} | {key: value for key, value in bounds.items() if value is not None}


def pod_template() -> Schema:
    """A pod template, typed as far as rules must see.

    The whole of it would be 450 KB, break client-side apply and lag behind Kubernetes; the API server judges the rest
    when the first pod is made.
    """
    spec = ANYTHING | {
        "description": "As `kubectl explain pod.spec` says; only what is checked when a job is applied is listed here.",
        "required": ["containers"],
        "properties": {
            "containers": _containers("The first is the main container: its exit decides.") | {"minItems": 1},
            "initContainers": _containers("Containers that run before the others."),
            "restartPolicy": _bounded("string", maxLength=64, description="`Never`: the operator restarts pods."),
        },
    }
    metadata = ANYTHING | {"description": "Labels and annotations of the pods."}
    return {"type": "object", "required": ["spec"], "properties": {"metadata": metadata, "spec": spec}}


def _containers(description: str) -> Schema:
    name = _bounded("string", maxLength=63, pattern=DNS_LABEL, description="Name of the container.")
    variable = _bounded(
        "string", minLength=1, maxLength=1024, description="Name that the operator does not set itself."
    )
    env = {
        "type": "array",
        "description": "Environment variables.",
        "maxItems": MAX_ENV,
        "x-kubernetes-list-type": "atomic",
        "items": ANYTHING | {"required": ["name"], "properties": {"name": variable}},
    }
    return {
        "type": "array",
        "description": description,
        "maxItems": MAX_CONTAINERS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": ANYTHING | {"required": ["name"], "properties": {"name": name, "env": env}},
    }
