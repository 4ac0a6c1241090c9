"""The OpenAPI v3 documents: what `kubectl explain`, `apply` and `create` read of a type."""

from __future__ import annotations

import hashlib
from typing import Any

from disttrain.local.server import builtin_schema
from disttrain.local.server.resources import Resource, Types
from disttrain.local.server.store import encode

Json = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PATCH_MEDIA = ("application/json-patch+json", "application/merge-patch+json")
_PARAMETERS = [
    {"name": name, "in": "query", "description": words, "schema": {"type": "string", "uniqueItems": True}}
    for name, words in (
        ("dryRun", "All: the request is checked and answered, and nothing is stored."),
        ("fieldManager", "The name of the program that makes the change."),
        ("fieldValidation", "What to do about unknown fields: Ignore, Warn or Strict."),
    )
]


def _gvk(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def schema_name(resource: Resource) -> str:
    """A name for the type in the document: its group reversed, its version and kind."""
    if resource.custom is not None:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    return builtin_schema.schema_name(resource)


def _operation(resource: Resource, verb: str, body: Json | None = None) -> Json:
    ref = {"$ref": f"#/components/schemas/{schema_name(resource)}"}
    operation: Json = {
        "operationId": f"{verb}{resource.group.title().replace('.', '')}{resource.version.title()}{resource.kind}",
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": ref}}}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    if body is not None:
        operation |= {"parameters": _PARAMETERS, "requestBody": {"required": True, "content": body}}
    return operation


def _paths(resource: Resource) -> Json:
    base = f"{resource.prefix}/{'namespaces/{namespace}/' if resource.namespaced else ''}{resource.plural}"
    whole = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema_name(resource)}"}}}
    # A strategic merge patch is taken but not announced: kubectl then computes it by the tags of its own Go types,
    # which know every merge key, rather than by this document.
    patch = {media: {"schema": {"type": "object"}} for media in _PATCH_MEDIA}
    return {
        base: {"get": _operation(resource, "list"), "post": _operation(resource, "post", whole)},
        f"{base}/{{name}}": {
            "get": _operation(resource, "get"),
            "put": _operation(resource, "put", whole),
            "patch": _operation(resource, "patch", patch),
            "delete": _operation(resource, "delete"),
        },
    }


def _custom_schema(resource: Resource) -> Json:
    assert resource.custom is not None
    schema = {**resource.custom.schema, "x-kubernetes-group-version-kind": [_gvk(resource)]}
    properties = dict(schema.get("properties") or {})
    properties["apiVersion"] = {"type": "string", "description": "The group and version that define this kind."}
    properties["kind"] = {"type": "string", "description": "The kind of this object."}
    properties["metadata"] = {
        "description": "Name, namespace, labels, annotations and what the server keeps about the object.",
        "default": {},
        "allOf": [{"$ref": f"#/components/schemas/{META}.ObjectMeta"}],
    }
    return {**schema, "properties": properties}


def document(resources: list[Resource]) -> Json:
    """The document of one group and version."""
    paths: Json = {}
    schemas: Json = {}
    for resource in resources:
        paths |= _paths(resource)
        if resource.custom is not None:
            schemas[schema_name(resource)] = _custom_schema(resource)
            schemas |= builtin_schema.closure(f"{META}.ObjectMeta")
        else:
            schemas |= builtin_schema.closure(schema_name(resource))
            schemas[schema_name(resource)] = {
                **schemas[schema_name(resource)],
                "x-kubernetes-group-version-kind": [_gvk(resource)],
            }
    info = {"title": "The Kubernetes API of one machine", "version": "v1.34.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


class Documents:
    """The documents of all groups, made when asked for and kept until a type changes."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._revision = -1
        self._made: dict[str, bytes] = {}

    def _current(self) -> dict[str, bytes]:
        if self._revision != self._types.revision:
            groups = self._types.groups()
            self._made = {
                f"apis/{group}/{version}" if group else f"api/{version}": encode(document(resources))
                for group, versions in groups.items()
                for version, resources in versions.items()
            }
            self._revision = self._types.revision
        return self._made

    def index(self) -> Json:
        """The list of documents. Their hash is in the URL, so that kubectl may keep what it has read."""
        paths = {}
        for path, data in self._current().items():
            digest = hashlib.sha256(data).hexdigest()[:32].upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def get(self, path: str) -> bytes | None:
        return self._current().get(path)
