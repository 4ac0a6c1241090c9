"""A pod's status as a kubelet reports it, from the states of its containers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

# The kubelet's words for a pod that ends because its node does, and what it says of containers it lost sight of.
SHUTDOWN = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
LOST_CONTAINER = "The container could not be located when the pod was terminated"


@dataclass
class ContainerStatus:
    """One container. `state` and `last` have the shape of ContainerState."""

    spec: Json
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Json = field(default_factory=dict)
    restarts: int = 0
    started: bool = False
    ready: bool = False
    sidecar: bool = False  # an init container that stays
    container_id: str = ""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def terminated(self) -> Json | None:
        return self.state.get("terminated")

    @property
    def running(self) -> bool:
        return "running" in self.state

    def wait(self, reason: str, message: str = "") -> None:
        if self.terminated:
            self.last = self.state
        self.state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        self.started = self.ready = False

    def run(self, at: str, container_id: str) -> None:
        if self.terminated:
            self.last = self.state
        self.state = {"running": {"startedAt": at}}
        self.container_id = container_id

    def end(self, code: int, reason: str, started: str, finished: str, message: str = "") -> None:
        terminated: Json = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": finished}
        if message:
            terminated["message"] = message
        if self.container_id:
            terminated["containerID"] = self.container_id
        self.state = {"terminated": terminated}
        self.started = False
        self.ready = False

    def to_json(self, *, init: bool) -> Json:
        ready = self.ready or (init and not self.sidecar and (self.terminated or {}).get("exitCode") == 0)
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "state": self.state,
            "lastState": self.last,
            "ready": ready,
            "started": self.started,
            "restartCount": self.restarts,
        } | ({"containerID": self.container_id} if self.container_id else {})


def phase(inits: list[ContainerStatus], mains: list[ContainerStatus], policy: str, *, over: bool) -> str:
    """Pending, Running, Succeeded or Failed. `over`: nothing of the pod will run again."""
    if over:
        everyone = [s for s in inits if not s.sidecar] + mains
        good = all((s.terminated or {}).get("exitCode") == 0 for s in everyone)
        return "Succeeded" if good else "Failed"
    if not initialized(inits):
        return "Pending"
    if any("waiting" in s.state and not s.last for s in mains):
        return "Pending"
    return "Running"


def initialized(inits: list[ContainerStatus]) -> bool:
    return all(s.started if s.sidecar else (s.terminated or {}).get("exitCode") == 0 for s in inits)


def may_restart(policy: str, code: int) -> bool:
    """Whether a container that ended with `code` is started again."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def build(
    pod: Json,
    inits: list[ContainerStatus],
    mains: list[ContainerStatus],
    *,
    now: str,
    start_time: str,
    host: str,
    address: str,
    sandboxed: bool,
    over: bool,
    why: tuple[str, str] | None = None,
) -> Json:
    """The status to write. `why`: reason and message of a pod that the kubelet ended (phase Failed)."""
    value = phase(inits, mains, pod["spec"].get("restartPolicy", "Always"), over=over)
    if over and why:
        value = "Failed"
    unready = [s.name for s in mains if not s.ready]
    pending = [s.name for s in inits if not (s.started if s.sidecar else (s.terminated or {}).get("exitCode") == 0)]
    not_ready: tuple[str, str, str] | None = None
    if value == "Succeeded":
        not_ready = ("PodCompleted", "", "")
    elif value == "Failed":
        not_ready = ("PodFailed", "", "")
    elif unready:
        not_ready = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]", "")
    begun = not pending or value == "Succeeded"
    init_words = f"containers with incomplete status: [{' '.join(pending)}]"
    conditions = [
        _condition("PodReadyToStartContainers", sandboxed and not over),
        _condition("Initialized", begun, "" if begun else "ContainersNotInitialized", "" if begun else init_words),
        _condition("Ready", not_ready is None, *(not_ready or ())[:2]),
        _condition("ContainersReady", not_ready is None, *(not_ready or ())[:2]),
        _condition("PodScheduled", True),
    ]
    if over and why == SHUTDOWN:
        conditions.append(_condition("DisruptionTarget", True, "TerminationByKubelet", why[1]))
    status: Json = {
        "phase": value,
        "conditions": merge_conditions((pod.get("status") or {}).get("conditions") or [], conditions, now),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": start_time,
        "containerStatuses": [s.to_json(init=False) for s in mains],
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if inits:
        status["initContainerStatuses"] = [s.to_json(init=True) for s in inits]
    if over and why:
        status |= {"reason": why[0], "message": why[1]}
    return status


def unschedulable(pod: Json, reason: str, message: str, now: str) -> Json:
    """The status of a pod that finds no place."""
    condition = _condition("PodScheduled", False, reason, message)
    before = (pod.get("status") or {}).get("conditions") or []
    return {"phase": "Pending", "conditions": merge_conditions(before, [condition], now)}


def lost(pod: Json, now: str) -> Json:
    """The status of a pod that ran under a kubelet that is no more: it went down with its node."""
    before = pod.get("status") or {}
    status: Json = {"phase": "Failed", "reason": SHUTDOWN[0], "message": SHUTDOWN[1]}
    for key in ("containerStatuses", "initContainerStatuses"):
        statuses = []
        for one in before.get(key) or []:
            if "terminated" not in (one.get("state") or {}):
                ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST_CONTAINER}
                ended |= {"startedAt": None, "finishedAt": None}
                one = one | {"state": {"terminated": ended}, "ready": False, "started": False}
            statuses.append(one)
        if statuses:
            status[key] = statuses
    conditions = [
        _condition("Ready", False, "PodFailed"),
        _condition("ContainersReady", False, "PodFailed"),
        _condition("DisruptionTarget", True, "TerminationByKubelet", SHUTDOWN[1]),
    ]
    return status | {"conditions": merge_conditions(before.get("conditions") or [], conditions, now)}


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> Json:
    condition: Json = {"type": kind, "status": "True" if true else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def merge_conditions(before: list[Json], new: list[Json], now: str) -> list[Json]:
    """`new` with the times of the last change, and the conditions of others that were there before."""
    old = {c["type"]: c for c in before}
    merged = []
    for condition in new:
        was = old.pop(condition["type"], None)
        same = was is not None and was.get("status") == condition["status"]
        merged.append(
            {"lastProbeTime": None, "lastTransitionTime": was["lastTransitionTime"] if same and was else now}
            | condition
        )
    return merged + list(old.values())
