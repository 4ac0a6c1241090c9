"""How many training processes a pod runs: `procsPerNode: auto` counts the accelerators that it asks for."""

from __future__ import annotations

import re
from typing import Any

from ..api.types import Spec

ACCELERATORS: tuple[tuple[str, str], ...] = (
    (r"nvidia\.com/gpu(\.shared)?", "NVIDIA GPU"),
    (r"nvidia\.com/mig-.+", "NVIDIA MIG slice"),
    (r"amd\.com/gpu", "AMD GPU"),
    (r"gpu\.intel\.com/(i915|xe)", "Intel GPU"),
    (r"habana\.ai/gaudi", "Intel Gaudi"),
    (r"aws\.amazon\.com/neuron(device|core)?", "AWS Neuron"),
    (r"google\.com/tpu", "Google TPU"),
    (r"huawei\.com/[Aa]scend.*", "Huawei Ascend"),
)
"""Resource names, as patterns, of which each unit gets one process."""

NOT_ACCELERATORS = re.compile(
    r"(rdma|openshift\.io|k8s\.cni\.cncf\.io|smarter-devices|devices\.kubevirt\.io|networking\.gke\.io)/.*"
    r"|vpc\.amazonaws\.com/.*|nvidia\.com/(hostdev|rdma).*|mellanox\.com/.*|intel\.com/(sriov|qat|sgx).*"
)
"""Extended resources that are networks or other devices: they say nothing of the number of processes."""

_KNOWN = [re.compile(pattern) for pattern, _ in ACCELERATORS]


class Undecided(ValueError):
    """`auto` cannot tell the number; the message says why and what to write."""


def _amount(name: str, value: Any) -> int:
    if (isinstance(value, int) and value >= 0) or (isinstance(value, str) and value.isdigit()):
        return int(value)
    raise Undecided(f"resource {name} asks for {value!r}, which is not a whole number; set procsPerNode to a number")


def accelerators(container: dict[str, Any]) -> list[str]:
    """The accelerators that a container asks for, by resource name."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return [name for name in asked if any(pattern.fullmatch(name) for pattern in _KNOWN)]


def without_accelerators(container: dict[str, Any]) -> None:
    """Makes a container ask for none of them."""
    for name in accelerators(container):
        for asked in ("requests", "limits"):
            (container["resources"].get(asked) or {}).pop(name, None)


def processes(spec: Spec, template: dict[str, Any]) -> int:
    """Training processes in a pod, never the host's CPU count. Raises Undecided where `auto` cannot tell."""
    if spec.procs_per_node != "auto":
        return spec.procs_per_node
    pod = template.get("spec") or {}
    main = (pod.get("containers") or [{}])[0]
    resources = main.get("resources") or {}
    if resources.get("claims") or pod.get("resourceClaims"):
        raise Undecided(
            "procsPerNode: auto cannot count devices of resourceClaims; set procsPerNode to the number of training "
            "processes a pod"
        )
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    count = 0
    for name, value in asked.items():
        if any(pattern.fullmatch(name) for pattern in _KNOWN):
            count += _amount(name, value)
        elif "/" in name and not re.search(r"(^|\.)kubernetes\.io/", name) and not NOT_ACCELERATORS.fullmatch(name):
            raise Undecided(
                f"procsPerNode: auto does not know whether resource {name} is an accelerator; set procsPerNode to the "
                "number of training processes a pod"
            )
    return max(1, count)
