"""`TF_CONFIG`, whole, and what a loss takes with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jobs import job, world_of

from disttrain.api.plan import Settings
from disttrain.api.pods import Slot
from disttrain.frameworks import FRAMEWORKS, World

TF = FRAMEWORKS["tensorflow"]


def make(settings: Settings | None = None, **spec: Any) -> World:
    return world_of(job({"framework": "tensorflow", **spec}, workers=2), 1, settings or Settings())


def config(world: World, slot: Slot) -> Any:
    return json.loads(TF.env(world, slot)["TF_CONFIG"])


WORKERS = ["worker-0.digits.team.svc:2222", "worker-1.digits.team.svc:2222"]


def test_workers_only() -> None:
    assert config(make(), Slot("worker", 1)) == {
        "cluster": {"worker": WORKERS},
        "task": {"type": "worker", "index": 1},
    }


def test_a_single_worker_has_one_too() -> None:
    alone = world_of(job({"framework": "tensorflow"}, workers=1))
    assert config(alone, Slot("worker", 0))["cluster"] == {"worker": WORKERS[:1]}


def test_the_evaluator_is_in_nobodys_cluster() -> None:
    world = make(chief={}, ps={"replicas": 1}, evaluator={})
    cluster = {"chief": ["chief-0.digits.team.svc:2222"], "worker": WORKERS, "ps": ["ps-0.digits.team.svc:2222"]}
    assert config(world, Slot("ps", 0)) == {"cluster": cluster, "task": {"type": "ps", "index": 0}}
    assert config(world, Slot("evaluator", 0)) == {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}


def test_pods_that_share_addresses_have_ports_of_their_own() -> None:
    world = make(Settings(allot_ports=True), chief={}, ps={"replicas": 1})
    entries = [entry for listed in config(world, Slot("ps", 0))["cluster"].values() for entry in listed]
    ports = {int(entry.rsplit(":", 1)[1]) for entry in entries}
    assert len(ports) == 4
    assert all(TF.ports(world, slot) == [world.port(slot)] for slot in world.slots)


@pytest.mark.parametrize(
    ("spec", "lost", "restart"),
    [
        ({"chief": {}}, "worker-1", {"chief-0", "worker-0", "worker-1"}),
        ({"chief": {}, "evaluator": {}}, "worker-1", {"chief-0", "worker-0", "worker-1"}),
        ({"chief": {}, "evaluator": {}}, "evaluator-0", {"evaluator-0"}),
        ({"chief": {}, "ps": {"replicas": 2}}, "worker-1", {"worker-1"}),
        ({"chief": {}, "ps": {"replicas": 2}}, "ps-1", {"ps-1", "chief-0"}),
        ({"chief": {}, "ps": {"replicas": 2}}, "chief-0", {"chief-0"}),
        ({"ps": {"replicas": 1}, "evaluator": {}}, "worker-1", {"worker-0", "worker-1", "ps-0"}),
        ({"chief": {"replicas": 0}, "ps": {"replicas": 1}}, "ps-0", {"worker-0", "worker-1", "ps-0"}),
    ],
)
def test_what_restarts(spec: dict[str, Any], lost: str, restart: set[str]) -> None:
    world = make(**spec)
    role, number = lost.rsplit("-", 1)
    found = TF.restarts(world.job, Slot(role, int(number)), world.slots)
    assert {str(slot) for slot in found} == restart


def test_world_size_counts_who_trains() -> None:
    assert make(chief={}, evaluator={}).size == 3
    assert make(chief={}, ps={"replicas": 2}, evaluator={}).size == 2


@pytest.mark.parametrize(
    ("spec", "endless"),
    [
        ({"chief": {}, "evaluator": {}}, {"ps"}),
        ({"chief": {}, "ps": {"replicas": 1}, "evaluator": {}}, {"ps", "worker"}),
        ({"ps": {"replicas": 1}}, {"ps"}),
    ],
)
def test_who_never_ends(spec: dict[str, Any], endless: set[str]) -> None:
    assert set(TF.endless(make(**spec).job)) == endless
