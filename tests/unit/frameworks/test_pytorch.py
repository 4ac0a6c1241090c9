"""PyTorch's environment, whole."""

from __future__ import annotations

import pytest
from jobs import SETTINGS, UID, job, world_of

from disttrain.api.plan import Settings
from disttrain.api.pods import Slot
from disttrain.frameworks import FRAMEWORKS, objects, world
from disttrain.frameworks.base import World

TORCH = FRAMEWORKS["pytorch"]
LEADER = "master-0.digits.team.svc"


def make(spec: dict[str, object], settings: Settings = SETTINGS, round_: int = 1) -> World:
    given = job(spec, workers=2)
    return world_of(given, round_, settings)


def test_one_process_a_pod() -> None:
    assert dict(TORCH.env(make({"master": {}}), Slot("worker", 1))) == {
        "MASTER_ADDR": LEADER,
        "MASTER_PORT": "29500",
        "NODE_RANK": "2",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "2",
        "PET_MASTER_ADDR": LEADER,
        "PET_MASTER_PORT": "29500",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def test_several_processes_a_pod_leave_a_plain_script_without_a_rank() -> None:
    assert dict(TORCH.env(make({"procsPerNode": 4}), Slot("worker", 1))) == {
        "MASTER_ADDR": "worker-0.digits.team.svc",
        "MASTER_PORT": "29500",
        "NODE_RANK": "1",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "worker-0.digits.team.svc",
        "PET_MASTER_PORT": "29500",
    }


def test_common_environment() -> None:
    made = make({"master": {}, "procsPerNode": 2, "checkpoints": {"claimName": "c"}})
    found = objects.environment(made, Slot("master", 0), TORCH)
    assert {name: value for name, value in found.items() if name.startswith("DISTTRAIN")} == {
        "DISTTRAIN_JOB": "digits",
        "DISTTRAIN_ROLE": "master",
        "DISTTRAIN_INDEX": "0",
        "DISTTRAIN_ROUND": "1",
        "DISTTRAIN_WORLD_SIZE": "6",
        "DISTTRAIN_LEADER": "1",
        "DISTTRAIN_CHECKPOINT_DIR": f"/checkpoints/{UID}",
    }


def test_ports_of_jobs_that_share_addresses_differ_by_job_and_round() -> None:
    shared = Settings(allot_ports=True)
    first, again, later = (make({}, shared, round_).first_port for round_ in (1, 1, 2))
    assert first == again
    assert first != later
    assert {first, later} <= set(world.PORTS)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["torchrun", "--nnodes=2", "train.py"], ["--nnodes"]),
        (["torchrun", "--node_rank", "0", "train.py"], ["--node_rank"]),
        (["sh", "-c", "torchrun --master-addr=x --standalone train.py"], ["--master-addr", "--standalone"]),
        (["torchrun", "--nnodes=$(PET_NNODES)", "--node-rank", "$(NODE_RANK)", "train.py"], []),
        (["torchrun", "train.py", "--nodes=3"], []),
    ],
)
def test_flags_that_win_over_the_environment_are_warned_of(command: list[str], flags: list[str]) -> None:
    given = job({"template": {"spec": {"containers": [{"name": "c", "image": "i", "command": command}]}}})
    found = TORCH.warnings(given)
    assert [words.split(" fixes ")[1].split(";")[0] for words in found] == flags
    assert all("leave it out" in words for words in found)
