"""The scale subresource of custom types (autoscaling/v1)."""

from __future__ import annotations

from typing import Any

from disttrain.local.server import errors
from disttrain.local.server.crds import Scale
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Json, Record


def _get(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def paths(resource: Resource) -> Scale:
    """Where the type keeps its numbers; raises 404 for a type without the subresource."""
    if resource.custom is None or resource.custom.scale is None:
        raise errors.no_such_path()
    return resource.custom.scale


def read(resource: Resource, record: Record) -> Json:
    """The `Scale` of an object."""
    where = paths(resource)
    obj = record.object()
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _get(obj, where.status_replicas) or 0}
    if where.selector and (selector := _get(obj, where.selector)):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": _get(obj, where.spec_replicas) or 0},
        "status": status,
    }


def write(resource: Resource, record: Record, scale: Any) -> Json:
    """The object with a Scale's count in it, and its resourceVersion as the condition."""
    where = paths(resource)
    replicas = _get(scale, ("spec", "replicas")) or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.bad_request(f"spec.replicas is a whole number: {replicas!r} was given")
    obj = record.object()
    inner = obj
    for key in where.spec_replicas[:-1]:
        inner = inner.setdefault(key, {})
    inner[where.spec_replicas[-1]] = replicas
    version = _get(scale, ("metadata", "resourceVersion"))
    if version:
        obj["metadata"]["resourceVersion"] = version
    return obj
