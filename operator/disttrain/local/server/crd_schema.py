"""The schema of CRDs themselves, so far as the server reads them: judged by the same code as their objects."""

from __future__ import annotations

from typing import Any

_STRING: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_BOOL: dict[str, Any] = {"type": "boolean"}
_NAMES: dict[str, Any] = {"type": "array", "items": _STRING}
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, **_OPEN}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_RULE = _object(
    ("rule",),
    rule={**_STRING, "minLength": 1}, message=_STRING, messageExpression=_STRING, fieldPath=_STRING,
    optionalOldSelf=_BOOL, reason={**_STRING, "enum": [
        "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]},
)  # fmt: skip

# The schema of a schema: it refers to itself, as schemas do.
PROPS = _object()
PROPS["properties"] = {
    "type": {**_STRING, "enum": ["string", "integer", "number", "boolean", "array", "object"]},
    "description": _STRING,
    "format": _STRING,
    "pattern": _STRING,
    "nullable": _BOOL,
    "enum": {"type": "array", "items": _OPEN},
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _BOOL,
    "exclusiveMaximum": _BOOL,
    **{f"{end}{what}": _COUNT for end in ("min", "max") for what in ("Length", "Items", "Properties")},
    "required": _NAMES,
    "properties": {"type": "object", "additionalProperties": PROPS},
    "items": PROPS,
    "additionalProperties": {},  # a schema or a boolean
    "x-kubernetes-preserve-unknown-fields": _BOOL,
    "x-kubernetes-int-or-string": _BOOL,
    "x-kubernetes-list-type": {**_STRING, "enum": ["atomic", "set", "map"]},
    "x-kubernetes-list-map-keys": _NAMES,
    "x-kubernetes-validations": _list(_RULE),
}

_COLUMN = _object(
    ("name", "type", "jsonPath"),
    name=_STRING, jsonPath=_STRING, description=_STRING, format=_STRING, priority={"type": "integer"},
    type={**_STRING, "enum": ["integer", "number", "string", "boolean", "date"]},
)  # fmt: skip
_SCALE = _object(
    ("specReplicasPath", "statusReplicasPath"),
    specReplicasPath=_STRING, statusReplicasPath=_STRING, labelSelectorPath=_STRING,
)  # fmt: skip
_VERSION = _object(
    ("name", "served", "storage"),
    name=_STRING, served=_BOOL, storage=_BOOL,
    schema=_object(openAPIV3Schema=PROPS),
    subresources=_object(status={"type": "object", **_OPEN}, scale=_SCALE),
    additionalPrinterColumns=_list(_COLUMN),
    selectableFields=_list(_object(("jsonPath",), jsonPath=_STRING)),
)  # fmt: skip
_TYPE_NAMES = _object(
    ("plural", "kind"),
    plural=_STRING, singular=_STRING, kind=_STRING, listKind=_STRING, shortNames=_NAMES, categories=_NAMES,
)  # fmt: skip

DEFINITION = _object(
    ("spec",),
    spec=_object(
        ("group", "names", "scope", "versions"),
        group=_STRING, names=_TYPE_NAMES, versions=_list(_VERSION),
        scope={**_STRING, "enum": ["Cluster", "Namespaced"]},
    ),
    status=_object(conditions=_list(_object(("type",), type=_STRING))),
)  # fmt: skip
