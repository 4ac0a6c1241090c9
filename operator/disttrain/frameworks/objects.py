"""The objects that a job needs, the same for every framework. Pure functions of the job; nothing of the template that
the user wrote is changed without a reason that stands here."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ..api import names
from ..api.constants import (
    API_VERSION,
    ENV_CHECKPOINT_DIR,
    ENV_INDEX,
    ENV_JOB,
    ENV_LEADER,
    ENV_RESUME_FROM,
    ENV_ROLE,
    ENV_ROUND,
    ENV_WORLD_SIZE,
    KIND,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_LEADER,
    LABEL_LIVE,
    LABEL_ROLE,
    LABEL_ROUND,
)
from ..api.plan import Manifest
from ..api.pods import Slot
from ..api.types import Job
from .base import Framework, World

CHECKPOINTS_VOLUME = "disttrain-checkpoints"
SHARED_MEMORY_VOLUME = "disttrain-shm"
NDOTS = 5
"""Kubernetes' default; fewer, and musl does not resolve `worker-0.job.namespace.svc` through the search list."""
LOST_NODE_SECONDS = 30
"""How long a pod stays bound to a node that went silent (Kubernetes' default is 300: five minutes of a stopped job)."""


def owner(job: Job) -> list[dict[str, Any]]:
    """The owner reference of all that we make: deleting the job collects it, with no finalizer.

    `blockOwnerDeletion` is false: true needs rights on the job's finalizers that many clusters do not give.
    """
    return [
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def service(job: Job) -> Manifest:
    """The headless Service behind the pods' names. It selects the uid: pods of a deleted job are nobody's peers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service(job.metadata.name),
            "namespace": job.metadata.namespace,
            "labels": {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid},
            "ownerReferences": owner(job),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_JOB_UID: job.metadata.uid, LABEL_LIVE: "true"},
        },
    }


def template(job: Job, role: str) -> dict[str, Any]:
    """The template that a role's pods are made from."""
    written = job.role(role)
    return (written.template if written else None) or job.spec.template or {}


def checkpoint_folders(job: Job) -> dict[str, str]:
    """Where this job's pods write checkpoints, and where they read those of the run that they continue.

    Each job writes a folder of its own: rounds, by which an older writer gives way to a newer, are counted by job.
    """
    place = job.spec.checkpoints
    if place is None:
        return {}
    root = place.mount_path.rstrip("/")
    found = {ENV_CHECKPOINT_DIR: f"{root}/{job.metadata.uid}"}
    if place.resume_from:
        found[ENV_RESUME_FROM] = f"{root}/{place.resume_from}"
    return found


def environment(world: World, slot: Slot, framework: Framework) -> dict[str, str]:
    """All that the operator sets in every container."""
    found = {
        ENV_JOB: world.job.metadata.name,
        ENV_ROLE: slot.role,
        ENV_INDEX: str(slot.number),
        ENV_ROUND: str(world.rounds[slot]),
        ENV_WORLD_SIZE: str(world.size),
        ENV_LEADER: "1" if slot == world.leader else "0",
    }
    return {**found, **checkpoint_folders(world.job), **framework.env(world, slot)}


def pod(world: World, slot: Slot, framework: Framework, avoid: Sequence[str] = ()) -> Manifest:
    """The pod of a slot, with a preference against the nodes to avoid."""
    job = world.job
    draft = copy.deepcopy(template(job, slot.role))
    meta, spec = draft.get("metadata") or {}, draft.get("spec") or {}
    labels = {
        **(meta.get("labels") or {}),
        LABEL_JOB: job.metadata.name,
        LABEL_JOB_UID: job.metadata.uid,
        LABEL_ROLE: slot.role,
        LABEL_INDEX: str(slot.number),
        LABEL_ROUND: str(world.rounds[slot]),
        LABEL_LIVE: "true",
    }
    if slot == world.leader:
        labels[LABEL_LEADER] = "true"
    metadata = {
        "name": names.pod(job.metadata.name, slot.role, slot.number, world.rounds[slot]),
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": owner(job),
    }
    if meta.get("annotations"):
        metadata["annotations"] = meta["annotations"]
    spec["restartPolicy"] = "Never"
    spec["hostname"] = world.hostname(slot)
    spec["subdomain"] = names.service(job.metadata.name)
    spec.setdefault("enableServiceLinks", False)  # an environment that grows with the namespace's Services slows starts
    if job.spec.network == "Host":
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    _dns(spec)
    _tolerations(spec)
    _avoid(spec, avoid)
    containers = spec.get("containers") or []
    if containers:
        # A failure's last words then reach the pod's status, also where nothing wrote a termination message.
        containers[0].setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        _ports(containers[0], framework.ports(world, slot), host=job.spec.network == "Host")
    _environment(spec, environment(world, slot, framework), _defaults(world, slot, framework))
    _shared_memory(spec, job.spec.shared_memory)
    _checkpoints(spec, job)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": framework.complete(world, slot, spec)}


def _all_containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _defaults(world: World, slot: Slot, framework: Framework) -> dict[str, str]:
    """Environment that the template may set otherwise."""
    found = {"PYTHONUNBUFFERED": "1"}  # else progress and last words stay in a buffer that a kill throws away
    found |= framework.defaults(world, slot)
    if world.job.spec.debug:
        found |= {"PYTHONFAULTHANDLER": "1", **framework.debug_env()}
    return found


def _environment(spec: dict[str, Any], ours: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Puts our names first, so that the template's own values may refer to them as `$(RANK)`."""
    for container in _all_containers(spec):
        theirs = container.get("env") or []
        written = {entry.get("name") for entry in theirs}
        added = {**ours, **{name: value for name, value in defaults.items() if name not in written}}
        container["env"] = [{"name": name, "value": value} for name, value in added.items()] + theirs


def _ports(container: dict[str, Any], ports: Any, host: bool) -> None:
    """Declares ports; with the node's network also as host ports, so that the scheduler keeps clashing pods apart."""
    if host and ports:
        declared = container.get("ports") or []
        container["ports"] = declared + [{"containerPort": port, "hostPort": port} for port in ports]


def _dns(spec: dict[str, Any]) -> None:
    options = (spec.get("dnsConfig") or {}).get("options") or []
    for option in options:
        value = option.get("value") or "" if option.get("name") == "ndots" else ""
        if value.isdigit() and int(value) < NDOTS:
            option["value"] = str(NDOTS)


def _tolerations(spec: dict[str, Any]) -> None:
    if not spec.get("tolerations"):
        spec["tolerations"] = [
            {
                "key": f"node.kubernetes.io/{trouble}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": LOST_NODE_SECONDS,
            }
            for trouble in ("not-ready", "unreachable")
        ]


def _avoid(spec: dict[str, Any], nodes: Sequence[str]) -> None:
    """A preference, not a must: a bad node is better than none."""
    if not nodes:
        return
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    preferred = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    # One value a requirement is all that the API server takes of a field; those of one term hold together.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    preferred.append({"weight": 100, "preference": {"matchFields": fields}})


def _shared_memory(spec: dict[str, Any], size: str) -> None:
    """A `/dev/shm` larger than the container runtime's 64 MiB, which data loaders and NCCL overrun (Bus error)."""
    containers = spec.get("containers") or []
    mine = [c for c in containers if not any(m.get("mountPath") == "/dev/shm" for m in c.get("volumeMounts") or [])]
    if mine:
        memory: dict[str, str] = {"medium": "Memory"}
        if size != "auto":
            memory["sizeLimit"] = size
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": SHARED_MEMORY_VOLUME, "emptyDir": memory}]
    for container in mine:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [*mounts, {"name": SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"}]


def _checkpoints(spec: dict[str, Any], job: Job) -> None:
    place = job.spec.checkpoints
    if place is None:
        return
    source = place.volume if place.volume else {"persistentVolumeClaim": {"claimName": place.claim_name}}
    spec["volumes"] = [*(spec.get("volumes") or []), {**source, "name": CHECKPOINTS_VOLUME}]
    mount = {"name": CHECKPOINTS_VOLUME, "mountPath": place.mount_path}
    if place.sub_path:
        mount["subPath"] = place.sub_path
    for container in _all_containers(spec):
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), dict(mount)]
