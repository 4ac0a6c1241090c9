"""Create, update, patch and delete, with the rules that hold for every type of object.

What one type adds (a pod's defaults, a CRD's schema) is behind `Strategy`.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from disttrain.local.server import builtin_schema, errors, names
from disttrain.local.server.errors import ApiError, Cause
from disttrain.local.server.resources import NAMESPACES, Resource
from disttrain.local.server.schema import NOT_CHECKED
from disttrain.local.server.store import Json, Record, Store

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: a generated name never spells a word
IMMORTAL = ("default", "kube-system")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 with seconds, as Kubernetes writes times."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Write:
    """How a request wants its write done, and the warnings that its answer carries."""

    dry_run: bool = False
    field_validation: str = "Warn"  # Strict, Warn or Ignore
    patching: bool = False
    unknown: list[str] = field(default_factory=list)  # the paths of unknown fields of the metadata
    warnings: list[str] = field(default_factory=list)


class Strategy(Protocol):
    """What one type adds to the general rules."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        """Default and prune `new` in place and check it; raise an ApiError where the real server refuses."""
        ...

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """How long a deleted object stays, marked as terminating."""
        ...


def check_preconditions(resource: Resource, record: Record, preconditions: Mapping[str, Any]) -> None:
    """Raise 409 when the caller meant another object, or another version of it."""
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    kind = Resource(resource.group, resource.version, resource.kind, resource.kind)  # the kind is named, not the plural
    if uid and uid != record.uid:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({record.uid})."
        raise errors.conflict(kind, record.name, f"{why} The object might have been deleted and then recreated")
    if version and version != str(record.version):
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
        raise errors.conflict(kind, record.name, f"{why} ({record.version}). The object might have been modified")


class Objects:
    """The objects of all types, changed only in ways that Kubernetes allows."""

    def __init__(self, store: Store, strategy: Callable[[Resource], Strategy]) -> None:
        self.store = store
        self._strategy = strategy

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        record = self.store.get(resource, namespace, name)
        if record is None:
            raise errors.not_found(resource, name)
        return record

    # Create

    def create(self, resource: Resource, namespace: str, obj: Json, write: Write) -> Record:
        self._check_identity(resource, namespace, obj, write)
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = str(metadata["generateName"])[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        if resource.namespaced:
            self._check_namespace(resource, namespace, str(metadata.get("name") or ""))
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp()
        for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(key, None)
        metadata.pop("generation", None)
        if self._counts_generations(resource):
            metadata["generation"] = 1
        existing = self.store.get(resource, namespace, metadata.get("name") or "")
        if existing is not None:
            raise errors.already_exists(resource, existing)
        faults = names.check(resource, metadata)
        if faults and not metadata.get("name"):
            faults += [NOT_CHECKED] if resource.custom is not None else []
            raise errors.invalid(resource.kind, resource.group, "", faults)
        try:
            self._strategy(resource).prepare(resource, obj, None, "", write)
        except ApiError as error:
            raise _joined(error, resource, metadata["name"], faults) from None
        if faults:
            raise errors.invalid(resource.kind, resource.group, metadata["name"], faults)
        return self._store(resource, obj, None, write)

    def _check_identity(self, resource: Resource, namespace: str, obj: Json, write: Write, name: str = "") -> None:
        """The body must be what the path says, and is completed from it."""
        given = obj.get("apiVersion") or resource.api_version, obj.get("kind")
        if given[1] and given[1] != resource.kind and given[0] == resource.api_version and resource.custom is not None:
            cause = Cause("kind", "FieldValueInvalid", f'Invalid value: "{given[1]}": must be {resource.kind}')
            raise errors.invalid(given[1], resource.group, str((obj.get("metadata") or {}).get("name") or ""), [cause])
        if given[1] and given != (resource.api_version, resource.kind):
            raise errors.bad_request(
                f'{given[1]} in version "{given[0]}" cannot be handled as a {resource.kind}:'
                f" the path is that of {resource.api_version} {resource.kind}"
            )
        obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        if not isinstance(obj.setdefault("metadata", {}), dict):
            raise errors.bad_request("metadata is not an object")
        metadata = obj["metadata"]
        try:
            write.unknown = [f"metadata.{path}" for path in builtin_schema.check("ObjectMeta", metadata)]
        except builtin_schema.Mismatch as error:
            error.path = f"metadata.{error.path}"
            raise errors.undecodable(resource, obj, str(error), patched=write.patching) from None
        if name and metadata.setdefault("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        record = self.store.get(NAMESPACES, "", namespace)
        if record is None:
            raise errors.not_found(NAMESPACES, namespace)
        if record.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f"namespace {namespace} is being terminated"
            causes = [{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]
            raise errors.forbidden(resource, name, why, causes)

    # Update

    def update(
        self, resource: Resource, namespace: str, name: str, obj: Json, write: Write, subresource: str = ""
    ) -> Record:
        """PUT: the whole object, or with a subresource the part of it that this one may write."""
        record = self.get(resource, namespace, name)
        self._check_identity(resource, namespace, obj, write, name)
        return self._replace(resource, record, obj, write, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Json], Any],
        write: Write,
        subresource: str = "",
    ) -> Record:
        """PATCH: `change` makes the new object out of a copy of the old."""
        record = self.get(resource, namespace, name)
        obj = change(record.object())
        write.patching = True
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
            raise errors.bad_request("the patched object is no longer an object with metadata")
        self._check_identity(resource, namespace, obj, write, name)
        return self._replace(resource, record, obj, write, subresource)

    def _replace(self, resource: Resource, record: Record, new: Json, write: Write, subresource: str) -> Record:
        old = record.object()
        metadata, before = new["metadata"], old["metadata"]
        if metadata.get("uid") not in (None, "", record.uid):
            place = "/".join(part for part in (resource.group, resource.plural, record.namespace, record.name) if part)
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {record.uid}"
            head = f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0"
            raise errors.conflict(resource, record.name, f"{head}, AdditionalErrorMsg: {why}")
        version = metadata.get("resourceVersion")
        if not version and (resource.custom is not None or resource.plural == "leases"):
            cause = Cause(
                "metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update"
            )
            raise errors.invalid(resource.plural, resource.group, record.name, [cause])
        if version and version != before["resourceVersion"]:
            raise errors.conflict(resource, record.name)
        if subresource == "status":
            new = {**old, "status": new["status"]} if "status" in new else _without(old, "status")
            if resource.custom is not None:
                metadata = dict(before)
            elif "ownerReferences" in before:  # the status of a built-in type takes labels and the like along
                metadata["ownerReferences"] = before["ownerReferences"]
            new["metadata"] = metadata
        elif "status" in resource.subresources:
            new = {**new, "status": old["status"]} if "status" in old else _without(new, "status")
        for key in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
        ):
            metadata.pop(key, None)
            if key in before:
                metadata[key] = before[key]
        metadata.pop("managedFields", None)
        for key in ("labels", "annotations", "finalizers", "ownerReferences"):
            if key in metadata and not metadata[key]:
                del metadata[key]
        if before.get("deletionTimestamp") and set(metadata.get("finalizers") or ()) - set(
            before.get("finalizers") or ()
        ):
            added = sorted(set(metadata["finalizers"]) - set(before.get("finalizers") or ()))
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers"
            why = f"{why} []string{{{listed}}}"
            cause = Cause("metadata.finalizers", "FieldValueForbidden", f"Forbidden: {why}")
            raise errors.invalid(resource.kind, resource.group, record.name, [cause])
        faults = names.check_metadata(metadata)
        if faults:
            raise errors.invalid(resource.kind, resource.group, record.name, faults)
        self._strategy(resource).prepare(resource, new, old, subresource, write)
        if new == old:
            return record  # as the real server: a write that changes nothing makes no version and no event
        if (
            self._counts_generations(resource)
            and subresource != "binding"
            and _spec_of(resource, new) != _spec_of(resource, old)
        ):
            metadata["generation"] = int(before.get("generation") or 0) + 1
        stored = self._store(resource, new, record, write)
        if metadata.get("deletionTimestamp") and not write.dry_run:
            self.finish(resource, stored)
        return stored

    def _store(self, resource: Resource, obj: Json, record: Record | None, write: Write) -> Record:
        if write.dry_run:
            return self.store.preview(resource, obj, record.version if record else 0)
        return self.store.put(resource, obj)

    @staticmethod
    def _counts_generations(resource: Resource) -> bool:
        return resource.custom is not None or resource.key in ("pods", "customresourcedefinitions.apiextensions.k8s.io")

    # Delete

    def delete(
        self, resource: Resource, record: Record, options: Mapping[str, Any], write: Write
    ) -> tuple[Record, bool]:
        """Delete an object, or mark it as terminating. Returns its state and whether it is gone."""
        check_preconditions(resource, record, options.get("preconditions") or {})
        if resource is NAMESPACES and record.name in IMMORTAL:
            raise errors.forbidden(resource, record.name, "this namespace may not be deleted")
        obj = record.object()
        metadata = obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        for policy, finalizer in (("Foreground", FOREGROUND), ("Orphan", ORPHAN)):
            if options.get("propagationPolicy") == policy and finalizer not in finalizers:
                finalizers.append(finalizer)
        grace = self._strategy(resource).grace_seconds(obj, options.get("gracePeriodSeconds"))
        known = metadata.get("deletionGracePeriodSeconds")
        if not finalizers and grace == 0 and not self._holds(resource, obj):
            if not write.dry_run:
                self.store.delete(resource, record)
            if "generation" in metadata and known is None:
                metadata["generation"] = int(metadata["generation"]) + 1
            metadata |= {"deletionTimestamp": timestamp(), "deletionGracePeriodSeconds": 0}
            return self.store.preview(resource, obj, record.version), True
        if (
            metadata.get("deletionTimestamp")
            and (known is None or grace >= known)
            and finalizers == (metadata.get("finalizers") or [])
        ):
            return record, False  # terminating already, and not asked to be quicker
        metadata["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace if known is None else min(grace, known)
        if finalizers:
            metadata["finalizers"] = finalizers
        if resource is NAMESPACES:
            obj["status"] = {"phase": "Terminating"}
        if "generation" in metadata and known is None:
            metadata["generation"] = int(metadata["generation"]) + 1
        return self._store(resource, obj, record, write), False

    @staticmethod
    def _holds(resource: Resource, obj: Json) -> bool:
        """A namespace stays until its contents are gone."""
        return resource is NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))

    def finish(self, resource: Resource, record: Record) -> None:
        """Remove a terminating object that nothing holds any more."""
        obj = record.object()
        metadata = obj["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or self._holds(resource, obj)
        if metadata.get("deletionTimestamp") and not held:
            self.store.delete(resource, record)


def _without(obj: Json, key: str) -> Json:
    return {name: value for name, value in obj.items() if name != key}


def _spec_of(resource: Resource, obj: Json) -> Json:
    """What a generation counts: everything but metadata and, where it is a subresource, status."""
    ignored = {"metadata", "status"} if "status" in resource.subresources else {"metadata"}
    return {name: value for name, value in obj.items() if name not in ignored}


def _joined(error: ApiError, resource: Resource, name: str, faults: list[Cause]) -> ApiError:
    """One 422 that lists the faults of the metadata before those of the rest."""
    if not faults or error.code != 422:
        return error
    causes = [Cause(cause["field"], cause["reason"], cause["message"]) for cause in error.details.get("causes", ())]
    return errors.invalid(resource.kind, resource.group, name, faults + causes)
