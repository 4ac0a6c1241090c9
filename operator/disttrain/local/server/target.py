"""What a request is about: its path and method read as a verb on a resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from disttrain.local.server.errors import bad_request, method_not_allowed, no_such_path
from disttrain.local.server.resources import Resource, Types

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_A_NAMESPACE = ("status", "finalize")  # /namespaces/x/status is the namespace's, /namespaces/x/pods is not


@dataclass(frozen=True)
class Target:
    """`namespace` is None where a namespaced resource is asked for in all of them."""

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`pods` or `pods/status`: what fault rules and the journal call it."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str) -> int | None:
        """A whole number of the query, None where it is absent; raises 400 on anything else."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f"{name} is a whole number: {text!r} was given") from None


def parse(types: Types, method: str, path: str, query: Mapping[str, str]) -> Target:
    """Read `/api/v1/namespaces/x/pods/y/log` and its like; raises 404 for what is not served."""
    parts = [part for part in path.split("/") if part]
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace: str | None = None
    if rest[0] == "watch":
        raise no_such_path()  # the old way to watch, before ?watch=true
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in _OF_A_NAMESPACE):
        namespace, rest = rest[1], rest[2:]
    resource = types.find(group, version, rest[0])
    name, subresource = (rest[1] if len(rest) > 1 else ""), "/".join(rest[2:])
    if namespace is not None and not resource.namespaced:
        raise no_such_path()
    if resource.namespaced and namespace is None and (name or method == "POST"):
        raise no_such_path() if name else method_not_allowed()
    if not resource.namespaced:
        namespace = ""
    verb = _verb(method, name, query)
    if verb in ("list", "watch") and "metadata.name=" in query.get("fieldSelector", ""):
        selected = query["fieldSelector"].split("metadata.name=", 1)[1].split(",")[0].lstrip("=")
        return Target(verb, resource, namespace, selected, subresource, query)
    return Target(verb, resource, namespace, name, subresource, query)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        if name:
            return "get"
        return "watch" if query.get("watch", "").lower() in ("true", "1") else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if method not in _VERBS or (method != "POST" and not name):
        raise method_not_allowed()
    return _VERBS[method]
