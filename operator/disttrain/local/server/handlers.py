"""One function a verb: from a request's target and body to its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from disttrain.local.server import errors, render, scale, strategic
from disttrain.local.server.objects import Objects, Write
from disttrain.local.server.patches import json_patch, merge
from disttrain.local.server.resources import Resource
from disttrain.local.server.selectors import selector
from disttrain.local.server.store import Json, Record, decode, encode
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
            return decode(self.data)
        except ValueError as error:
            raise errors.bad_request(
                f"the object provided is unrecognized: couldn't get version/kind; json parse error: {error}"
            ) from None

    def object(self, resource: Resource, *, scale: bool = False) -> Json:
        """The body as an object. One of a custom type must say its kind, of a built-in one the path says enough."""
        obj = self.json()
        if isinstance(obj, dict) and (obj.get("kind") or scale or resource.custom is None):
            return obj
        excerpt = self.data.decode(errors="replace")
        short = excerpt if len(excerpt) <= 30 else f"{excerpt[:30]} ..."
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}):"
            f" Object 'Kind' is missing in '{excerpt[:200]}' ({short})"
        )


def _bad_option(target: Target, name: str, given: Any, served: str) -> errors.ApiError:
    kinds = {"create": "CreateOptions", "patch": "PatchOptions", "update": "UpdateOptions"}
    words = f"Unsupported value: {encode(given).decode()}: supported values: {served}"
    cause = errors.Cause(name, "FieldValueNotSupported", words)
    return errors.invalid(kinds.get(target.verb, "DeleteOptions"), "meta.k8s.io", "", [cause])


def _write(target: Target) -> Write:
    dry_run = target.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise _bad_option(target, "dryRun", [dry_run], '"All"')
    level = target.query.get("fieldValidation", "") or "Warn"
    if level not in ("Strict", "Warn", "Ignore"):
        raise _bad_option(target, "fieldValidation", level, '"", "Ignore", "Strict", "Warn"')
    return Write(dry_run=dry_run == "All", field_validation=level)


class Handlers:
    """Answers requests about objects. Watches and logs, which stream, are elsewhere."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def handle(self, target: Target, body: Body, accept: str) -> Answer:
        """Do what the request asks; raises ApiError."""
        sub = target.subresource
        if sub in ("exec", "attach", "portforward", "proxy", "eviction", "ephemeralcontainers", "resize", "token"):
            raise errors.not_served(f"{target.label}")
        if sub and sub not in target.resource.subresources:
            raise errors.no_such_path()
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
        if target.subresource == "scale":
            return Answer(encode(scale.read(target.resource, record)))
        return self._one(target, record, accept)

    def _list(self, target: Target, body: Body, accept: str) -> Answer:
        return Answer(render.collection(self._store, target, accept))

    def _create(self, target: Target, body: Body, accept: str) -> Answer:
        obj, write = body.object(target.resource), _write(target)
        if target.subresource == "binding":
            return self._bind(target, obj, write)
        if target.name:
            raise errors.method_not_allowed()
        record = self._objects.create(target.resource, target.namespace or "", obj, write)
        return self._one(target, record, accept, 201, write)

    def _bind(self, target: Target, binding: Json, write: Write) -> Answer:
        """Give a pod its node, as a scheduler does."""
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise errors.bad_request("a binding names its node: target.name is missing")

        def bound(pod: Json) -> Json:
            if pod["spec"].get("nodeName"):
                why = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
                raise errors.conflict(replace(target.resource, plural=target.label), target.name, why)
            pod["spec"]["nodeName"] = node
            return pod

        self._objects.patch(target.resource, target.namespace or "", target.name, bound, write, "binding")
        return Answer(
            encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}), 201
        )

    def _scale(self, target: Target, change: Callable[[Json], Any], write: Write) -> Answer:
        """Set the count of a Scale that `change` makes out of the present one."""
        resource, namespace = target.resource, target.namespace or ""
        record = self._objects.get(resource, namespace, target.name)
        new = change(scale.read(resource, record))
        stored = self._objects.patch(
            resource, namespace, target.name, lambda _: scale.write(resource, record, new), write, "scale"
        )
        return Answer(encode(scale.read(resource, stored)), warnings=tuple(write.warnings))

    def _update(self, target: Target, body: Body, accept: str) -> Answer:
        obj, write = body.object(target.resource, scale=target.subresource == "scale"), _write(target)
        if target.subresource == "scale":
            return self._scale(target, lambda _: obj, write)
        record = self._objects.update(
            target.resource, target.namespace or "", target.name, obj, write, target.subresource
        )
        return self._one(target, record, accept, write=write)

    def _patch(self, target: Target, body: Body, accept: str) -> Answer:
        change, write = self._change(target, body), _write(target)
        if target.subresource == "scale":
            return self._scale(target, change, write)
        record = self._objects.patch(
            target.resource, target.namespace or "", target.name, change, write, target.subresource
        )
        return self._one(target, record, accept, write=write)

    def _change(self, target: Target, body: Body) -> Callable[[Json], Any]:
        """The function that a patch is."""
        served = PATCHES[:2] if target.resource.custom is not None or target.subresource == "scale" else PATCHES
        if body.media not in served:
            raise errors.unsupported_media(body.media, served)
        patch = body.decode()
        if body.media == "application/json-patch+json":
            return lambda obj: json_patch(obj, patch)
        if not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: a merge patch of an object is an object")
        if body.media == MERGE:
            return lambda obj: merge(obj, patch)
        return lambda obj: strategic.merge(target.resource.kind, obj, patch)

    def _delete(self, target: Target, body: Body, accept: str) -> Answer:
        record = self._objects.get(target.resource, target.namespace or "", target.name)
        options, write = self._options(target, body)
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
        options, write = self._options(target, body)
        test = selector(target.resource, target.query.get("labelSelector", ""), target.query.get("fieldSelector", ""))
        records = [record for record in self._store.all(target.resource, target.namespace) if test(record)]
        for record in records:
            self._objects.delete(target.resource, record, options, write)
        head = {"kind": target.resource.list_name, "apiVersion": target.resource.api_version,
                "metadata": {"resourceVersion": str(self._store.version)}}  # fmt: skip
        return Answer(encode(head)[:-1] + b',"items":[' + b",".join(record.raw for record in records) + b"]}")

    def _options(self, target: Target, body: Body) -> tuple[Mapping[str, Any], Write]:
        """DeleteOptions, from the body or the query, and how to write; raises 400 for what they cannot be."""
        options, write = body.json() if body.data else {}, _write(target)
        if options is None:
            options = {}
        if not isinstance(options, dict):
            raise errors.bad_request("the body of a DELETE is DeleteOptions, an object")
        for key in ("propagationPolicy", "gracePeriodSeconds"):
            if target.query.get(key):
                options[key] = target.number(key) if key == "gracePeriodSeconds" else target.query[key]
        if not isinstance(options.get("preconditions") or {}, dict):
            raise errors.bad_request("DeleteOptions: preconditions is an object with uid and resourceVersion")
        grace = options.get("gracePeriodSeconds")
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
            raise errors.bad_request(f"DeleteOptions: gracePeriodSeconds is a whole number: {grace!r} was given")
        policy = options.get("propagationPolicy")
        if policy not in (None, "", "Orphan", "Background", "Foreground"):
            raise _bad_option(target, "propagationPolicy", policy, '"Foreground", "Background", "Orphan"')
        dry_run = options.get("dryRun")
        if dry_run not in (None, [], ["All"]):
            raise _bad_option(target, "dryRun", dry_run, '"All"')
        return options, replace(write, dry_run=write.dry_run or bool(dry_run))
