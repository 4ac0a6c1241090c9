"""Tables as `kubectl get` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Record


def _column(
    name: str, description: str = "", kind: str = "string", format_: str = "", priority: int = 0
) -> dict[str, Any]:
    return {"name": name, "type": kind, "format": format_, "description": description, "priority": priority}


def table(
    resource: Resource, records: Sequence[Record], include: str, version: str, *, columns: bool = True
) -> dict[str, Any]:
    rows = []
    for record in records:
        obj = record.object()
        rows.append(
            {
                "cells": [record.name, obj["metadata"]["creationTimestamp"]],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
        )
    defs = [_column("Name", format_="name"), _column("Created At", kind="date")]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": defs if columns else [],
        "rows": rows,
    }
