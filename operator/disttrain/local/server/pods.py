"""A pod's defaults and the checks that a user meets first. What is not checked here a real cluster may still refuse."""

from __future__ import annotations

import re
from typing import Any

from disttrain.local.server import errors, names
from disttrain.local.server.errors import Cause
from disttrain.local.server.objects import Write
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Json, encode
from disttrain.local.server.strategies import Plain

_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
}
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}
_CHANGEABLE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


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


def _required(path: str) -> Cause:
    return Cause(path, "FieldValueRequired", "Required value")


def _complete(container: Json) -> None:
    """Fill in a container's defaults."""
    image = str(container.get("image") or "")
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    container.setdefault("imagePullPolicy", "IfNotPresent" if tag not in ("", "latest") or "@" in image else "Always")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _container(path: str, container: Json, volumes: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name")
    if not name:
        causes.append(_required(f"{path}.name"))
    elif not re.fullmatch(names.LABEL, name):
        causes.append(names.bad(f"{path}.name", name, names.LABEL_WORDS))
    if not container.get("image"):
        causes.append(_required(f"{path}.image"))
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            causes.append(_required(f"{path}.env[{index}].name"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(_required(f"{where}.name"))
        elif mount["name"] not in volumes:
            causes.append(Cause(f"{where}.name", "FieldValueNotFound", f'Not found: "{mount["name"]}"'))
        if not mount.get("mountPath"):
            causes.append(_required(f"{where}.mountPath"))
    return causes


def faults(spec: Json) -> list[Cause]:
    """What is wrong with a new pod's spec."""
    causes: list[Cause] = []
    volumes = {str(volume.get("name")) for volume in spec.get("volumes") or ()}
    if not spec.get("containers"):
        causes.append(_required("spec.containers"))
    seen: set[str] = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            causes += _container(path, container, volumes)
            name = container.get("name")
            if name in seen:
                causes.append(Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
            seen.add(name)
    for key, allowed in _CHOICES.items():
        if spec.get(key, allowed[0]) not in allowed:
            words = ", ".join(f'"{choice}"' for choice in allowed)
            given = encode(spec[key]).decode()
            causes.append(
                Cause(f"spec.{key}", "FieldValueNotSupported", f"Unsupported value: {given}: supported values: {words}")
            )
    return causes


def _fixed(spec: Json) -> Json:
    """The part of a spec that stays as it was created."""
    kept = {
        key: value
        for key, value in spec.items()
        if key not in ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
    }
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{key: value for key, value in c.items() if key != "image"} for c in kept[kind]]
    return kept


class Pods(Plain):
    """The strategy of pods."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str, write: Write) -> None:
        super().prepare(resource, new, old, subresource, write)
        if subresource:
            return
        spec = new.setdefault("spec", {})
        name = new["metadata"]["name"]
        if spec.get("terminationGracePeriodSeconds", 0) < 0:
            spec["terminationGracePeriodSeconds"] = 1
        for key, value in _DEFAULTS.items():
            spec.setdefault(key, value.copy() if isinstance(value, dict) else value)
        for kind in ("containers", "initContainers"):
            for container in spec.get(kind) or ():
                _complete(container)
        if old is None or spec != old["spec"]:
            causes = faults(spec)
            if not causes and old is not None and _fixed(spec) != _fixed(old["spec"]):
                causes = [Cause("spec", "FieldValueForbidden", _CHANGEABLE)]
            if causes:
                raise errors.invalid("Pod", "", name, causes)
        if old is None:
            new["status"] = {"phase": "Pending", "qosClass": _quality(spec)}

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """A pod that never reached a node, or has ended, goes at once; another waits for its kubelet."""
        spec: Json = obj.get("spec") or {}
        phase = (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        chosen: Any = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return max(0, int(chosen))
