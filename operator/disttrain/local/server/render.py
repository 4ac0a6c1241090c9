"""How objects go out: as they are, as rows of a table, or their metadata alone."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from disttrain.local.server import tables
from disttrain.local.server.errors import ApiError, bad_request, expired
from disttrain.local.server.resources import Resource
from disttrain.local.server.selectors import selector
from disttrain.local.server.store import Record, Store, encode
from disttrain.local.server.target import Target

JSON = "application/json"


def form(accept: str) -> str:
    """`object`, `Table` or `PartialObjectMetadata`: the first that the client accepts and that is served."""
    for offer in accept.split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        if media not in (JSON, "*/*", "application/*", ""):
            continue
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        kind = given.get("as", "")
        if not kind:
            return "object"
        if given.get("g") == "meta.k8s.io" and given.get("v") == "v1":
            if kind == "Table":
                return "Table"
            if kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return "PartialObjectMetadata"
    if not accept or "yaml" in accept or "protobuf" in accept:
        return "object"  # the client is told by the Content-Type
    raise ApiError(
        406, "NotAcceptable", f"only {JSON} is served, also as Table or PartialObjectMetadata: {accept!r} was asked"
    )


def partial(record: Record) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": record.object()["metadata"]}


def one(resource: Resource, record: Record, accept: str, include: str = "Metadata") -> bytes:
    """One object as the client wants it."""
    wanted = form(accept)
    if wanted == "Table":
        return encode(tables.table(resource, [record], include, str(record.version)))
    return encode(partial(record)) if wanted == "PartialObjectMetadata" else record.raw


def event_renderer(resource: Resource, accept: str, include: str = "Metadata") -> Callable[[Record], bytes]:
    """How a watch writes each object. Only a table's first event carries the columns."""
    wanted = form(accept)
    if wanted == "object":
        return lambda record: record.raw
    if wanted == "PartialObjectMetadata":
        return lambda record: encode(partial(record))
    first = True

    def row(record: Record) -> bytes:
        nonlocal first
        columns, first = first, False
        return encode(tables.table(resource, [record], include, str(record.version), columns=columns))

    return row


def _token(version: int, last: Record) -> str:
    return base64.urlsafe_b64encode(encode([version, last.namespace, last.name])).decode()


def _continue(token: str) -> tuple[int, str, str]:
    try:
        version, namespace, name = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str, str])
    except (ValueError, msgspec.MsgspecError):
        raise bad_request("continue key is not valid: it is not one that this server gave") from None
    return version, namespace, name


def collection(store: Store, target: Target, accept: str) -> bytes:
    """The answer to a LIST: selectors, pages, and the form that the client wants.

    A page after the first shows the objects as they are now, past the last one of the page before, under the first
    page's version: a watch from there brings what changed in between, and a version too old for a watch is refused.
    """
    resource, query = target.resource, target.query
    test = selector(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    version, after = store.version, None
    if token := query.get("continue", ""):
        version, namespace, name = _continue(token)
        after = (namespace, name)
        if version < store.forgotten(resource) or version > store.version:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
    else:
        store.check_version(resource, query.get("resourceVersion", ""), query.get("resourceVersionMatch", ""))
    records = [record for record in store.all(resource, target.namespace, after, target.name) if test(record)]
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    limit = target.number("limit") or 0
    if 0 < limit < len(records):
        metadata |= {"continue": _token(version, records[limit - 1])}
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata |= {"remainingItemCount": len(records) - limit}
        records = records[:limit]
    wanted = form(accept)
    if wanted == "Table":
        found = tables.table(resource, records, query.get("includeObject", "Metadata"), str(version))
        return encode({**found, "metadata": metadata})
    if wanted == "PartialObjectMetadata":
        items = [partial(record) for record in records]
        return encode(
            {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
        )
    head = encode({"kind": resource.list_name, "apiVersion": resource.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(record.raw for record in records) + b"]}"
