"""What single built-in types add: defaults that clients rely on, and the checks that a user meets first."""

from __future__ import annotations

import base64

from disttrain.local.server import builtin_schema, errors
from disttrain.local.server.errors import Cause
from disttrain.local.server.objects import Write
from disttrain.local.server.resources import Resource
from disttrain.local.server.schema import quoted
from disttrain.local.server.store import Json


def complain(resource: Resource, obj: Json, unknown: list[str], write: Write) -> None:
    """Tell the client of unknown fields, as its fieldValidation wants: refuse, warn or keep silent."""
    words = [f'unknown field "{path}"' for path in write.unknown + unknown]
    if words and write.field_validation == "Strict":
        raise errors.undecodable(resource, obj, f"strict decoding error: {', '.join(words)}", patched=write.patching)
    if write.field_validation == "Warn":
        write.warnings += words


class Plain:
    """A built-in type without rules of its own: its fields must be those of the table, and of their types."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        changed = new if old is None else {key: value for key, value in new.items() if value != old.get(key)}
        try:
            unknown = builtin_schema.check(resource.kind, changed)
        except builtin_schema.Mismatch as error:
            raise errors.undecodable(resource, new, str(error), patched=write.patching) from None
        if old is not None:
            for key in [key for key in new if key not in changed and new[key] != old.get(key)]:
                del new[key]
        complain(resource, new, unknown, write)

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """How long a deleted object stays: only pods are given time."""
        return 0


class Namespaces(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
        if old is None:
            new["spec"] = {"finalizers": ["kubernetes"]}
            new["status"] = {"phase": "Active"}
        elif subresource != "finalize":
            new["spec"] = old["spec"]


class Services(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        spec = new.setdefault("spec", {})
        defaults: Json = {
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        }  # fmt: skip
        for key, value in defaults.items():
            spec.setdefault(key, value)
        if old is not None and "clusterIP" in (old.get("spec") or {}):
            spec.setdefault("clusterIP", old["spec"]["clusterIP"])
        # No proxy runs here, so there is no address to give: a name of a service leads to its pods.
        spec.setdefault("clusterIP", "None")
        if old is not None and spec["clusterIP"] != old["spec"]["clusterIP"]:
            words = f"Invalid value: {quoted([spec['clusterIP']])}: may not change once set"
            cause = Cause("spec.clusterIPs[0]", "FieldValueInvalid", words)
            raise errors.invalid("Service", "", new["metadata"]["name"], [cause])
        spec["clusterIPs"] = [spec["clusterIP"]]
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        new.setdefault("status", {"loadBalancer": {}})


class Secrets(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        for key, text in (new.pop("stringData", None) or {}).items():
            new.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        new.setdefault("type", "Opaque")


class Events(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        about = (new.get("involvedObject") or {}).get("namespace") or "default"
        if old is None and about != new["metadata"]["namespace"]:
            words = f"Invalid value: {quoted(about)}: does not match event.namespace"
            cause = Cause("involvedObject.namespace", "FieldValueInvalid", words)
            raise errors.invalid("Event", "", new["metadata"]["name"], [cause])


BY_TYPE: dict[str, Plain] = {
    "namespaces": Namespaces(), "services": Services(), "secrets": Secrets(), "events": Events(),
}  # fmt: skip
PLAIN = Plain()
