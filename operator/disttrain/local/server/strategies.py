"""What single built-in types add: defaults that clients rely on, and the checks that a user meets first."""

from __future__ import annotations

from typing import Any

from disttrain.local.server import builtin_schema, errors
from disttrain.local.server.errors import Cause
from disttrain.local.server.objects import Write
from disttrain.local.server.resources import Resource
from disttrain.local.server.schema import quoted
from disttrain.local.server.store import Json, encode


def complain(resource: Resource, obj: Json, unknown: list[str], write: Write) -> None:
    """Tell the client of unknown fields, as its fieldValidation wants: refuse, warn or keep silent."""
    words = [f'unknown field "{path}"' for path in unknown]
    if words and write.field_validation == "Strict":
        error = f"strict decoding error: {', '.join(words)}"
        if write.patching:
            cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {quoted(encode(obj).decode())}: {error}")
            raise errors.invalid("", "", "", [cause])
        what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise errors.bad_request(f"{what}: {error}")
    if write.field_validation == "Warn":
        write.warnings += words


def check_metadata(obj: Json) -> list[str]:
    """Drop what metadata does not have; returns the paths, raises 400 for a value of a wrong type."""
    try:
        return [f"metadata.{path}" for path in builtin_schema.check("ObjectMeta", obj["metadata"])]
    except builtin_schema.Mismatch as error:
        words = f"json: cannot unmarshal {error.given} into Go struct field ObjectMeta.metadata.{error.path}"
        raise errors.bad_request(f"{words} of type {error.wanted}") from None


class Plain:
    """A built-in type without rules of its own: its fields must be those of the table, and of their types."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        changed = new if old is None else {key: value for key, value in new.items() if value != old.get(key)}
        try:
            unknown = builtin_schema.check(resource.kind, changed)
        except builtin_schema.Mismatch as error:
            what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
            place = f"{error.owner}.{error.path}"
            words = f"json: cannot unmarshal {error.given} into Go struct field {place} of type {error.wanted}"
            raise errors.bad_request(f"{what}: {words}") from None
        if old is not None:
            for key in [key for key in new if key not in changed and new[key] != old.get(key)]:
                del new[key]
        complain(resource, new, unknown, write)

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        return 0


class Namespaces(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
        if old is None:
            new["spec"] = {"finalizers": ["kubernetes"]}
            new["status"] = {"phase": "Active"}


class Services(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        spec = new.setdefault("spec", {})
        defaults: Json = {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}
        for key, value in defaults.items():
            spec.setdefault(key, value)
        if old is not None and "clusterIP" in (old.get("spec") or {}):
            spec.setdefault("clusterIP", old["spec"]["clusterIP"])
        # No proxy runs here, so there is no address to give: a name of a service leads to its pods.
        spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        new.setdefault("status", {"loadBalancer": {}})


def _quality(spec: Json) -> str:
    """The pod's class of service: Guaranteed, Burstable or BestEffort."""
    resources = [c.get("resources") or {} for key in ("containers", "initContainers") for c in spec.get(key) or ()]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    for r in resources:
        limits, requests = r.get("limits") or {}, r.get("requests") or {}
        if any(key not in limits or requests.get(key, limits[key]) != limits[key] for key in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


class Pods(Plain):
    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        if subresource:
            return
        spec = new.setdefault("spec", {})
        causes: list[Cause] = []
        if not spec.get("containers"):
            causes.append(Cause("spec.containers", "FieldValueRequired", "Required value"))
        for kind in ("containers", "initContainers"):
            for index, container in enumerate(spec.get(kind) or ()):
                causes += self._container(f"spec.{kind}[{index}]", container)
        if causes:
            raise errors.invalid("Pod", "", new["metadata"]["name"], causes)
        defaults: Json = {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "enableServiceLinks": True,
        }
        for key, value in defaults.items():
            spec.setdefault(key, value)
        if old is None:
            new["status"] = {"phase": "Pending", "qosClass": _quality(spec)}

    def _container(self, path: str, container: Json) -> list[Cause]:
        causes = []
        if not container.get("name"):
            causes.append(Cause(f"{path}.name", "FieldValueRequired", "Required value"))
        if not container.get("image"):
            causes.append(Cause(f"{path}.image", "FieldValueRequired", "Required value"))
        image = str(container.get("image") or "")
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        container.setdefault(
            "imagePullPolicy", "IfNotPresent" if tag not in ("", "latest") or "@" in image else "Always"
        )
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
        return causes

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """A pod that never reached a node, or has ended, goes at once; another waits for its kubelet."""
        spec: Json = obj.get("spec") or {}
        phase = (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        chosen: Any = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return max(0, int(chosen))


BY_TYPE: dict[str, Plain] = {"namespaces": Namespaces(), "services": Services(), "pods": Pods()}
PLAIN = Plain()
