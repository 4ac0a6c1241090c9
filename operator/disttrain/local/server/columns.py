"""What the built-in types show in a table: for each a list of columns and a function from object to cells."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

Json = dict[str, Any]
NONE = "<none>"
UNKNOWN = "<unknown>"


class Column(NamedTuple):
    """One column. Those of priority 1 are shown with `-o wide`."""

    name: str
    kind: str = "string"
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        kind = self._asdict()
        return {
            "name": kind["name"], "type": kind["kind"], "format": "name" if self.name == "Name" else "",
            "description": self.description, "priority": self.priority,
        }  # fmt: skip


Cells = Callable[[Json, datetime], list[Any]]


def age(moment: Any, now: datetime) -> str:
    """How long ago, as kubectl writes it: 5s, 3m10s, 5h20m, 3d4h, 2y10d."""
    try:
        seconds = int((now - datetime.fromisoformat(str(moment))).total_seconds())
    except (ValueError, TypeError):
        return UNKNOWN
    return duration(seconds)


def duration(seconds: int) -> str:
    """Kubernetes' short form: two units where the larger is small, else one."""
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if years < 8 and days % 365 else f"{years}y"


def _get(obj: Any, *keys: str) -> Any:
    for key in keys:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _created(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _pod_reason(obj: Json) -> str:
    """The STATUS of a pod: its phase, or what its containers say that is more telling."""
    status = obj.get("status") or {}
    reason = status.get("reason") or status.get("phase") or UNKNOWN
    starting = False
    inits = status.get("initContainerStatuses") or []
    for index, container in enumerate(inits):
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended and ended.get("exitCode") == 0:
            continue
        if ended:
            code = f"ExitCode:{ended.get('exitCode')}"
            reason = f"Init:{ended.get('reason') or code}"
        elif _get(state, "waiting", "reason") not in (None, "PodInitializing"):
            reason = f"Init:{state['waiting']['reason']}"
        else:
            reason = f"Init:{index}/{len(inits)}"
        starting = True
        break
    if not starting:
        for container in reversed(status.get("containerStatuses") or []):
            state = container.get("state") or {}
            if waiting := _get(state, "waiting", "reason"):
                reason = waiting
            elif ended := state.get("terminated"):
                signal = ended.get("signal")
                reason = ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode')}")
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(bool(container.get("ready")) for container in statuses)
    restarts = sum(int(container.get("restartCount") or 0) for container in statuses)
    last = [_get(container, "lastState", "terminated", "finishedAt") for container in statuses]
    shown = f"{restarts} ({age(max(filter(None, last)), now)} ago)" if restarts and any(last) else restarts
    gates = f"0/{len(spec['readinessGates'])}" if spec.get("readinessGates") else NONE
    return [
        obj["metadata"]["name"], f"{ready}/{len(spec.get('containers') or ())}", _pod_reason(obj), shown,
        _created(obj, now),
        status.get("podIP") or NONE, spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE, gates,
    ]  # fmt: skip


def _service(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = ",".join(
        f"{port.get('port')}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or ()
    )
    chosen = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    external = ",".join(spec.get("externalIPs") or ()) or NONE
    return [obj["metadata"]["name"], spec.get("type"), spec.get("clusterIP") or NONE, external, ports or NONE,
            _created(obj, now), chosen or NONE]  # fmt: skip


def _event(obj: Json, now: datetime) -> list[Any]:
    about = obj.get("involvedObject") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    last = _get(obj, "series", "lastObservedTime") or obj.get("lastTimestamp") or first
    name = f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}"
    source = _get(obj, "source", "component") or obj.get("reportingComponent") or ""
    count = _get(obj, "series", "count") or obj.get("count") or 1
    return [age(last, now), obj.get("type") or "", obj.get("reason") or "", name, about.get("fieldPath") or "", source,
            (obj.get("message") or "").strip(), age(first, now), count, obj["metadata"]["name"]]  # fmt: skip


def _node(obj: Json, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    ready = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}.get("Ready")
    words = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown")
    if _get(obj, "spec", "unschedulable"):
        words += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = [key.removeprefix(prefix) for key in obj["metadata"].get("labels") or {} if key.startswith(prefix)]
    info = status.get("nodeInfo") or {}
    address = {entry.get("type"): entry.get("address") for entry in status.get("addresses") or ()}
    return [obj["metadata"]["name"], words, ",".join(sorted(roles)) or NONE, _created(obj, now),
            info.get("kubeletVersion") or "",
            address.get("InternalIP") or NONE, address.get("ExternalIP") or NONE, info.get("osImage") or UNKNOWN,
            info.get("kernelVersion") or UNKNOWN, info.get("containerRuntimeVersion") or UNKNOWN]  # fmt: skip


def _data(obj: Json) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _claim(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = ",".join(short.get(mode, mode) for mode in status.get("accessModes") or ())
    size = _get(status, "capacity", "storage") or ""
    return [obj["metadata"]["name"], status.get("phase") or "", spec.get("volumeName") or "", size, modes,
            spec.get("storageClassName") or "", _created(obj, now)]  # fmt: skip


def _columns(text: str) -> list[Column]:
    """`Name Ready ... | wide columns`, underscores for spaces, `:i` for a number."""
    plain, _, wide = text.partition("|")
    found = []
    for priority, words in ((0, plain), (1, wide)):
        for word in words.split():
            name, _, kind = word.partition(":")
            found.append(Column(name.replace("_", " "), "integer" if kind == "i" else "string", priority))
    return found


def _name(obj: Json) -> Any:
    return obj["metadata"]["name"]


OTHERS: tuple[list[Column], Cells] = (
    [Column("Name"), Column("Age")],
    lambda obj, now: [_name(obj), _created(obj, now)],
)
TABLES: dict[str, tuple[list[Column], Cells]] = {
    "pods": (_columns("Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates"), _pod),
    "services": (_columns("Name Type Cluster-IP External-IP Port(s) Age | Selector"), _service),
    "events": (
        _columns("Last_Seen Type Reason Object | Subobject Source") + _columns("Message | First_Seen Count Name"),
        _event,
    ),
    "namespaces": (
        _columns("Name Status Age"),
        lambda obj, now: [_name(obj), _get(obj, "status", "phase"), _created(obj, now)],
    ),
    "configmaps": (_columns("Name Data:i Age"), lambda obj, now: [_name(obj), _data(obj), _created(obj, now)]),
    "secrets": (
        _columns("Name Type Data:i Age"),
        lambda obj, now: [_name(obj), obj.get("type") or "Opaque", _data(obj), _created(obj, now)],
    ),
    "serviceaccounts": (
        _columns("Name Secrets:i Age"),
        lambda obj, now: [_name(obj), len(obj.get("secrets") or ()), _created(obj, now)],
    ),
    "nodes": (
        _columns("Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version Container-Runtime"),
        _node,
    ),
    "persistentvolumeclaims": (_columns("Name Status Volume Capacity Access_Modes StorageClass Age"), _claim),
    "leases.coordination.k8s.io": (
        _columns("Name Holder Age"),
        lambda obj, now: [_name(obj), _get(obj, "spec", "holderIdentity") or "", _created(obj, now)],
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        _columns("Name Created_At"),
        lambda obj, now: [_name(obj), obj["metadata"].get("creationTimestamp")],
    ),
}


def now_utc() -> datetime:
    return datetime.now(UTC)
