"""Tables as `kubectl get` prints them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from disttrain.local.server.columns import OTHERS, TABLES, Cells, Column, age, now_utc
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Json, Record

_STEP = re.compile(
    r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']+)'\]|\[\?\(@\.(?P<field>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]|(?P<all>\[\*\])"
)


@cache
def steps(path: str) -> tuple[dict[str, str | None], ...]:
    """The steps of a JSONPath of a printer column; raises ValueError for what it cannot read."""
    text = path.replace("\\.", "\0")
    found, place = [], 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise ValueError(f"{path!r} is not understood from {text[place:]!r} on")
        found.append({key: value.replace("\0", ".") if value else value for key, value in step.groupdict().items()})
        place = step.end()
    return tuple(found)


def lookup(obj: Any, path: str) -> list[Any]:
    """The values at a JSONPath such as `.status.conditions[?(@.type=="Ready")].status`."""
    values = [obj]
    for step in steps(path):
        key = step["key"] or step["quoted"]
        following: list[Any] = []
        for value in values:
            if key is not None:
                if isinstance(value, dict) and key in value:
                    following.append(value[key])
            elif isinstance(value, list):
                if step["index"] is not None:
                    following += value[int(step["index"]) :][:1]
                elif step["all"]:
                    following += value
                else:
                    following += [item for item in value if lookup(item, f".{step['field']}") == [step["value"]]]
        values = following
    return values


def _cell(column: Json, obj: Json, now: datetime) -> Any:
    found = [value for value in lookup(obj, column["jsonPath"]) if value is not None]
    if not found:
        return None
    if column["type"] == "date":
        return age(found[0], now)
    if column["type"] == "integer":
        return int(found[0]) if isinstance(found[0], int | float) else None
    if column["type"] == "number":
        return float(found[0]) if isinstance(found[0], int | float) else None
    if column["type"] == "boolean":
        return found[0] if isinstance(found[0], bool) else None
    if len(found) > 1:
        return ",".join(str(value) for value in found)
    if isinstance(found[0], bool):
        return str(found[0]).lower()
    return found[0] if isinstance(found[0], str) else str(found[0])


def _definition(column: Json) -> Json:
    return {
        "name": column["name"], "type": column["type"], "format": column.get("format") or "",
        "description": column.get("description") or "", "priority": column.get("priority") or 0,
    }  # fmt: skip


def _layout(resource: Resource) -> tuple[list[Json], Cells]:
    """The columns of a type, and the cells of an object."""
    if resource.custom is None:
        columns, cells = TABLES.get(resource.key, OTHERS)
        return [column.definition() for column in columns], cells
    given = resource.custom.columns
    if not given:
        return [column.definition() for column in OTHERS[0]], OTHERS[1]
    return (
        [Column("Name").definition(), *(_definition(column) for column in given)],
        lambda obj, now: [obj["metadata"]["name"], *(_cell(column, obj, now) for column in given)],
    )


def table(resource: Resource, records: Sequence[Record], include: str, version: str, *, columns: bool = True) -> Json:
    """Objects as a `Table` (meta.k8s.io/v1). `include` says what goes with each row: None, Metadata or Object."""
    definitions, cells = _layout(resource)
    now = now_utc()
    rows = []
    for record in records:
        obj = record.object()
        row: Json = {"cells": cells(obj, now)}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            metadata = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
            row["object"] = metadata
        rows.append(row)
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions if columns else [], "rows": rows,
    }  # fmt: skip
