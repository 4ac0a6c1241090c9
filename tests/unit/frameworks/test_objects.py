"""Pods and Services, by whole-dict equality."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import UID, job, world_of

from disttrain.api.pods import Slot
from disttrain.frameworks import FRAMEWORKS, objects

TORCH = FRAMEWORKS["pytorch"]
FIRST = Slot("worker", 0)
OWNER = {
    "apiVersion": "disttrain.dev/v1alpha1",
    "kind": "DistTrainJob",
    "name": "digits",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": False,
}


def make(spec: dict[str, Any], slot: Slot = FIRST, round_: int = 1, workers: int = 1) -> dict[str, Any]:
    given = job(spec, workers=workers)
    built = world_of(given, round_)
    return objects.pod(built, slot, TORCH)


def with_spec(**spec: Any) -> dict[str, Any]:
    container = {"name": "train", "image": "img", **spec.pop("container", {})}
    return {"template": {"spec": {"containers": [container], **spec}}}


def test_service() -> None:
    assert objects.service(job()) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "digits",
            "namespace": "team",
            "labels": {"disttrain.dev/job": "digits", "disttrain.dev/job-uid": UID},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"disttrain.dev/job-uid": UID, "disttrain.dev/live": "true"},
        },
    }


def test_pod() -> None:
    env = {
        "DISTTRAIN_JOB": "digits",
        "DISTTRAIN_ROLE": "worker",
        "DISTTRAIN_INDEX": "0",
        "DISTTRAIN_ROUND": "3",
        "DISTTRAIN_WORLD_SIZE": "1",
        "DISTTRAIN_LEADER": "1",
        "MASTER_ADDR": "worker-0.digits.team.svc",
        "MASTER_PORT": "29500",
        "NODE_RANK": "0",
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "worker-0.digits.team.svc",
        "PET_MASTER_PORT": "29500",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    assert make({}, round_=3) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-worker-0-r3",
            "namespace": "team",
            "labels": {
                "disttrain.dev/job": "digits",
                "disttrain.dev/job-uid": UID,
                "disttrain.dev/role": "worker",
                "disttrain.dev/index": "0",
                "disttrain.dev/round": "3",
                "disttrain.dev/live": "true",
                "disttrain.dev/leader": "true",
            },
            "ownerReferences": [OWNER],
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": "worker-0",
            "subdomain": "digits",
            "enableServiceLinks": False,
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{trouble}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 30,
                }
                for trouble in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "train",
                    "image": "img",
                    "command": ["torchrun", "train.py"],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                    "volumeMounts": [{"name": "disttrain-shm", "mountPath": "/dev/shm"}],
                }
            ],
            "volumes": [{"name": "disttrain-shm", "emptyDir": {"medium": "Memory"}}],
        },
    }


def test_the_template_is_left_as_it_was() -> None:
    given = job(with_spec(container={"env": [{"name": "A", "value": "1"}]}))
    before = repr(given)
    built = world_of(given, 1)
    objects.pod(built, Slot("worker", 0), TORCH)
    assert repr(given) == before


def test_ours_come_first_so_that_theirs_can_refer_to_them() -> None:
    spec = with_spec(
        container={"env": [{"name": "OUT", "value": "/out/$(RANK)"}, {"name": "PYTHONUNBUFFERED", "value": "0"}]}
    )
    names = [entry["name"] for entry in make(spec)["spec"]["containers"][0]["env"]]
    assert names[-2:] == ["OUT", "PYTHONUNBUFFERED"]
    assert names.count("PYTHONUNBUFFERED") == 1


def test_init_containers_find_their_peers_too() -> None:
    found = make(with_spec(initContainers=[{"name": "wait", "image": "img"}]))["spec"]["initContainers"][0]
    assert {"name": "MASTER_ADDR", "value": "worker-0.digits.team.svc"} in found["env"]


def test_metadata_of_the_template_stays() -> None:
    template = with_spec()["template"] | {"metadata": {"labels": {"team": "a"}, "annotations": {"x": "y"}}}
    found = make({"template": template})["metadata"]
    assert found["labels"]["team"] == "a"
    assert found["annotations"] == {"x": "y"}


@pytest.mark.parametrize(("lowered", "kept"), [("1", "5"), ("5", "5"), ("7", "7")])
def test_ndots(lowered: str, kept: str) -> None:
    found = make(with_spec(dnsConfig={"options": [{"name": "ndots", "value": lowered}]}))
    assert found["spec"]["dnsConfig"]["options"] == [{"name": "ndots", "value": kept}]


def test_own_tolerations_and_shared_memory_stay() -> None:
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    found = make(with_spec(tolerations=[{"key": "gpu"}], container={"volumeMounts": [mount]}))["spec"]
    assert found["tolerations"] == [{"key": "gpu"}]
    assert found["containers"][0]["volumeMounts"] == [mount]
    assert "volumes" not in found


def test_shared_memory_of_a_size() -> None:
    found = make({"sharedMemory": "8Gi"})["spec"]["volumes"]
    assert found == [{"name": "disttrain-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]


def test_checkpoints_and_another_runs_folder() -> None:
    spec = {"checkpoints": {"claimName": "c", "subPath": "a", "mountPath": "/ck/", "resumeFrom": "old-uid"}}
    found = make(spec)["spec"]
    assert found["volumes"][-1] == {"name": "disttrain-checkpoints", "persistentVolumeClaim": {"claimName": "c"}}
    container = found["containers"][0]
    assert container["volumeMounts"][-1] == {"name": "disttrain-checkpoints", "mountPath": "/ck/", "subPath": "a"}
    assert {"name": "DISTTRAIN_CHECKPOINT_DIR", "value": f"/ck/{UID}"} in container["env"]
    assert {"name": "DISTTRAIN_RESUME_FROM", "value": "/ck/old-uid"} in container["env"]


def test_host_network_declares_the_leaders_port() -> None:
    leader = make({"network": "Host"}, workers=2)["spec"]
    (declared,) = leader["containers"][0]["ports"]
    assert declared["hostPort"] == declared["containerPort"]
    assert leader["hostNetwork"] is True
    assert leader["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert {"name": "MASTER_PORT", "value": str(declared["hostPort"])} in leader["containers"][0]["env"]
    assert "ports" not in make({"network": "Host"}, Slot("worker", 1), workers=2)["spec"]["containers"][0]


def test_debug() -> None:
    env = make({"debug": True})["spec"]["containers"][0]["env"]
    for entry in (
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "TORCH_DISTRIBUTED_DEBUG", "value": "DETAIL"},
        {"name": "TORCH_NCCL_DUMP_ON_TIMEOUT", "value": "1"},
        {"name": "PYTHONFAULTHANDLER", "value": "1"},
    ):
        assert entry in env
