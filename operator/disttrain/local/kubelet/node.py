"""What all pods of the machine share."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from disttrain.local.client import Client
from disttrain.local.kubelet import quantity
from disttrain.local.kubelet.hosts import Addresses
from disttrain.local.kubelet.sandbox import Zygote

Json = dict[str, Any]
HOST = "127.0.0.1"
GPU = "nvidia.com/gpu"
_ORDINARY = ("cpu", "memory", "ephemeral-storage")  # as much as the machine has, for every pod: it is no scheduler


@dataclass(frozen=True)
class Options:
    """How the kubelet runs pods."""

    python: Path | None = None
    """An interpreter whose folder comes first in every container's PATH."""
    maps: Mapping[str, Path] = field(default_factory=dict)
    """Absolute path in the container -> path of this machine that is to be found there (`--map`)."""
    cpu: bool = False
    """Run pods that ask for accelerators without them."""
    workdir: Path = Path("/")
    """The working directory of a container that names none (its image's is not known here)."""
    isolation: Literal["auto", "mapping"] = "auto"
    """`mapping`: no namespaces, even where the kernel has them."""
    backoff: float = 10.0
    """Seconds before a container's second restart; doubles up to 30 times as much."""


@dataclass
class Node:
    """The machine as pods see it. `changed` is set, and made anew, whenever a ConfigMap or Secret changes."""

    client: Client
    zygote: Zygote
    folder: Path
    options: Options
    capacity: dict[str, str]
    config: Callable[[str, str, str], Json | None]
    hosts_changed: Callable[[], None]
    pods_of_job: Callable[[Json], int]
    addresses: Addresses = field(default_factory=Addresses)
    name: str = field(default_factory=lambda: node_name())
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gpus_used: dict[int, str] = field(default_factory=dict)
    """Index of a GPU -> uid of the pod that has it."""

    @property
    def isolated(self) -> bool:
        return self.zygote.mode != "plain"

    @property
    def cores(self) -> int:
        return int(self.capacity["cpu"])

    def lacking(self, pod: Json) -> str:
        """Why there is no place for the pod, "" if there is one."""
        if self.options.cpu:
            return ""
        for name, count in extended_resources(pod).items():
            offered = int(self.capacity.get(name, "0"))
            free = offered - len(self.gpus_used) if name == GPU else offered
            if count > free:
                words = f"0/1 nodes are available: 1 Insufficient {name}. {count} asked for, this machine has {offered}"
                words += f" of which {free} are free" if offered else ""
                return words + ". With --cpu the job runs here without accelerators."
        return ""

    def take_gpus(self, pod: Json) -> None:
        """Give the pod the GPUs it asks for; `lacking` said that there are enough."""
        wanted = 0 if self.options.cpu else extended_resources(pod).get(GPU, 0)
        free = [i for i in range(int(self.capacity.get(GPU, "0"))) if i not in self.gpus_used]
        for index in free[:wanted]:
            self.gpus_used[index] = pod["metadata"]["uid"]

    def gpus_of(self, uid: str) -> list[int]:
        return sorted(index for index, owner in self.gpus_used.items() if owner == uid)

    def release_gpus(self, uid: str) -> None:
        for index in self.gpus_of(uid):
            del self.gpus_used[index]


def node_name() -> str:
    """The machine's name as a Kubernetes name."""
    return re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.") or "localhost"


def capacity() -> dict[str, str]:
    """What this machine has, as quantities."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {"cpu": str(cores), "memory": f"{memory // 1024}Ki", "pods": "1000"}
    gpus = sum(1 for entry in Path("/dev").glob("nvidia[0-9]*"))
    return found | ({GPU: str(gpus)} if gpus else {})


def extended_resources(pod: Json) -> dict[str, int]:
    """Devices that a pod asks for: the sum over its containers, or the most that an init container takes."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, count in _devices(container).items():
            total[name] = total.get(name, 0) + count
    for container in pod["spec"].get("initContainers") or []:
        for name, count in _devices(container).items():
            total[name] = max(total.get(name, 0), count)
    return {name: count for name, count in total.items() if count}


def _devices(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {
        name: int(quantity.parse(value))
        for name, value in asked.items()
        if name not in _ORDINARY and not name.startswith("hugepages-")
    }


def manifest(node: Node, now: str) -> Json:
    """The Node object."""
    info = {
        "operatingSystem": platform.system().lower(),
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "kernelVersion": platform.release(),
        "osImage": platform.platform(),
        "containerRuntimeVersion": f"disttrain-local://{node.zygote.mode}",
        "kubeletVersion": "v1.34.0",
        "kubeProxyVersion": "",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": info["operatingSystem"],
                "kubernetes.io/arch": info["architecture"],
            },
        },
        "spec": {},
        "status": {
            "capacity": node.capacity,
            "allocatable": node.capacity,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": node.name}],
            "nodeInfo": info,
        },
    }
