"""What the API server refuses when a job is applied, in which words, and what it must take."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.jobs import Manifest, job, template
from api.servers import Answer, Api
from disttrain.api.constants import RESERVED_ENV
from disttrain.api.rules import rules
from disttrain.api.types import Job


@pytest.fixture
def no_jobs_left(api: Api) -> Iterator[None]:
    """Deletes what a test has applied."""
    yield
    api.must("delete", "dtj", "--all")


def refused(answer: Answer, path: str, *words: str) -> None:
    """The answer is a refusal that blames this path in these words."""
    assert not answer.ok, f"taken: {answer.text}"
    lines = [line for line in answer.text.splitlines() if re.search(rf"(\* |is invalid: ){re.escape(path)}: ", line)]
    assert lines, f"{path} is not blamed in: {answer.text}"
    for word in words:
        assert any(word in line for line in lines), f"{word!r} is missing in: {lines}"


def env(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "value": "1"} for name in names]


NOT_YET = "not in this version of DistTrainJob yet: "
RESERVED = " is set by the operator: leave it out. Its names are DISTTRAIN_JOB, "
IN = "spec.template.spec."

BAD: dict[str, tuple[Manifest, str, str]] = {
    # What is being trained
    "no framework": (job(framework=None), "spec.framework", "Required value"),
    "unknown framework": (job(framework="jax"), "spec.framework", 'Unsupported value: "jax"'),
    "framework in another case": (job(framework="PyTorch"), "spec.framework", 'Unsupported value: "PyTorch"'),
    "framework in other letters": (job(framework="рytorch"), "spec.framework", 'Unsupported value: "рytorch"'),
    "all workers that serve a chief": (
        job(framework="tensorflow", chief={}, ps={"replicas": 1}, success="AllWorkers"),
        "spec.success",
        "AllWorkers given, but beside a chief and parameter servers the workers serve until the chief has ended",
    ),
    "framework as a list": (job(framework=["pytorch"]), "spec.framework", "must be of type string"),
    # Names
    "name begins with a digit": (job("9lives"), "metadata.name", "9lives cannot be the name of a Service"),
    "name with a dot": (job("a.b"), "metadata.name", "use at most 63 of a-z, 0-9 and -, a letter first"),
    "name of 64 letters": (job("a" * 64), "metadata.name", "use at most 63"),
    "name in capitals": (job("Digits"), "metadata.name", 'Invalid value: "Digits"'),
    "name ends with a dash": (job("digits-"), "metadata.name", 'Invalid value: "digits-"'),
    "name in other letters": (job("ziffern-größe"), "metadata.name", 'Invalid value: "ziffern-größe"'),
    # Roles
    "ps for pytorch": (
        job(ps={"replicas": 1}),
        "spec.ps",
        "pytorch jobs have no ps: leave it out; their roles are master and worker",
    ),
    "chief for pytorch": (job(chief={}), "spec.chief", "pytorch jobs have no chief"),
    "launcher for pytorch": (job(launcher={}), "spec.launcher", "pytorch jobs have no launcher"),
    "evaluator for pytorch": (job(evaluator={}), "spec.evaluator", "pytorch jobs have no evaluator"),
    "master for tensorflow": (
        job(framework="tensorflow", master={}),
        "spec.master",
        "tensorflow jobs have no master: leave it out; their roles are chief, worker, ps and evaluator",
    ),
    "ps for mpi": (
        job(framework="mpi", ps={}),
        "spec.ps",
        "mpi jobs have no ps: leave it out; their roles are launcher",
    ),
    "two masters": (job(master={"replicas": 2}), "spec.master.replicas", "2 given, but a job has at most one master"),
    "mpi for pytorch": (job(mpi={}), "spec.mpi", "pytorch jobs have no use for it: leave it out; horovod and mpi have"),
    "no template for the launcher": (
        job(framework="mpi", template=None, worker={"template": template()}),
        "spec.launcher.template",
        "the launcher has no pod template",
    ),
    "workers of mpi that shall succeed": (
        job(framework="mpi", success="AllWorkers"),
        "spec.success",
        "AllWorkers given, but the workers of mpi jobs serve until the launcher has ended: leave it out",
    ),
    "another mpi": (
        job(framework="mpi", mpi={"implementation": "MVAPICH"}),
        "spec.mpi.implementation",
        'supported values: "Intel", "MPICH", "OpenMPI"',
    ),
    "odd ssh home": (
        job(framework="mpi", mpi={"sshHome": "mpiuser"}),
        "spec.mpi.sshHome",
        "mpiuser given: write an absolute path without a colon, such as /home/mpiuser",
    ),
    "hosts of one's own": (
        job(framework="mpi", template=template(env=env("OMPI_MCA_orte_default_hostfile"))),
        IN + "containers[0].env[0].name",
        f"OMPI_MCA_orte_default_hostfile{RESERVED}",
    ),
    "two launchers": (
        job(framework="mpi", launcher={"replicas": 2}),
        "spec.launcher.replicas",
        "2 given, but a job has one launcher: set it to 1 or leave it out",
    ),
    "no workers and no leader": (
        job(worker={"replicas": 0}),
        "spec.worker.replicas",
        "0 given, but only a job with a master (pytorch) or chief (tensorflow) of 1 replica can be without workers",
    ),
    "no workers and no master's pod": (
        job(worker={"replicas": 0}, master={"replicas": 0}),
        "spec.worker.replicas",
        "set it to 1 or more",
    ),
    "negative replicas": (job(worker={"replicas": -1}), "spec.worker.replicas", "greater than or equal to 0"),
    "too many replicas": (job(worker={"replicas": 10_001}), "spec.worker.replicas", "less than or equal to 10000"),
    "huge replicas": (job(worker={"replicas": 10**15}), "spec.worker.replicas", "less than or equal to 10000"),
    "half a replica": (job(worker={"replicas": 1.5}), "spec.worker.replicas", "must be of type integer"),
    "replicas as text": (job(worker={"replicas": "3"}), "spec.worker.replicas", "must be of type integer"),
    "role as a number": (job(worker=3), "spec.worker", "must be of type object"),
    # Templates
    "no template": (
        job(template=None),
        "spec.worker.template",
        "the worker has no pod template: write spec.template for all roles or spec.worker.template",
    ),
    "no template for the master": (
        job(template=None, master={}, worker={"template": template()}),
        "spec.master.template",
        "the master has no pod template",
    ),
    "template without spec": (job(template={"metadata": {}}), "spec.template.spec", "Required value"),
    "template without containers": (job(template={"spec": {}}), f"{IN}containers", "Required value"),
    "empty list of containers": (
        job(template={"spec": {"containers": []}}),
        f"{IN}containers",
        "should have at least 1 items",
    ),
    "65 containers": (
        job(template={"spec": {"containers": [{"name": f"c{number}"} for number in range(65)]}}),
        f"{IN}containers",
        "Too many: 65: must have at most 64 items",
    ),
    "container without a name": (
        job(template={"spec": {"containers": [{"image": "x"}]}}),
        f"{IN}containers[0].name",
        "Required value",
    ),
    "container with a name in other letters": (
        job(template=template(name="тренер")),
        f"{IN}containers[0].name",
        'Invalid value: "тренер"',
    ),
    "two containers of one name": (
        job(template={"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
        f"{IN}containers[1]",
        'Duplicate value: {"name":"a"}',
    ),
    "role's template without containers": (
        job(worker={"template": {"spec": {"containers": []}}}),
        "spec.worker.template.spec.containers",
        "should have at least 1 items",
    ),
    "restartPolicy Always": (
        job(template=template(pod={"restartPolicy": "Always"})),
        f"{IN}restartPolicy",
        "Always given, but the operator restarts pods, not the node: leave it out and say in spec.restart",
    ),
    "restartPolicy OnFailure of a role": (
        job(worker={"template": template(pod={"restartPolicy": "OnFailure"})}),
        "spec.worker.template.spec.restartPolicy",
        "OnFailure given",
    ),
    # Environment
    "reserved name": (
        job(template=template(env=env("SEED", "MASTER_ADDR"))),
        f"{IN}containers[0].env[1].name",
        f"MASTER_ADDR{RESERVED}",
    ),
    "reserved name in an init container": (
        job(template=template(init=[{"name": "data", "image": "x", "env": env("RANK")}])),
        f"{IN}initContainers[0].env[0].name",
        f"RANK{RESERVED}",
    ),
    "reserved name in a role's template": (
        job(worker={"template": template(env=env("PET_NNODES"))}),
        "spec.worker.template.spec.containers[0].env[0].name",
        f"PET_NNODES{RESERVED}",
    ),
    "reserved name in a role's init container": (
        job(master={"template": template(init=[{"name": "data", "env": env("DISTTRAIN_ROUND")}])}),
        "spec.master.template.spec.initContainers[0].env[0].name",
        f"DISTTRAIN_ROUND{RESERVED}",
    ),
    "variable without a name": (
        job(template=template(env=[{"value": "1"}])),
        f"{IN}containers[0].env[0].name",
        "Required value",
    ),
    "1025 variables": (
        job(template=template(env=env(*(f"V{number}" for number in range(1025))))),
        f"{IN}containers[0].env",
        "Too many: 1025: must have at most 1024 items",
    ),
    # Processes
    "no processes": (job(procsPerNode=0), "spec.procsPerNode", "0 given: write auto or a number from 1 to 1024"),
    "negative processes": (job(procsPerNode=-2), "spec.procsPerNode", "-2 given: write auto"),
    "too many processes": (job(procsPerNode=1025), "spec.procsPerNode", "1025 given: write auto"),
    "processes in quotes": (job(procsPerNode="4"), "spec.procsPerNode", "4 given: write auto or a number from 1 to"),
    "processes by another word": (job(procsPerNode="gpu"), "spec.procsPerNode", "gpu given: write auto or a number"),
    # Checkpoints
    "checkpoints nowhere": (
        job(checkpoints={"subPath": "a"}),
        "spec.checkpoints.claimName",
        "write the name of a PersistentVolumeClaim, or a volume in spec.checkpoints.volume",
    ),
    "checkpoints in two places": (
        job(checkpoints={"claimName": "data", "volume": {"emptyDir": {}}}),
        "spec.checkpoints.volume",
        "beside claimName, which is data: keep one of the two",
    ),
    "checkpoints in an empty volume": (
        job(checkpoints={"volume": {}}),
        "spec.checkpoints.volume",
        "should have at least 1 properties",
    ),
    "claim in other letters": (
        job(checkpoints={"claimName": "données"}),
        "spec.checkpoints.claimName",
        "données given: write the name of a PersistentVolumeClaim",
    ),
    "relative mount path": (
        job(checkpoints={"claimName": "data", "mountPath": "checkpoints"}),
        "spec.checkpoints.mountPath",
        "checkpoints given: write an absolute path without a colon, such as /checkpoints",
    ),
    "resume from a path": (
        job(checkpoints={"claimName": "data", "resumeFrom": "../other"}),
        "spec.checkpoints.resumeFrom",
        "../other given: write the uid of another job",
    ),
    # Other fields
    "negative limit": (job(restart={"limit": -1}), "spec.restart.limit", "greater than or equal to 0"),
    "unknown scope": (job(restart={"scope": "Node"}), "spec.restart.scope", 'Unsupported value: "Node"'),
    "unknown clean-up": (job(cleanPods="Never"), "spec.cleanPods", 'Unsupported value: "Never"'),
    "unknown success": (job(success="Chief"), "spec.success", 'supported values: "AllWorkers", "Leader"'),
    "unknown network": (job(network="host"), "spec.network", 'Unsupported value: "host"'),
    "grace of a week": (job(graceSeconds=604_800), "spec.graceSeconds", "less than or equal to 86400"),
    "odd size of shared memory": (job(sharedMemory="lots"), "spec.sharedMemory", "lots given: write auto or a size"),
    "no shared memory": (job(sharedMemory="0"), "spec.sharedMemory", "0 given: write auto or a size such as 8Gi"),
    "managed by nobody": (job(managedBy=""), "spec.managedBy", "should be at least 1 chars long"),
    "debug as text": (job(debug="yes"), "spec.debug", "must be of type boolean"),
}

LATER: dict[str, tuple[Any, str]] = {
    "elastic": ({"minReplicas": 1, "maxReplicas": 4}, "an edit of spec.worker.replicas restarts the job"),
    "captureLogs": (True, "kubectl logs reads them while spec.keepOnFailure keeps the pod"),
    "scheduling": ({"gang": True}, "schedulerName and priorityClassName may stand in the pod template"),
}
"""A value of every field that this version refuses, and what it says to do."""

UNKNOWN: dict[str, tuple[Manifest, str]] = {
    "in the spec": (job(wrokers=3), "spec.wrokers"),
    "in a role": (job(worker={"replica": 3}), "spec.worker.replica"),
    "of a role": (job(workers={"replicas": 3}), "spec.workers"),
    "in restart": (job(restart={"maxRestarts": 3}), "spec.restart.maxRestarts"),
    "beside a template's spec": (job(template=template() | {"containers": []}), "spec.template.containers"),
    "in checkpoints": (job(checkpoints={"claimName": "a", "path": "/x"}), "spec.checkpoints.path"),
}

CHANGES: dict[str, tuple[Manifest, str, str]] = {
    "framework": (
        {"framework": "mpi"},
        "spec.framework",
        "cannot change from pytorch to mpi: make a new job",
    ),
    "managedBy": (
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        "spec.managedBy",
        "cannot change from disttrain.dev/operator to kueue.x-k8s.io/multikueue: delete the job and make it again",
    ),
    "a second master": ({"master": {"replicas": 2}}, "spec.master.replicas", "at most one master"),
    "a role of others": ({"ps": {"replicas": 1}}, "spec.ps", "pytorch jobs have no ps"),
    "the last worker": ({"worker": {"replicas": 0}}, "spec.worker.replicas", "0 given, but only a job with a master"),
    "the template": ({"template": None}, "spec.worker.template", "the worker has no pod template"),
    "a reserved name": (
        {"template": template(env=env("WORLD_SIZE"))},
        "spec.template.spec.containers[0].env[0].name",
        f"WORLD_SIZE{RESERVED}",
    ),
}

GOOD: dict[str, Manifest] = {
    "the least": job(),
    "a master and two workers": job(master={}, worker={"replicas": 2}),
    "a master alone": job(master={}, worker={"replicas": 0}),
    "a master switched off": job(master={"replicas": 0}, worker={"replicas": 2}),
    "a template for each role": job(
        template=None, master={"template": template()}, worker={"replicas": 3, "template": template()}
    ),
    "a template for one role": job(worker={"template": template(image="other")}),
    "a role without pods needs no template": job(
        template=None, master={"template": template()}, worker={"replicas": 0}
    ),
    "the most workers": job(worker={"replicas": 10_000}),
    "a name of 63 letters": job("a" * 63),
    "a name of one letter": job("x"),
    "processes": job(procsPerNode=8),
    "one process by its word": job(procsPerNode="auto"),
    "a claim": job(checkpoints={"claimName": "data.v1", "subPath": "runs/ä", "mountPath": "/data/ck"}),
    "a volume": job(checkpoints={"volume": {"nfs": {"server": "x", "path": "/"}}, "resumeFrom": "7b0e-11"}),
    "no restarts": job(restart={"limit": 0, "scope": "Job"}),
    "shared memory": job(sharedMemory="1.5Gi"),
    "the host's network": job(network="Host", debug=True, success="AllWorkers", cleanPods="None"),
    "an mpi job": job(framework="mpi"),
    "all workers of a chief": job(framework="tensorflow", chief={}, success="AllWorkers"),
    "a tensorflow job with all roles": job(framework="tensorflow", chief={}, ps={"replicas": 2}, evaluator={}),
    "a horovod job with all of mpi": job(
        framework="horovod",
        launcher={"template": template()},
        mpi={
            "implementation": "MPICH",
            "slotsPerWorker": 2,
            "sshPort": 22,
            "sshHome": "/root",
            "launcherRunsTraining": True,
        },
    ),
    "another controller": job(managedBy="kueue.x-k8s.io/multikueue"),
    "later fields at their defaults": job(suspend=False, captureLogs=False),
    "nulls": job(worker=None) | {"spec": {**job()["spec"], "worker": None, "restart": None, "elastic": None}},
    "restartPolicy Never": job(template=template(pod={"restartPolicy": "Never"})),
    "environment of one's own": job(template=template(env=env("NCCL_DEBUG", "MASTER_ADDRESS", "größe", "rank"))),
    "every field of a pod": job(
        template={
            "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "größe 🚀"}},
            "spec": {
                "nodeSelector": {"gpu": "h100"},
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
                "containers": [
                    {
                        "name": "train",
                        "image": "x",
                        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "resources": {"limits": {"nvidia.com/gpu": 8}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    },
                    {"name": "sidecar", "image": "y", "restartPolicy": "Always"},
                ],
            },
        }
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(api: Api, name: str) -> None:
    manifest, path, words = BAD[name]
    refused(api.apply(manifest), path, words)


def test_no_later_field_is_forgotten() -> None:
    marked = {
        f"{rule.at}{rule.field}".removeprefix("spec.") for rule in rules() if str(rule.message).startswith(NOT_YET)
    }
    assert set(LATER) == marked


@pytest.mark.parametrize("name", LATER)
def test_later_fields_are_refused(api: Api, name: str) -> None:
    value, instead = LATER[name]
    *parents, last = name.split(".")
    spec: dict[str, Any] = {last: value}
    for parent in reversed(parents):
        spec = {parent: spec}
    refused(api.apply(job(**spec)), f"spec.{name}", f"{NOT_YET}leave it out", instead)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_field(api: Api, name: str) -> None:
    manifest, path = UNKNOWN[name]
    answer = api.apply(manifest)
    assert not answer.ok
    assert f'unknown field "{path}"' in answer.text


def test_every_reserved_name_is_refused(api: Api) -> None:
    answer = api.apply(job(template=template(env=env(*RESERVED_ENV))))
    for index, name in enumerate(RESERVED_ENV):
        refused(answer, f"spec.template.spec.containers[0].env[{index}].name", f"{name}{RESERVED}")
        assert name in answer.text.split("Its names are ")[1].split("\n")[0]


def test_no_spec(api: Api) -> None:
    manifest = job()
    del manifest["spec"]
    refused(api.apply(manifest), "spec", "Required value")


@pytest.mark.usefixtures("no_jobs_left")
@pytest.mark.parametrize("name", CHANGES)
def test_change_refused(api: Api, name: str) -> None:
    change, path, words = CHANGES[name]
    api.must("apply", "-f", "-", manifest=job())
    patch = msgspec.json.encode({"spec": change}).decode()
    refused(api.kubectl("patch", "dtj/digits", "--type=merge", "-p", patch), path, words)


@pytest.mark.usefixtures("no_jobs_left")
def test_scale(api: Api) -> None:
    api.must("apply", "-f", "-", manifest=job())
    assert api.get("dtj/digits", "--subresource=scale")["spec"] == {"replicas": 1}, "where no worker is written"
    api.must("scale", "dtj/digits", "--replicas=7")
    assert api.get("dtj/digits")["spec"]["worker"] == {"replicas": 7}
    refused(api.kubectl("scale", "dtj/digits", "--replicas=0"), "spec.worker.replicas", "0 given, but only a job with")
    refused(api.kubectl("scale", "dtj/digits", "--replicas=10001"), "spec.worker.replicas", "or equal to 10000")
    assert not api.kubectl("scale", "dtj/digits", "--replicas=-1").ok
    assert api.get("dtj/digits")["spec"]["worker"] == {"replicas": 7}


@pytest.mark.usefixtures("no_jobs_left")
@pytest.mark.parametrize("name", GOOD)
def test_taken(api: Api, name: str) -> None:
    manifest = copy.deepcopy(GOOD[name])
    answer = api.apply(manifest, "-o", "json")
    assert answer.ok, answer.text
    stored = json.loads(answer.text)
    for field, value in manifest["spec"].items():
        if field in ("template", "procsPerNode", "sharedMemory"):
            assert stored["spec"][field] == value
    decoded = msgspec.convert(stored, Job)
    written = msgspec.convert({**manifest, "spec": {k: v for k, v in manifest["spec"].items() if v is not None}}, Job)
    assert decoded.spec == written.spec, "the server's defaults are the types'"


@pytest.mark.usefixtures("no_jobs_left")
def test_defaults_are_written_into_the_job(api: Api) -> None:
    api.must("apply", "-f", "-", manifest=job())
    assert api.get("dtj/digits")["spec"] == {
        "framework": "pytorch",
        "template": template(),
        "worker": {"replicas": 1},
        "procsPerNode": "auto",
        "restart": {"limit": 3, "scope": "Auto"},
        "success": "Leader",
        "graceSeconds": 30,
        "cleanPods": "Running",
        "keepOnFailure": False,
        "captureLogs": False,
        "suspend": False,
        "network": "Pod",
        "sharedMemory": "auto",
        "managedBy": "disttrain.dev/operator",
        "debug": False,
    }
