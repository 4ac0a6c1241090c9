"""What the server serves: one `Resource` a type, the built-in ones, and those that CRDs add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from disttrain.local.server.errors import ApiError, no_such_path

if TYPE_CHECKING:
    from disttrain.local.server.crds import CustomType

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One type of object. `fields` are the paths, beside name and namespace, that field selectors may name."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    singular: str = ""
    list_kind: str = ""
    custom: CustomType | None = field(default=None, compare=False)

    @cached_property
    def key(self) -> str:
        """`pods` or `disttrainjobs.disttrain.dev`: the name in messages, and the store's."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def field_steps(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """`fields`, each with its path as keys."""
        return tuple((path, tuple(path.split("."))) for path in self.fields)

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def prefix(self) -> str:
        """The path that the group's version is served under."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind}List"


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (*(f"involvedObject.{key}" for key in _REFERENCE), "reason", "reportingComponent", "source", "type")

NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", False, ("ns",), (), ("status", "finalize"), ("status.phase",)
)  # fmt: skip
PODS = Resource(
    "", "v1", "pods", "Pod", True, ("po",), ("all",), ("status", "log", "binding"),
    ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
     "status.phase", "status.podIP", "status.nominatedNodeName"),
)  # fmt: skip
EVENTS = Resource("", "v1", "events", "Event", True, ("ev",), (), (), _EVENT_FIELDS)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False,
    ("crd", "crds"), ("api-extensions",), ("status",),
)  # fmt: skip
SERVICES = Resource(
    "", "v1", "services", "Service", True, ("svc",), ("all",), ("status",), ("spec.clusterIP", "spec.type")
)
SECRETS = Resource("", "v1", "secrets", "Secret", fields=("type",))
BUILT_IN = (
    Resource("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    EVENTS,
    NAMESPACES,
    Resource("", "v1", "nodes", "Node", False, ("no",), (), ("status",), ("spec.unschedulable",)),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("pvc",), (), ("status",)),
    PODS,
    SECRETS,
    Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",)),
    SERVICES,
    CRDS,
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
)


class Types:
    """The types served now, by group, version and plural."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[str, Resource] = {}
        self.revision = 0  # moves when a type comes, goes or changes, so that what is derived can be kept
        for resource in BUILT_IN:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._types.values()))

    def add(self, resource: Resource) -> None:
        self._types[resource.group, resource.version, resource.plural] = resource
        self._by_key[resource.key] = resource
        self.revision += 1

    def remove(self, resource: Resource) -> None:
        self._types.pop((resource.group, resource.version, resource.plural), None)
        self._by_key.pop(resource.key, None)
        self.revision += 1

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def named(self, key: str) -> Resource:
        """The type by its key (`pods`, `disttrainjobs.disttrain.dev`)."""
        return self._by_key[key]

    def find(self, group: str, version: str, plural: str) -> Resource:
        """The type behind a path; raises 404 in the real server's words."""
        try:
            return self._types[group, version, plural]
        except KeyError:
            raise no_such_path() from None

    def groups(self) -> dict[str, dict[str, list[Resource]]]:
        """Group -> version -> resources, the core group under "" first."""
        found: dict[str, dict[str, list[Resource]]] = {}
        for resource in self:
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found

    def check_group(self, group: str, version: str) -> list[Resource]:
        try:
            return self.groups()[group][version]
        except KeyError:
            raise ApiError(404, "NotFound", "the server could not find the requested resource") from None
