"""MPI and Horovod: hosts, environment, SSH and pods, whole."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from jobs import UID, job, world_of

from disttrain.api.constants import ANNOTATION_GENERATE, GENERATE_SSH_KEYS, RESERVED_ENV
from disttrain.api.plan import Settings
from disttrain.api.pods import Slot
from disttrain.frameworks import FRAMEWORKS, World, objects
from disttrain.frameworks.ssh import SESSION, SSHD, WAIT_FOR_HOST

LAUNCHER, WORKER = Slot("launcher", 0), Slot("worker", 1)
GPUS = {"limits": {"nvidia.com/gpu": 4, "cpu": 8}, "requests": {"nvidia.com/gpu": 4}}


def make(framework: str = "mpi", *, round_: int = 1, workers: int = 2, host: bool = False, **spec: Any) -> World:
    return world_of(
        job({"framework": framework, **spec}, workers=workers, name="pi"), round_, Settings(allot_ports=host)
    )


def template(**pod: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "img", "command": ["mpirun", "x"], **pod.pop("main", {})}
    return {"spec": {"containers": [main], **pod}}


def config(world: World) -> dict[str, str]:
    data: dict[str, str] = FRAMEWORKS[world.job.spec.framework].objects(world)[0]["data"]
    return data


def pod(world: World, slot: Slot) -> dict[str, Any]:
    spec: dict[str, Any] = objects.pod(world, slot, FRAMEWORKS[world.job.spec.framework])["spec"]
    return spec


def env(world: World, slot: Slot) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod(world, slot)["containers"][0]["env"]}


def test_a_launcher_is_there_without_being_written() -> None:
    assert list(make().slots) == [LAUNCHER, Slot("worker", 0), WORKER]
    assert make().size == 2


@pytest.mark.parametrize(
    ("mpi", "hostfile"),
    [
        ({}, "worker-0.pi.team.svc slots=3\nworker-1.pi.team.svc slots=3\n"),
        ({"implementation": "Intel"}, "worker-0.pi.team.svc:3\nworker-1.pi.team.svc:3\n"),
        ({"implementation": "MPICH", "slotsPerWorker": 2}, "worker-0.pi.team.svc:2\nworker-1.pi.team.svc:2\n"),
        (
            {"launcherRunsTraining": True},
            "localhost slots=3\nworker-0.pi.team.svc slots=3\nworker-1.pi.team.svc slots=3\n",
        ),
    ],
)
def test_hostfile(mpi: dict[str, Any], hostfile: str) -> None:
    world = make(mpi=mpi, procsPerNode=3)
    assert config(world)["hostfile"] == hostfile
    assert world.size == sum(int(line[-1]) for line in hostfile.splitlines())


@pytest.mark.parametrize("implementation", ["OpenMPI", "Intel", "MPICH"])
def test_the_discovery_script_prints_hosts_and_slots(implementation: str, tmp_path: Any) -> None:
    files = config(make(mpi={"implementation": implementation}, procsPerNode=2))
    (tmp_path / "hostfile").write_text(files["hostfile"])
    script = files["discover_hosts.sh"].replace("/etc/disttrain/hostfile", str(tmp_path / "hostfile"))
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "worker-0.pi.team.svc:2\nworker-1.pi.team.svc:2\n"


def test_slots_are_the_accelerators_of_a_worker() -> None:
    world = make(template=template(main={"resources": GPUS}))
    assert config(world)["hostfile"].endswith("worker-1.pi.team.svc slots=4\n")
    assert (world.procs, world.size) == (4, 8)


COMMON = {
    "DISTTRAIN_JOB": "pi",
    "DISTTRAIN_ROUND": "1",
    "DISTTRAIN_WORLD_SIZE": "2",
    "DISTTRAIN_HOSTFILE": "/etc/disttrain/hostfile",
    "DISTTRAIN_DISCOVERY_SCRIPT": "/etc/disttrain/discover_hosts.sh",
    "DISTTRAIN_SLOTS": "1",
    "DISTTRAIN_SSH_PORT": "2222",
    "PYTHONUNBUFFERED": "1",
}
NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
AS_LAUNCHER = {"DISTTRAIN_ROLE": "launcher", "DISTTRAIN_INDEX": "0", "DISTTRAIN_LEADER": "1"}
AS_WORKER = {"DISTTRAIN_ROLE": "worker", "DISTTRAIN_INDEX": "1", "DISTTRAIN_LEADER": "0"}
OPEN_MPI = {
    "OMPI_MCA_orte_default_hostfile": "/etc/disttrain/hostfile",
    "OMPI_MCA_plm_rsh_args": "-F /etc/disttrain/ssh_config",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_prte_default_hostfile": "/etc/disttrain/hostfile",
    "PRTE_MCA_plm_ssh_args": "-F /etc/disttrain/ssh_config",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
}
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@pytest.mark.parametrize(
    ("spec", "slot", "expected"),
    [
        ({}, LAUNCHER, AS_LAUNCHER | OPEN_MPI | AS_ROOT | NO_GPU),
        ({}, WORKER, AS_WORKER | OPEN_MPI | AS_ROOT),
        ({"framework": "horovod"}, WORKER, AS_WORKER | OPEN_MPI | AS_ROOT),
        ({"template": template(securityContext={"runAsUser": 1000})}, WORKER, AS_WORKER | OPEN_MPI),
        (
            {"mpi": {"implementation": "Intel"}},
            WORKER,
            AS_WORKER
            | {
                "I_MPI_HYDRA_HOST_FILE": "/etc/disttrain/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP": "ssh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-F /etc/disttrain/ssh_config",
                "I_MPI_PERHOST": "1",
                "I_MPI_HYDRA_IFACE": "eth0",
            },
        ),
        (
            {"mpi": {"implementation": "MPICH"}},
            LAUNCHER,
            AS_LAUNCHER
            | NO_GPU
            | {
                "HYDRA_HOST_FILE": "/etc/disttrain/hostfile",
                "HYDRA_LAUNCHER": "ssh",
                "HYDRA_LAUNCHER_EXTRA_ARGS": "-F /etc/disttrain/ssh_config",
                "HYDRA_IFACE": "eth0",
            },
        ),
        (
            {"mpi": {"launcherRunsTraining": True}},
            LAUNCHER,
            AS_LAUNCHER | OPEN_MPI | AS_ROOT | {"DISTTRAIN_WORLD_SIZE": "3"},
        ),
    ],
)
def test_environment(spec: dict[str, Any], slot: Slot, expected: dict[str, str]) -> None:
    assert env(make(**{"framework": "mpi", **spec}), slot) == COMMON | expected


def test_with_shared_addresses_the_interface_is_left_to_others() -> None:
    assert "HYDRA_IFACE" not in env(make(host=True, mpi={"implementation": "MPICH"}), LAUNCHER)
    assert "HYDRA_IFACE" not in env(make(network="Host", mpi={"implementation": "MPICH"}), LAUNCHER)


def test_names_that_must_agree_are_reserved() -> None:
    for implementation in ("OpenMPI", "Intel", "MPICH"):
        given = FRAMEWORKS["mpi"].env(make(mpi={"implementation": implementation}), WORKER)
        files = {name for name, value in given.items() if "/etc/disttrain" in value}
        assert files <= set(RESERVED_ENV)


def test_a_later_round_has_names_of_its_own() -> None:
    world = make(round_=3)
    assert config(world)["hostfile"] == "worker-0-r3.pi.team.svc slots=1\nworker-1-r3.pi.team.svc slots=1\n"
    assert pod(world, WORKER)["hostname"] == "worker-1-r3"
    hosts, keys = FRAMEWORKS["mpi"].objects(world)
    assert (hosts["kind"], hosts["metadata"]["name"]) == ("ConfigMap", "pi-hosts-r3")
    assert (keys["kind"], keys["metadata"]["name"]) == ("Secret", "pi-ssh")


def test_the_secret_asks_for_keys_and_has_none() -> None:
    assert FRAMEWORKS["mpi"].objects(make())[1] == {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": "pi-ssh",
            "namespace": "team",
            "labels": {"disttrain.dev/job": "pi", "disttrain.dev/job-uid": UID},
            "annotations": {ANNOTATION_GENERATE: GENERATE_SSH_KEYS},
            "ownerReferences": objects.owner(make().job),
        },
    }


def test_the_pod_of_a_worker() -> None:
    main = pod(make(), WORKER)["containers"][0]
    assert main["command"] == ["/bin/sh", "/etc/disttrain/sshd.sh"]
    assert main["readinessProbe"] == {"tcpSocket": {"port": 2222}, "periodSeconds": 10}
    assert main["startupProbe"] == {"tcpSocket": {"port": 2222}, "periodSeconds": 1, "failureThreshold": 300}
    mounts = {mount["mountPath"]: mount for mount in main["volumeMounts"]}
    assert mounts["/etc/disttrain"] == {"name": "disttrain", "mountPath": "/etc/disttrain", "readOnly": True}
    assert mounts["/etc/ssh/ssh_config.d"]["name"] == "disttrain-ssh-client"
    assert not any("subPath" in mount for mount in mounts.values())
    volumes = {volume["name"]: volume for volume in pod(make(), WORKER)["volumes"]}
    config_files, key_files = volumes["disttrain"]["projected"]["sources"]
    modes = {item["path"]: item["mode"] for item in config_files["configMap"]["items"]}
    assert modes["discover_hosts.sh"] == modes["sshd.sh"] == 0o555
    assert modes["hostfile"] == modes["ssh_config"] == 0o444
    assert set(modes) == set(config(make()))
    assert {item["path"]: item["mode"] for item in key_files["secret"]["items"]} == {
        "id_ed25519": 0o400,
        "ssh_host_ed25519_key": 0o400,
        "authorized_keys": 0o444,
        "known_hosts": 0o444,
    }


def test_the_pod_of_the_launcher() -> None:
    main = pod(make(), LAUNCHER)["containers"][0]
    assert main["command"] == ["torchrun", "train.py"]
    assert "readinessProbe" not in main
    assert {mount["mountPath"] for mount in main["volumeMounts"]} >= {"/etc/disttrain", "/etc/ssh/ssh_config.d"}


def test_a_worker_that_brings_a_command_keeps_it() -> None:
    world = make(worker={"replicas": 2, "template": template(main={"command": ["/usr/sbin/sshd", "-De"]})})
    main = pod(world, WORKER)["containers"][0]
    assert main["command"] == ["/usr/sbin/sshd", "-De"]
    assert "readinessProbe" not in main
    world = make(worker={"replicas": 2, "template": template(main={"command": None})})
    assert pod(world, WORKER)["containers"][0]["command"] == ["/bin/sh", "/etc/disttrain/sshd.sh"]


def test_a_readiness_probe_of_the_template_stays() -> None:
    probe = {"exec": {"command": ["true"]}}
    main = pod(make(template=template(main={"readinessProbe": probe})), WORKER)["containers"][0]
    assert main["readinessProbe"] == probe
    assert "startupProbe" not in main


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {}),
        ({"runAsUser": 0}, {"runAsUser": 0}),
        ({"runAsUser": 1000}, {"runAsUser": 1000, "fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}),
        (
            {"runAsUser": 7, "runAsGroup": 8},
            {"runAsUser": 7, "runAsGroup": 8, "fsGroup": 8, "fsGroupChangePolicy": "OnRootMismatch"},
        ),
        ({"runAsUser": 7, "fsGroup": 9}, {"runAsUser": 7, "fsGroup": 9}),
        ({"runAsNonRoot": True}, {"runAsNonRoot": True, "fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}),
    ],
)
def test_keys_are_shared_with_another_user(written: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = pod(make(template=template(**({"securityContext": written} if written else {}))), WORKER)
    assert spec.get("securityContext", {}) == expected


def test_only_trainers_hold_accelerators_of_a_shared_template() -> None:
    spec: dict[str, Any] = {"template": template(main={"resources": GPUS})}
    bare = {"limits": {"cpu": 8}, "requests": {}}
    assert pod(make(**spec), WORKER)["containers"][0]["resources"] == GPUS
    assert pod(make(**spec), LAUNCHER)["containers"][0]["resources"] == bare
    trains = make(**spec, mpi={"launcherRunsTraining": True})
    assert pod(trains, LAUNCHER)["containers"][0]["resources"] == GPUS
    own = make(launcher={"template": template(main={"resources": GPUS})}, template=template())
    assert pod(own, LAUNCHER)["containers"][0]["resources"] == GPUS
    assert "NVIDIA_VISIBLE_DEVICES" not in env(own, LAUNCHER)


def test_pods_that_share_addresses_have_ports_of_their_own() -> None:
    world = make(host=True)
    ports = [world.port(slot) for slot in world.slots]
    assert len(set(ports)) == 3
    text = config(world)["ssh_config"]
    for slot in world.slots[1:]:
        assert f"Host {world.address(slot)}\n    Port {world.port(slot)}\n" in text
        assert env(world, slot)["DISTTRAIN_SSH_PORT"] == str(world.port(slot))
    assert FRAMEWORKS["mpi"].ports(world, LAUNCHER) == []


def test_an_ssh_home_gets_the_configuration() -> None:
    spec = pod(make(mpi={"sshHome": "/home/me/"}), LAUNCHER)
    [mount] = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "disttrain-ssh-client"]
    assert mount["mountPath"] == "/home/me/.ssh"
    [volume] = [one for one in spec["volumes"] if one["name"] == "disttrain-ssh-client"]
    assert volume["configMap"]["items"] == [{"key": "ssh_config", "path": "config"}]


def test_all_restart_and_workers_are_not_waited_for() -> None:
    world = make()
    mpi = FRAMEWORKS["mpi"]
    assert list(mpi.restarts(world.job, WORKER, world.slots)) == list(world.slots)
    assert list(mpi.endless(world.job)) == ["worker"]
    assert list(mpi.late(world.job)) == ["launcher"]


def test_warnings() -> None:
    fixed = make(template=template(main={"command": ["mpirun", "-np", "4", "x"]}))
    [words] = FRAMEWORKS["mpi"].warnings(fixed.job)
    assert "fixes -np 4" in words
    assert "$(DISTTRAIN_WORLD_SIZE)" in words
    follows = make(template=template(main={"command": ["mpirun", "-np", "$(DISTTRAIN_WORLD_SIZE)", "x"]}))
    assert FRAMEWORKS["mpi"].warnings(follows.job) == []
    shared = make(template=template(securityContext={"fsGroup": 5}))
    assert all("ssh refuses root's key" in words for words in FRAMEWORKS["mpi"].warnings(shared.job))
    assert len(FRAMEWORKS["mpi"].warnings(shared.job)) == 2


@pytest.mark.parametrize("script", [SSHD, SESSION, WAIT_FOR_HOST])
def test_scripts_are_plain_sh(script: str) -> None:
    subprocess.run(["sh", "-n", "-c", script], check=True)
