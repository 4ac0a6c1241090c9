"""Manifests for the tests, from the least that a user writes."""

from __future__ import annotations

from typing import Any

from disttrain.api.constants import API_VERSION, KIND

Manifest = dict[str, Any]


def template(*, init: list[Manifest] | None = None, pod: Manifest | None = None, **container: Any) -> Manifest:
    """A pod template with one container; keywords go into the container, `pod` into the pod's spec."""
    spec: Manifest = {"containers": [{"name": "train", "image": "disttrain/pytorch:0.1"} | container]}
    if init is not None:
        spec["initContainers"] = init
    return {"spec": spec | (pod or {})}


def job(name: str = "digits", **spec: Any) -> Manifest:
    """A job; keywords are fields of its spec, None takes a field out."""
    whole = {"framework": "pytorch", "template": template()} | spec
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }
