"""What a user types, with the real kubectl, on our API server and on a real kube-apiserver: they must agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.jobs import job, template
from api.servers import Api, eventually
from api.session import Session, session, stable
from disttrain.api import crd

COLUMNS = ["NAME", "FRAMEWORK", "STATE", "READY", "RESTARTS", "PROGRESS", "AGE"]


@pytest.fixture(scope="module")
def user(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with session(api, "kubectl", tmp_path_factory.mktemp("kubectl")) as made:
        yield made


def row(table: str, name: str) -> list[str]:
    """A line of a table, as words."""
    return next(line.split() for line in table.splitlines() if line.split()[:1] == [name])


def test_from_apply_to_delete(user: Session) -> None:
    manifest = job("whole", worker={"replicas": 2})
    with user.background("get", "dtj", "-w", "-o", "custom-columns=N:.metadata.name,S:.status.state") as watch:
        assert user.apply(manifest) == "disttrainjob.disttrain.dev/whole created\n"
        assert user.apply(manifest) == "disttrainjob.disttrain.dev/whole unchanged\n"
        pods = user.has_pods("whole", 2)
        assert pods == ["whole-worker-0", "whole-worker-1"]
        user.is_state("whole", "Starting")
        user.runs(*pods)
        user.must("wait", "dtj/whole", "--for=condition=Running", "--timeout=30s")
        table = user.must("get", "dtj")
        assert table.splitlines()[0].split() == COLUMNS
        assert row(table, "whole")[:5] == ["whole", "pytorch", "Running", "2/2", "0"]
        with user.background("wait", "dtj/whole", "--for=condition=Succeeded", "--timeout=30s") as waiting:
            user.ends(*pods, code=0)
            words, _ = waiting.communicate(timeout=40)
            assert words == "disttrainjob.disttrain.dev/whole condition met\n"
        assert row(user.must("get", "dtj"), "whole")[2] == "Succeeded"
        assert watch.stdout is not None
        states: list[str] = []
        while "Succeeded" not in states:
            name, state = watch.stdout.readline().split()
            states += [state] if name == "whole" and state not in states[-1:] else []
        assert states == ["<none>", "Starting", "Running", "Succeeded"]
    assert user.must("delete", "dtj", "whole").splitlines()[0].startswith('disttrainjob.disttrain.dev "whole" deleted')
    eventually(lambda: user.names("pods,services,configmaps,secrets", "-l", "disttrain.dev/job=whole") == set())
    assert "NotFound" in user.refused("get", "dtj", "whole")
    assert "whole" not in user.must("get", "all")


def test_get_all_lists_a_job_with_what_is_its(user: Session) -> None:
    user.running(job("family", worker={"replicas": 2}), 2)
    assert user.names("all") >= {
        "disttrainjob.disttrain.dev/family",
        "pod/family-worker-0",
        "pod/family-worker-1",
        "service/family",
    }


def test_describe(user: Session) -> None:
    (pod,) = user.running(job("described", worker={"replicas": 1}), 1)
    eventually(lambda: re.search(r"Normal +Running ", user.must("describe", "dtj", "described")) is not None)
    words = user.must("describe", "dtj", "described")
    for line in ("Name:         described", "API Version:  disttrain.dev/v1alpha1", "Kind:         DistTrainJob"):
        assert line in words.splitlines()
    for word in ("Framework:", "Conditions:", "The pod runs.", "Events:", "disttrain", "Starting"):
        assert word in words
    words = user.must("describe", "pod", pod)
    for word in ("Controlled By:", "DistTrainJob/described", "MASTER_ADDR:", "disttrain.dev/leader=true"):
        assert word in words


def test_explain(user: Session) -> None:
    words = user.must("explain", "disttrainjob.spec.restart")
    for word in (
        "GROUP:      disttrain.dev",
        "KIND:       DistTrainJob",
        "FIELD: restart <Object>",
        "limit\t<integer>",
    ):
        assert word in words
    assert "What happens when a pod fails." in words
    assert "replicas\t<integer>" in user.must("explain", "dtj.spec.worker", "--recursive")
    assert "does not exist" in user.refused("explain", "dtj.spec.restarts")


def test_scale(user: Session) -> None:
    user.running(job("scaled", worker={"replicas": 1}), 1)
    assert user.must("scale", "dtj/scaled", "--replicas=3") == "disttrainjob.disttrain.dev/scaled scaled\n"
    pods = user.has_pods("scaled", 3)
    assert pods == [f"scaled-worker-{index}-r2" for index in range(3)]
    user.is_state("scaled", "Resizing")
    user.runs(*pods)
    user.is_state("scaled", "Running")
    path = f"/apis/disttrain.dev/v1alpha1/namespaces/{user.namespace}/disttrainjobs/scaled/scale"
    scale = json.loads(user.must("get", "--raw", path))
    assert (scale["kind"], scale["spec"], scale["status"]["replicas"]) == ("Scale", {"replicas": 3}, 3)
    assert scale["status"]["selector"].startswith("disttrain.dev/job-uid=")
    assert len(user.names("pods", "-l", scale["status"]["selector"])) == 3
    assert "Expected replicas to be 5, was 3" in user.refused(
        "scale", "dtj/scaled", "--current-replicas=5", "--replicas=1"
    )


def test_edits(user: Session) -> None:
    """`kubectl edit`, and each kind of patch."""
    user.running(job("edited", worker={"replicas": 1}), 1)
    editor = {"KUBE_EDITOR": "sed -i s/replicas:.1/replicas:\\ 2/"}
    answer = user.kubectl("edit", "dtj", "edited", environment=editor)
    assert answer.text == "disttrainjob.disttrain.dev/edited edited\n"
    user.has_pods("edited", 2)
    answer = user.kubectl("edit", "dtj", "edited", environment={"KUBE_EDITOR": "sed -i s/pytorch$/tensorflow/"})
    assert not answer.ok
    assert '"edited" is invalid' in answer.text
    patched = "disttrainjob.disttrain.dev/edited patched"
    merge = '{"spec": {"restart": {"limit": 7}}}'
    assert user.must("patch", "dtj", "edited", "--type=merge", "-p", merge) == f"{patched}\n"
    assert user.must("patch", "dtj", "edited", "--type=merge", "-p", merge) == f"{patched} (no change)\n"
    step = [{"op": "test", "path": "/spec/restart/limit", "value": 7}, {"op": "remove", "path": "/spec/restart/limit"}]
    assert user.must("patch", "dtj", "edited", "--type=json", "-p", json.dumps(step)) == f"{patched}\n"
    assert user.must("get", "dtj", "edited", "-o", "jsonpath={.spec.restart.limit}") == "3"  # the default is back
    assert "The request is invalid" in user.refused("patch", "dtj", "edited", "--type=json", "-p", json.dumps(step))
    words = user.refused("patch", "dtj", "edited", "-p", merge)  # a strategic one, which no custom resource takes
    assert "application/strategic-merge-patch+json is not supported by disttrain.dev/v1alpha1" in words
    name = user.pods("edited")[0]
    user.must("patch", "pod", name, "-p", '{"spec": {"containers": [{"name": "train", "image": "other:1"}]}}')
    (container,) = user.get("pod", name)["spec"]["containers"]
    assert container["image"] == "other:1"
    assert {"name": "DISTTRAIN_JOB", "value": "edited"} in container["env"]
    assert "pod updates may not change fields" in user.refused("patch", "pod", name, "-p", '{"spec":{"hostname":"x"}}')
    assert user.must("label", "dtj", "edited", "team=a") == "disttrainjob.disttrain.dev/edited labeled\n"
    assert user.must("annotate", "dtj", "edited", "why=b") == "disttrainjob.disttrain.dev/edited annotated\n"
    words = user.refused("patch", "dtj", "edited", "--type=merge", "-p", '{"spec": {"worker": {"replicas": -1}}}')
    assert "spec.worker.replicas" in words


def test_selectors_and_forms_of_output(user: Session) -> None:
    user.running(job("chosen", worker={"replicas": 3}), 3)
    mine = "disttrain.dev/job=chosen"
    for selector, number in {
        mine: 3,
        f"{mine},disttrain.dev/index in (0,2)": 2,
        f"{mine},disttrain.dev/index notin (0,2)": 1,
        f"{mine},disttrain.dev/leader": 1,
        f"{mine},!disttrain.dev/leader": 2,
        f"{mine},disttrain.dev/index!=1": 2,
        f"{mine},disttrain.dev/live=true,disttrain.dev/round=1": 3,
        f"{mine},disttrain.dev/round>1": 0,
    }.items():
        assert len(user.names("pods", "-l", selector)) == number, selector
    assert user.names("pods", "--field-selector", "metadata.name=chosen-worker-1") == {"pod/chosen-worker-1"}
    assert "pod/chosen-worker-1" in user.names("pods", "--field-selector", "status.phase=Running")
    assert user.names("pods", "-l", mine, "--field-selector", "status.phase!=Running") == set()
    assert "unable to parse" in user.refused("get", "pods", "-l", "a b")
    assert "field label not supported" in user.refused("get", "pods", "--field-selector", "spec.nothing=1")
    assert user.must("get", "dtj", "chosen", "-o", "jsonpath={.status.worker.ready}") == "3"
    assert user.must("get", "dtj/chosen", "-o", "name") == "disttrainjob.disttrain.dev/chosen\n"
    assert user.must("get", "disttrainjobs.disttrain.dev", "chosen", "--no-headers").split()[0] == "chosen"
    assert "kind: DistTrainJob" in user.must("get", "dtj", "chosen", "-o", "yaml")
    wide = user.must("get", "pods", "-l", mine, "-o", "wide").splitlines()[0].split()
    assert wide[:9] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE"]
    assert row(user.must("get", "pods", "-l", mine), "chosen-worker-0")[1:3] == ["1/1", "Running"]
    assert "disttrain.dev/index=0" in user.must("get", "pods", "-l", mine, "--show-labels")
    assert row(user.must("get", "pods", "-l", mine, "-L", "disttrain.dev/index"), "chosen-worker-2")[-1] == "2"
    assert [user.namespace, "chosen", "pytorch"] in [
        line.split()[:3] for line in user.must("get", "dtj", "-A").splitlines()
    ]
    ordered = user.must(
        "get", "pods", "-l", mine, "--sort-by=.metadata.name", "-o", "jsonpath={.items[*].metadata.name}"
    )
    assert ordered == "chosen-worker-0 chosen-worker-1 chosen-worker-2"
    assert len(user.must("get", "pods", "-l", mine, "--chunk-size=2", "--no-headers").splitlines()) == 3


def test_a_dry_run_changes_nothing(user: Session) -> None:
    manifest = job("dry", worker={"replicas": 1})
    assert user.apply(manifest, "--dry-run=server") == "disttrainjob.disttrain.dev/dry created (server dry run)\n"
    assert "NotFound" in user.refused("get", "dtj", "dry")
    broken = job("dry", worker={"replicas": -1})
    assert "spec.worker.replicas" in user.refused("apply", "--dry-run=server", "-f", "-", manifest=broken)
    user.running(manifest, 1)
    whole = user.get("dtj", "dry")
    more = job("dry", worker={"replicas": 2})
    assert user.apply(more, "--dry-run=server") == "disttrainjob.disttrain.dev/dry configured (server dry run)\n"
    user.must("scale", "dtj/dry", "--replicas=5", "--dry-run=server")
    assert "(server dry run)" in user.must("delete", "dtj", "dry", "--dry-run=server")
    assert user.get("dtj", "dry") == whole
    difference = user.refused("diff", "-f", "-", manifest=more)  # `diff` ends with 1 where there is one
    assert "-    replicas: 1" in difference
    assert "+    replicas: 2" in difference


def test_events(user: Session) -> None:
    user.running(job("eventful", worker={"replicas": 1}), 1)
    chosen = "involvedObject.kind=DistTrainJob,involvedObject.name=eventful"
    reasons = "jsonpath={.items[*].reason}"
    eventually(lambda: "Running" in user.must("get", "events", "--field-selector", chosen, "-o", reasons).split())
    words = user.must("events", "--for", "disttrainjob/eventful")
    assert words.splitlines()[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "DistTrainJob/eventful" in words
    user.ends("eventful-worker-0", code=3)
    user.has_pods("eventful", 1)
    eventually(lambda: "Restarting" in user.must("get", "events", "--field-selector", chosen, "-o", reasons).split())
    words = user.must("events", "--for", "disttrainjob/eventful", "--types=Warning")
    assert "failed with exit code 3; restart 1 of 3 follows." in " ".join(words.split())


def test_waiting(user: Session) -> None:
    user.running(job("awaited", worker={"replicas": 1}), 1)
    assert "condition met" in user.must("wait", "dtj", "awaited", "--for=condition=Running", "--timeout=10s")
    assert "condition met" in user.must("wait", "dtj/awaited", "--for=jsonpath={.status.ready}=1/1", "--timeout=10s")
    assert "timed out" in user.refused("wait", "dtj/awaited", "--for=condition=Succeeded", "--timeout=1s")
    with user.background("wait", "dtj/awaited", "--for=delete", "--timeout=30s") as waiting:
        user.must("delete", "dtj/awaited", "--wait=false")
        waiting.communicate(timeout=40)
        assert waiting.returncode == 0
    eventually(lambda: user.names("pods", "-l", "disttrain.dev/job=awaited") == set())


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_deleting(user: Session, cascade: str) -> None:
    name = f"gone-{cascade}"
    user.running(job(name, worker={"replicas": 2}), 2)
    user.must("delete", "dtj", name, f"--cascade={cascade}")
    mine = ("pods,services", "-l", f"disttrain.dev/job={name}")
    if cascade == "orphan":
        assert len(user.names(*mine)) == 3
        assert "ownerReferences" not in user.get("pod", f"{name}-worker-0")["metadata"]
        user.must("delete", *mine)
    eventually(lambda: user.names(*mine) == set())


def test_logs_of_a_pod_without_a_node(user: Session) -> None:
    """Nobody has taken the pod: there is nothing, and following it ends at once."""
    user.apply(job("silent", worker={"replicas": 1}))
    (pod,) = user.has_pods("silent", 1)
    assert user.must("logs", pod) == ""
    assert user.must("logs", "-f", pod) == ""
    assert "container other is not valid for pod" in user.refused("logs", pod, "-c", "other")
    assert "not found" in user.refused("logs", "nobody")


def test_many_at_once(user: Session) -> None:
    manifests = [job(f"many-{index}", worker={"replicas": 1}) for index in range(5)]
    made = user.must("create", "-f", "-", manifest={"apiVersion": "v1", "kind": "List", "items": manifests})
    assert made.count("created") == 5
    eventually(lambda: len(user.names("pods", "-l", "disttrain.dev/job in (many-0,many-1,many-2,many-3,many-4)")) == 5)
    assert user.must("delete", *(f"dtj/many-{index}" for index in range(5))).count("deleted") == 5


def test_a_namespace_goes_with_its_jobs(user: Session, tmp_path_factory: pytest.TempPathFactory) -> None:
    with session(user.api, "doomed", tmp_path_factory.mktemp("doomed")) as there:
        there.running(job("digits", worker={"replicas": 2}), 2)
        user.must("delete", "namespace", "doomed", "--timeout=60s")
        assert "NotFound" in user.refused("get", "namespace", "doomed")
        assert "doomed" not in user.must("get", "pods", "-A")


def test_who_is_asked_about(user: Session) -> None:
    listed = set(user.must("api-resources", "-o", "name").split())
    assert {"disttrainjobs.disttrain.dev", "pods", "services", "events", "leases.coordination.k8s.io"} <= listed
    assert row(user.must("api-resources", "--api-group=disttrain.dev"), "disttrainjobs") == [
        "disttrainjobs", "dtj", "disttrain.dev/v1alpha1", "true", "DistTrainJob",
    ]  # fmt: skip
    assert "disttrain.dev/v1alpha1" in user.must("api-versions").split()


SAME_JOB = job("same", worker={"replicas": 2}, template=template(pod={"schedulerName": "nobody"}))
OTHER = job("other", worker={"replicas": 1})
OF_JOBS = ("--field-selector", "involvedObject.kind=DistTrainJob")
SAME = (
    "get dtj",
    "get dtj -o wide",
    "get dtj same -o yaml",
    "get dtj same -o json",
    "get dtj same --show-labels",
    "get dtj none",
    "get all",
    "get pods,services",
    "get pods -o wide",
    "get pods -L disttrain.dev/round --sort-by=.metadata.name",
    "get services -o wide",
    "get service same -o yaml",
    "get events --field-selector=involvedObject.kind=DistTrainJob -o custom-columns=R:.reason,M:.message,C:.count",
    "get nothing",
    "get dtj -l a,b=",
    "describe dtj same",
    "describe service same",
    "explain dtj.spec",
    "explain dtj.spec.template.spec.containers.env",
    "explain dtj.status --recursive",
    "explain dtj.nothing",
    "get --raw /apis/disttrain.dev",
    "get --raw /api/v1/namespaces/pair/pods/none",
    "get --raw /apis/disttrain.dev/v1alpha1/namespaces/pair/disttrainjobs/same/scale",
    "scale dtj/same --replicas=-1",
    "scale dtj/none --replicas=1",
    "patch dtj same --type=merge -p {}",
    'patch dtj same --type=merge -p {"spec":{"framework":"x"}}',
    'patch dtj same --type=merge -p {"spec":{"managedBy":"x"}}',
    'patch dtj same --type=merge -p {"spec":{"worker":{"replicas":"x"}}}',
    'patch dtj same --type=merge -p {"metadata":{"labels":{"a/b/c":"x"}}}',
    "label dtj same a=b --dry-run=server",
    "label dtj same a=b=c",
    "annotate pod same-worker-0 a=b --dry-run=server",
    "delete pod none",
    "delete dtj none --ignore-not-found",
    "wait dtj/same --for=condition=Failed --timeout=0",
    "logs same-worker-0",
    "logs same-worker-0 -c x",
    "get service same -o jsonpath={.spec.clusterIP}",
    "top pods",
    "rollout status dtj/same",
    "autoscale dtj/same --max=3 --dry-run=client",
)  # fmt: skip


DIFFERS = {
    "explain pods.metadata.ownerReferences": ("<no description>", "API version of the referent."),
    "explain dtj.metadata": ("<no description>", "Annotations is an unstructured key value map"),
    'patch dtj same --type=json -p [{"op":"replace","path":"/spec/nothing/more","value":1}]': (
        "/spec/nothing/more: there is no 'nothing'",
        "the server rejected our request due to an error in our request",
    ),
    'patch dtj same --type=json -p [{"op":"test","path":"/spec/framework","value":"x"}]': (
        "testing value /spec/framework failed",
        "the server rejected our request due to an error in our request",
    ),
    "patch dtj same --type=json -p [{}]": (
        "an operation of a JSON patch has an op and a path",
        "The request is invalid",
    ),
    'patch pod same-worker-0 -p {"spec":{"containers":[{"name":"train","command":["x"]}]}}': (
        "pod updates may not change fields other than",
        '+  "Command": [',
    ),
    "get pod same-worker-0 -o jsonpath={.spec.serviceAccountName}": ("", "default"),
    "get pod same-worker-0 -o jsonpath={.spec.volumes[*].name}": ("disttrain-shm", "kube-api-access"),
    "get dtj same --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}": ("", "disttrain"),
    "auth can-i create dtj": ("does not take protobuf", "yes"),
    "create namespace other --dry-run=server": ("does not take protobuf", "created (server dry run)"),
    "create configmap other --from-literal=a=b": ("does not take protobuf", "created"),
    "apply --server-side -f -": ("apply-patch+yaml", "serverside-applied"),
    "exec same-worker-0 -- true": ("does not serve pods/exec", "does not have a host assigned"),
    "port-forward same-worker-0 :80": ("does not serve pods/portforward", "does not have a host assigned"),
    "autoscale dtj/same --max=3": ("failed to create autoscaling/v2 HPA", "autoscaled"),
}
"""What our server does otherwise, with words of its answer and of the real one's: see docs/one-machine.md."""


def transcript(api: Api, folder: Path) -> dict[str, str]:
    """What is said about a job of two that runs, by command."""
    api.install(crd.definition())
    with session(api, "pair", folder) as user:
        user.running(SAME_JOB, 2)
        eventually(lambda: len(user.names("events", *OF_JOBS)) == 3)
        return {line: stable(user.kubectl(*line.split(" "), manifest=OTHER).text) for line in (*SAME, *DIFFERS)}


@pytest.mark.kube
def test_both_say_the_same(local: Api, kube: Api, tmp_path: Path) -> None:
    """Word for word, but for what no two runs have in common."""
    ours, theirs = transcript(local, tmp_path), transcript(kube, tmp_path)
    assert {line: ours[line] for line in SAME} == {line: theirs[line] for line in SAME}
    for line, (here, there) in DIFFERS.items():
        assert here in ours[line]
        assert there in theirs[line]
        assert ours[line] != theirs[line]
