"""Jobs and pods for the tests of the core, with as little said as the test needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from disttrain.api import names
from disttrain.api.plan import Plan, Refusal, Seen, Settings
from disttrain.api.pods import PodView
from disttrain.api.types import Job, Progress
from disttrain.frameworks import FRAMEWORKS, World, world
from disttrain.reconcile import reconcile

NOW = 1_800_000_000.0
UID = "11111111-2222-3333-4444-555555555555"
SETTINGS = Settings()


def job(spec: Mapping[str, Any] | None = None, *, workers: int = 3, name: str = "digits", **status: Any) -> Job:
    """A PyTorch job of `workers` workers; `spec` is merged over it, `status` is in wire form."""
    template = {"spec": {"containers": [{"name": "train", "image": "img", "command": ["torchrun", "train.py"]}]}}
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": UID, "generation": 1, "resourceVersion": "7"},
        "spec": {"framework": "pytorch", "worker": {"replicas": workers}, "template": template, **(spec or {})},
        "status": status,
    }
    return msgspec.convert(body, Job)


def pod(role: str = "worker", index: int = 0, round_: int = 1, **fields: Any) -> PodView:
    """A running pod of the job."""
    base: dict[str, Any] = {
        "namespace": "team",
        "name": names.pod("digits", role, index, round_),
        "uid": f"{role}-{index}-{round_}",
        "version": 10,
        "owner": UID,
        "job": "digits",
        "job_uid": UID,
        "role": role,
        "index": index,
        "round": round_,
        "live": True,
        "phase": "Running",
        "ready": True,
        "node": "n1",
    }
    return PodView(**{**base, **fields})


def failed(role: str = "worker", index: int = 0, round_: int = 1, code: int = 1, **fields: Any) -> PodView:
    """A pod whose main container ended with an exit code."""
    reason = fields.pop("exit_reason", "Error")
    return pod(role, index, round_, phase="Failed", ready=False, exit_code=code, exit_reason=reason, **fields)


def done(role: str = "worker", index: int = 0, round_: int = 1, **fields: Any) -> PodView:
    """A pod that ended with success."""
    return pod(role, index, round_, phase="Succeeded", ready=False, exit_code=0, **fields)


def plan(
    given: Job,
    *pods: PodView,
    now: float = NOW,
    refusal: Refusal | None = None,
    progress: Progress | None = None,
    absent: Mapping[str, int] | None = None,
) -> Plan:
    """One pass of the core."""
    seen = Seen(pods=pods, refusal=refusal, progress=progress, absent=absent or {})
    return reconcile(given, seen, now, SETTINGS)


def world_of(given: Job, round_: int = 1, settings: Settings = SETTINGS) -> World:
    """The world that a job's spec asks for."""
    framework = FRAMEWORKS[given.spec.framework]
    places = world.slots(world.wanted(given, framework), framework)
    return world.build(given, places, dict.fromkeys(places, round_), framework, settings)


def settle(given: Job, *pods: PodView, now: float = NOW) -> tuple[Job, Plan]:
    """Passes of the core, each commit written, up to the plan that acts."""
    for _ in range(5):
        found = plan(given, *pods, now=now)
        if found.commit is None:
            return given, found
        given = structs.replace(given, status=found.commit)
    raise AssertionError("the core commits without end")


def started(spec: Mapping[str, Any] | None = None, *, workers: int = 3, now: float = NOW) -> Job:
    """A job whose first round runs in full."""
    given, first = settle(job(spec, workers=workers), now=now)
    pods = [
        pod(
            made.manifest["metadata"]["labels"]["disttrain.dev/role"],
            int(made.manifest["metadata"]["labels"]["disttrain.dev/index"]),
        )
        for made in first.create
    ]
    found = plan(given, *pods, now=now)
    assert found.status is not None
    return structs.replace(given, status=found.status)
