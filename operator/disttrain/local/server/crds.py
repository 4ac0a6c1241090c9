"""CustomResourceDefinitions: the types that they add, and the rules of the objects of those types.

Only the storage version of a CRD is served; there is no conversion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disttrain.local.server import errors, rules, schema, tables
from disttrain.local.server.crd_schema import DEFINITION
from disttrain.local.server.errors import Cause
from disttrain.local.server.objects import Write, timestamp
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Json
from disttrain.local.server.strategies import Plain, complain

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"  # holds a CRD until its objects are gone


@dataclass(frozen=True)
class Scale:
    """Where a type's scale subresource reads and writes, as keys from the object's root."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True)
class CustomType:
    """What a CRD says of its storage version, beside the names."""

    schema: Json
    rules: rules.Node | None = None
    columns: tuple[Json, ...] = ()
    scale: Scale | None = None


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def storage_version(crd: Json) -> Json | None:
    versions: list[Json] = crd["spec"].get("versions") or []
    return next((version for version in versions if version.get("storage")), None)


def resource_of(crd: Json) -> Resource | None:
    """The type that a CRD adds, None if its storage version is not served; raises RuleError."""
    spec, version = crd["spec"], storage_version(crd)
    if version is None or not version.get("served"):
        return None
    given: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    subresources: Json = version.get("subresources") or {}
    scale = None
    if found := subresources.get("scale"):
        selector = _path(found.get("labelSelectorPath") or "")
        scale = Scale(_path(found["specReplicasPath"]), _path(found["statusReplicasPath"]), selector)
    names = spec["names"]
    selectable = tuple(str(entry["jsonPath"]).lstrip(".") for entry in version.get("selectableFields") or ())
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(key for key in ("status", "scale") if key in subresources),
        fields=selectable,
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        custom=CustomType(
            schema=given,
            rules=rules.compile_rules(given),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            scale=scale,
        ),
    )


class Definitions(Plain):
    """The strategy of the CRDs themselves."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        name = new["metadata"]["name"]
        causes = self._faults(name, new)
        if causes:
            raise errors.invalid(resource.kind, resource.group, name, causes)
        spec = new["spec"]
        names = spec["names"]
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        try:
            resource_of(new)
        except rules.RuleError as error:
            where = "spec.versions.schema.openAPIV3Schema.x-kubernetes-validations.rule"
            cause = Cause(where, "FieldValueInvalid", f"Invalid value: {error}")
            raise errors.invalid(resource.kind, resource.group, name, [cause]) from None
        if old is None:
            new["metadata"]["finalizers"] = [*(new["metadata"].get("finalizers") or ()), CLEANUP]
        if subresource:
            return
        before = {c["type"]: c for c in ((old or {}).get("status") or {}).get("conditions") or ()}
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": timestamp(), "reason": reason, "message": words}
            for kind, reason, words in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        new["status"] = {
            "conditions": [before.get(condition["type"], condition) for condition in conditions],
            "acceptedNames": names,
            "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
        }

    @staticmethod
    def _faults(name: str, crd: Json) -> list[Cause]:
        causes = schema.validate(DEFINITION, {key: value for key, value in crd.items() if key != "metadata"})
        if causes:
            return causes
        spec = crd["spec"]
        if name != f"{spec['names']['plural']}.{spec['group']}":
            words = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
            causes.append(Cause("metadata.name", "FieldValueInvalid", words))
        versions = spec["versions"]
        if sum(version["storage"] for version in versions) != 1:
            words = "Invalid value: must have exactly one version marked as storage version"
            causes.append(Cause("spec.versions", "FieldValueInvalid", words))
        for index, version in enumerate(versions):
            path = f"spec.versions[{index}]"
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                words = "Required value: schemas are required"
                causes.append(Cause(f"{path}.schema.openAPIV3Schema", "FieldValueRequired", words))
            for place, column in enumerate(version.get("additionalPrinterColumns") or ()):
                try:
                    tables.steps(column["jsonPath"])
                except ValueError as error:
                    where = f"{path}.additionalPrinterColumns[{place}].jsonPath"
                    causes.append(Cause(where, "FieldValueInvalid", f"Invalid value: {error}"))
        return causes


class Custom(Plain):
    """The strategy of the objects of a CRD: its schema and its rules."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        custom = resource.custom
        assert custom is not None
        self._prune(resource, custom, new, write)
        schema.apply_defaults(custom.schema, new)
        if old is None and "status" in resource.subresources:
            new.pop("status", None)
        causes = list(dict.fromkeys(self._faults(custom, new, old)))
        if causes:
            raise errors.invalid(resource.kind, resource.group, new["metadata"].get("name") or "", causes)

    @staticmethod
    def _prune(resource: Resource, custom: CustomType, new: Json, write: Write) -> None:
        kept = {key: new.pop(key) for key in ("apiVersion", "kind", "metadata")}
        unknown = list(schema.prune(custom.schema, new))
        rest = dict(new)
        new.clear()
        new.update({**kept, **rest})
        complain(resource, new, unknown, write)

    @staticmethod
    def _faults(custom: CustomType, new: Json, old: Json | None) -> list[Cause]:
        # The schema sees of the metadata what rules may see: the names.
        seen = _visible(new)
        if old is None:
            causes = schema.validate(custom.schema, seen)
        else:
            causes = schema.validate(custom.schema, seen, _visible(old))
        if custom.scale is not None:
            for path in (custom.scale.spec_replicas, custom.scale.status_replicas):
                causes += _count_faults(seen, path)
        if schema.blocks_rules(causes):
            return [*causes, schema.NOT_CHECKED]
        if custom.rules is not None:
            found = rules.check(custom.rules, seen) if old is None else rules.check(custom.rules, seen, _visible(old))
            causes += list(found)
        return causes


def _visible(obj: Json) -> Json:
    metadata = {key: obj["metadata"][key] for key in ("name", "generateName") if key in obj["metadata"]}
    return {**obj, "metadata": metadata}


_GO_TYPES: dict[type, str] = {str: "string", float: "float64", bool: "bool", dict: "map[string]interface {}"}


def _count_faults(obj: Any, path: tuple[str, ...]) -> list[Cause]:
    """What is wrong with a count that the scale subresource reads: the real server adds it in words of its own."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    where = "." + ".".join(path)
    if obj is None:
        return []
    if isinstance(obj, bool) or not isinstance(obj, int):
        kind = _GO_TYPES.get(type(obj), "[]interface {}")
        words = f"Invalid value: 0: {where} accessor error: {obj} is of the type {kind}, expected int64"
    elif obj < 0:
        words = f"Invalid value: {obj}: should be a non-negative integer"
    elif obj >= 2**31:
        words = f"Invalid value: {obj}: should be less than or equal to 2147483647"
    else:
        return []
    return [Cause(where, "FieldValueInvalid", words)]
