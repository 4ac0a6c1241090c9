"""What the server says it serves: the legacy lists and the aggregated discovery (apidiscovery.k8s.io/v2)."""

from __future__ import annotations

from typing import Any

from disttrain.local.server.resources import VERBS, Resource, Types

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OLD_OPENAPI = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "log": ("", "v1", "Pod", ("get",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "finalize": ("", "v1", "Namespace", ("update",)),
}
REVIEW = "selfsubjectaccessreviews"
REVIEW_GROUP = "authorization.k8s.io"


def version() -> dict[str, str]:
    return {
        "major": "1", "minor": "34", "gitVersion": "v1.34.0-disttrain-local", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "python",
    }  # fmt: skip


def _subresource(resource: Resource, name: str) -> tuple[str, str, str, tuple[str, ...]]:
    return SUBRESOURCE_KINDS.get(name, (resource.group, resource.version, resource.kind, ("get", "patch", "update")))


def resource_list(resources: list[Resource]) -> dict[str, Any]:
    """`APIResourceList` of one group and version."""
    listed: list[dict[str, Any]] = []
    for resource in resources:
        entry: dict[str, Any] = {
            "name": resource.plural, "singularName": resource.singular_name, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": list(VERBS),
        }  # fmt: skip
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        listed.append(entry)
        for name in resource.subresources:
            group, ver, kind, verbs = _subresource(resource, name)
            entry = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
            if (group, ver) != (resource.group, resource.version):
                entry |= {"group": group, "version": ver}
            listed.append(entry | {"kind": kind, "verbs": list(verbs)})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": resources[0].api_version,
        "resources": listed,
    }


def review_list() -> dict[str, Any]:
    """The one resource of authorization.k8s.io: it is answered, never stored."""
    entry = {"name": REVIEW, "singularName": "selfsubjectaccessreview", "namespaced": False,
             "kind": "SelfSubjectAccessReview", "verbs": ["create"]}  # fmt: skip
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{REVIEW_GROUP}/v1", "resources": [entry]}


def core_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group(types: Types, name: str) -> dict[str, Any] | None:
    """`APIGroup` of one group, None if it is not served."""
    if name == REVIEW_GROUP:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, ["v1"])}
    versions = types.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))} if name and versions else None


def groups(types: Types) -> dict[str, Any]:
    listed = [_group(name, list(versions)) for name, versions in types.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*listed, _group(REVIEW_GROUP, ["v1"])]}


def _aggregated_resource(entry: dict[str, Any], group: str, version: str) -> dict[str, Any]:
    kind = {"group": entry.get("group", group), "version": entry.get("version", version), "kind": entry["kind"]}
    found = {
        "resource": entry["name"], "responseKind": kind, "scope": "Namespaced" if entry["namespaced"] else "Cluster",
        "singularResource": entry["singularName"], "verbs": entry["verbs"],
    }  # fmt: skip
    return found | {key: entry[key] for key in ("shortNames", "categories") if key in entry}


def _aggregated_version(group: str, version: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    resources: dict[str, dict[str, Any]] = {}
    for entry in entries:
        plural, _, sub = entry["name"].partition("/")
        if sub:
            found = _aggregated_resource(entry, group, version)
            short = {"subresource": sub, "responseKind": found["responseKind"], "verbs": found["verbs"]}
            resources[plural].setdefault("subresources", []).append(short)
        else:
            resources[plural] = _aggregated_resource(entry, group, version)
    return {"version": version, "resources": list(resources.values()), "freshness": "Current"}


def aggregated(types: Types, *, core: bool) -> dict[str, Any]:
    """`APIGroupDiscoveryList` of the core group, or of all others."""
    items = []
    for name, versions in types.groups().items():
        if (name == "") is core:
            listed = [
                _aggregated_version(name, ver, resource_list(found)["resources"]) for ver, found in versions.items()
            ]
            items.append({"metadata": {"name": name, "creationTimestamp": None}, "versions": listed})
    if not core:
        listed = [_aggregated_version(REVIEW_GROUP, "v1", review_list()["resources"])]
        items.append({"metadata": {"name": REVIEW_GROUP, "creationTimestamp": None}, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
