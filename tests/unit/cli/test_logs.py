from __future__ import annotations

from typing import Any

import pytest

from disttrain.cli.console import CliError
from disttrain.cli.logs import choose, ranks

JOB = {"metadata": {"name": "digits"}, "status": {"state": "Running"}}


def pod(role: str, index: int, node: int, *, procs: str = "1", round_: int = 1, leader: bool = False) -> dict[str, Any]:
    labels = {"disttrain.dev/role": role, "disttrain.dev/index": str(index), "disttrain.dev/round": str(round_)}
    if leader:
        labels["disttrain.dev/leader"] = "true"
    env = [{"name": "NODE_RANK", "value": str(node)}, {"name": "PET_NPROC_PER_NODE", "value": procs}]
    name = f"digits-{role}-{index}" + (f"-r{round_}" if round_ > 1 else "")
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "train", "env": env}]}}


PODS = [
    pod("master", 0, 0, leader=True),
    pod("worker", 0, 1),
    pod("worker", 1, 2, round_=2),
    pod("worker", 1, 2),  # its successor is there already
]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "digits-master-0"),
        ({"rank": 0}, "digits-master-0"),
        ({"rank": 2}, "digits-worker-1-r2"),
        ({"role": "worker", "index": 1}, "digits-worker-1-r2"),
        ({"role": "worker"}, "digits-worker-0"),
        ({"index": 0}, "digits-worker-0"),
        ({"role": "master"}, "digits-master-0"),
    ],
)
def test_the_pod_that_is_meant(asked: dict[str, Any], name: str) -> None:
    assert choose(JOB, PODS, **asked)["metadata"]["name"] == name


def test_several_processes_a_pod() -> None:
    pods = [pod("worker", 0, 0, procs="8", leader=True), pod("worker", 1, 1, procs="8")]
    assert ranks(pods[1]) == range(8, 16)
    assert choose(JOB, pods, rank=9)["metadata"]["name"] == "digits-worker-1"
    with pytest.raises(CliError, match=r"no pod of rank 16; it has: .*worker-1 \(ranks 8 to 15\)"):
        choose(JOB, pods, rank=16)


def test_pods_that_are_not_there() -> None:
    with pytest.raises(CliError, match="job digits is Running and has no pods"):
        choose(JOB, [])
    with pytest.raises(CliError, match=r"has no pod worker-7; it has: master-0 \(rank 0\), worker-0 \(rank 1\)"):
        choose(JOB, PODS[:2], index=7)
    with pytest.raises(CliError, match="has no pod that leads; it has: worker-0"):
        choose(JOB, PODS[1:2])


def test_ranks_by_place_where_no_environment_tells() -> None:
    pods = [pod("worker", 1, 0), pod("chief", 0, 0), pod("ps", 0, 0), pod("worker", 0, 0)]
    for one in pods:
        one["spec"]["containers"][0]["env"] = []
        assert list(ranks(one)) == []
    job = {**JOB, "status": {"state": "Running", "worldSize": 6}}
    names = [choose(job, pods, rank=rank)["metadata"]["name"] for rank in range(6)]
    assert names == ["digits-chief-0"] * 2 + ["digits-worker-0"] * 2 + ["digits-worker-1"] * 2
    with pytest.raises(CliError, match=r"no pod of rank 6; it has: chief-0 \(ranks 0 to 1\), ps-0, worker-0"):
        choose(job, pods, rank=6)
