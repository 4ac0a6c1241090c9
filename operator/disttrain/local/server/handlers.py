"""One function a verb: from a request's target and body to its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from disttrain.local.server import errors, render, strategic
from disttrain.local.server.objects import Objects, Write
from disttrain.local.server.patches import json_patch, merge
from disttrain.local.server.selectors import selector
from disttrain.local.server.store import Json, Record, encode
from disttrain.local.server.target import Target

PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json")
MERGE = "application/merge-patch+json"


@dataclass
class Answer:
    """A whole answer: HTTP status, JSON body, and the warnings to send along."""

    body: bytes
    status: int = 200
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Body:
    """What a client sent."""

    data: bytes
    media: str

    def json(self) -> Any:
        """The decoded body; raises 415 for what is not JSON by its type, 400 for what is not JSON in fact."""
        if self.media not in ("application/json", "", "*/*"):
            raise errors.unsupported_media(self.media, ["application/json"])
        return self.decode()

    def decode(self) -> Any:
        try:
            return msgspec.json.decode(self.data)
        except msgspec.MsgspecError as error:
            raise errors.bad_request(f"the object provided is unrecognized (must be of type JSON): {error}") from None


def _write(target: Target) -> Write:
    dry_run = target.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise errors.bad_request(f'dryRun: Unsupported value: {dry_run!r}: supported values: "All"')
    level = target.query.get("fieldValidation", "") or "Warn"
    if level not in ("Strict", "Warn", "Ignore"):
        raise errors.bad_request(
            f'fieldValidation: Unsupported value: {level!r}: supported values: "Ignore", "Strict", "Warn"'
        )
    return Write(dry_run=dry_run == "All", field_validation=level)


class Handlers:
    """Answers requests about objects. Watches and logs, which stream, are elsewhere."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def handle(self, target: Target, body: Body, accept: str) -> Answer:
        return getattr(self, f"_{target.verb}")(target, body, accept)  # type: ignore[no-any-return]

    def _one(
        self, target: Target, record: Record, accept: str, status: int = 200, write: Write | None = None
    ) -> Answer:
        include = target.query.get("includeObject", "Metadata")
        return Answer(
            render.one(target.resource, record, accept, include), status, tuple(write.warnings if write else ())
        )

    def _get(self, target: Target, body: Body, accept: str) -> Answer:
        record = self._objects.get(target.resource, target.namespace or "", target.name)
        return self._one(target, record, accept)

    def _list(self, target: Target, body: Body, accept: str) -> Answer:
        return Answer(render.collection(self._store, target, accept))

    def _create(self, target: Target, body: Body, accept: str) -> Answer:
        obj, write = body.json(), _write(target)
        if not isinstance(obj, dict):
            raise errors.bad_request("the body is not an object")
        record = self._objects.create(target.resource, target.namespace or "", obj, write)
        return self._one(target, record, accept, 201, write)

    def _update(self, target: Target, body: Body, accept: str) -> Answer:
        obj, write = body.json(), _write(target)
        if not isinstance(obj, dict):
            raise errors.bad_request("the body is not an object")
        record = self._objects.update(
            target.resource, target.namespace or "", target.name, obj, write, target.subresource
        )
        return self._one(target, record, accept, write=write)

    def _patch(self, target: Target, body: Body, accept: str) -> Answer:
        change, write = self._change(target, body), _write(target)
        record = self._objects.patch(
            target.resource, target.namespace or "", target.name, change, write, target.subresource
        )
        return self._one(target, record, accept, write=write)

    def _change(self, target: Target, body: Body) -> Callable[[Json], Any]:
        """The function that a patch is."""
        if body.media not in PATCHES:
            raise errors.unsupported_media(body.media, PATCHES)
        patch = body.decode()
        if body.media == "application/json-patch+json":
            return lambda obj: json_patch(obj, patch)
        if not isinstance(patch, dict):
            raise errors.bad_request("a merge patch of an object is an object")
        if body.media == MERGE:
            return lambda obj: merge(obj, patch)
        if target.resource.custom is not None:
            raise errors.unsupported_media(body.media, PATCHES[:2])
        return lambda obj: strategic.merge(target.resource.kind, obj, patch)

    def _delete(self, target: Target, body: Body, accept: str) -> Answer:
        record = self._objects.get(target.resource, target.namespace or "", target.name)
        options, write = self._options(target, body), _write(target)
        last, gone = self._objects.delete(target.resource, record, options, write)
        if gone and target.resource.key != "pods":
            details = {
                "name": last.name,
                "group": target.resource.group,
                "kind": target.resource.plural,
                "uid": last.uid,
            }
            details = {key: value for key, value in details.items() if value}
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return Answer(encode(status))
        return self._one(target, last, accept)

    def _deletecollection(self, target: Target, body: Body, accept: str) -> Answer:
        options, write = self._options(target, body), _write(target)
        test = selector(target.resource, target.query.get("labelSelector", ""), target.query.get("fieldSelector", ""))
        records = [record for record in self._store.all(target.resource, target.namespace) if test(record)]
        for record in records:
            self._objects.delete(target.resource, record, options, write)
        head = {"kind": target.resource.list_name, "apiVersion": target.resource.api_version,
                "metadata": {"resourceVersion": str(self._store.version)}}  # fmt: skip
        return Answer(encode(head)[:-1] + b',"items":[' + b",".join(record.raw for record in records) + b"]}")

    def _options(self, target: Target, body: Body) -> Mapping[str, Any]:
        """DeleteOptions, from the body or the query."""
        options = dict(body.json() or {}) if body.data else {}
        for key in ("propagationPolicy", "gracePeriodSeconds"):
            if target.query.get(key):
                options[key] = target.number(key) if key == "gracePeriodSeconds" else target.query[key]
        return options
