"""What only the API server can judge, learnt from the first pod: refused for good, or until somebody repairs it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.jobs import Manifest, job, template
from api.loop import Client, Running, eventually, found, has_pods, reason

SOON = 1.0
"""Seconds from the apply to the words, on an idle machine."""
LATE = 5.0
"""The same on a busy one."""

ours_too = pytest.param("local")
kube = pytest.param("kube", marks=pytest.mark.kube)


def pod(**spec: Any) -> Manifest:
    """A template with these fields in the pod's spec."""
    return template(pod=spec)


def labelled(**metadata: Any) -> Manifest:
    """A template with this metadata."""
    return template() | {"metadata": metadata}


def mounted(*volumes: Manifest, **mount: str) -> Manifest:
    """A template with volumes and one mount."""
    return template(volumeMounts=[{"name": "data", "mountPath": "/data"} | mount], pod={"volumes": list(volumes)})


EMPTY: Manifest = {"name": "data", "emptyDir": {}}
WRONG: dict[str, tuple[Manifest, str]] = {
    "a typo in a pod's field": (pod(nodeSelektor={"a": "b"}), 'unknown field "spec.nodeSelektor"'),
    "a typo in a container's field": (template(comand=["x"]), 'unknown field "spec.containers[0].comand"'),
    "a command that is no list": (template(command="train.py"), "command"),
    "a quantity": (template(resources={"requests": {"memory": "1Gb"}}), "quantities must match"),
    "a request above its limit": (
        template(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        "must be less than or equal to cpu limit of 1",
    ),
    "no image": (template(image=""), "spec.containers[0].image: Required value"),
    "a port's name twice": (
        template(ports=[{"name": "a", "containerPort": 81}, {"name": "a", "containerPort": 82}]),
        'spec.containers[0].ports[1].name: Duplicate value: "a"',
    ),
    "a port out of range": (template(ports=[{"containerPort": 70000}]), "must be between 1 and 65535"),
    "a variable's name": (template(env=[{"name": "A=B", "value": "x"}]), "spec.containers[0].env["),
    "a label": (labelled(labels={"my label": "x"}), 'metadata.labels: Invalid value: "my label"'),
    "a label's value": (labelled(labels={"team": "a b"}), 'metadata.labels: Invalid value: "a b"'),
    "an annotation": (labelled(annotations={"a/b/c": "x"}), 'metadata.annotations: Invalid value: "a/b/c"'),
    "a volume that is not there": (mounted(), 'spec.containers[0].volumeMounts[0].name: Not found: "data"'),
    "a volume twice": (mounted(EMPTY, EMPTY), 'Duplicate value: "data"'),
    "a mount without a path": (mounted(EMPTY, mountPath=""), "volumeMounts[0].mountPath: Required value"),
    "two mounts at one path": (
        template(
            volumeMounts=[{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/a"}],
            pod={"volumes": [EMPTY]},
        ),
        "must be unique",
    ),
    "a probe without a way": (template(readinessProbe={"periodSeconds": 1}), "must specify a handler type"),
    "a user": (pod(securityContext={"runAsUser": -1}), "must be between 0 and"),
    "a deadline": (pod(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds: Invalid value"),
    "a toleration": (pod(tolerations=[{"key": "a", "operator": "Is"}]), "spec.tolerations[0].operator"),
    "a node selector": (pod(nodeSelector={"a": "b c"}), "spec.nodeSelector"),
}
UNCHECKED = (
    "a request above its limit",
    "a port's name twice",
    "a port out of range",
    "a variable's name",
    "a volume twice",
    "two mounts at one path",
    "a probe without a way",
    "a user",
    "a deadline",
    "a toleration",
    "a node selector",
)
"""What the one-machine API takes all the same, as docs/one-machine.md says; it refuses the others in the same words."""
CASES = [pytest.param(server, name, marks=[pytest.mark.kube] if server == "kube" else [], id=f"{server}-{name}")
         for server in ("local", "kube") for name in WRONG if server == "kube" or name not in UNCHECKED]  # fmt: skip


async def said(client: Client, kind: str, word: str, began: float) -> str:
    """The words of a condition, once it has this reason; prints how long that took."""
    await eventually(lambda: reason(client, kind, word), LATE)
    took = time.monotonic() - began
    print(f"{word} after {1000 * took:.0f} ms{' (late)' if took > SOON else ''}")
    condition = await client.condition(kind)
    assert condition["status"] == ("False" if kind == "Accepted" else "True")
    words: str = condition["message"]
    assert (await client.status())["message"] == words
    return words


@pytest.mark.parametrize(("bare_api", "name"), CASES, indirect=["bare_api"])
async def test_refused_for_good(client: Client, operator: Running, name: str) -> None:
    """`Accepted=False` with the server's words; one POST, whatever else happens, until the spec changes."""
    broken, words = WRONG[name]
    began = time.monotonic()
    await client.apply(job(worker={"replicas": 3}, template=broken))
    assert words in await said(client, "Accepted", "InvalidTemplate", began)
    status = await client.status()
    assert (status["state"], status["observedGeneration"]) == ("Pending", 1)
    assert await client.pods() == {}
    await client.patch(f"{client.jobs}/digits", metadata={"labels": {"look": "again"}})

    async def looked() -> bool:
        record = operator.operator.controller.jobs[client.namespace, "digits"]
        version = (await client.get(f"{client.jobs}/digits"))["metadata"]["resourceVersion"]
        return record.job.metadata.resource_version == version and not len(operator.operator.queue)

    await eventually(looked)
    await asyncio.sleep(0.3)  # a pass that must not come cannot be waited for
    assert operator.calls("POST", 400) + operator.calls("POST", 422) == 1
    mended = [{"op": "replace", "path": "/spec/template", "value": template()}]
    body = json.dumps(mended).encode()
    await client.api.call("PATCH", f"{client.jobs}/digits", body, "application/json-patch+json")
    await eventually(lambda: has_pods(client, 3))
    await eventually(lambda: reason(client, "Accepted", "PodsCreated"))


@pytest.mark.parametrize("bare_api", [ours_too], indirect=True)
@pytest.mark.parametrize("name", UNCHECKED)
async def test_taken_on_one_machine_alone(client: Client, operator: Running, name: str) -> None:
    await client.apply(job(worker={"replicas": 2}, template=WRONG[name][0]))
    await eventually(lambda: has_pods(client, 2))


@dataclass
class Obstacle:
    """What others can repair."""

    word: str
    """The reason of `Stalled`."""
    words: str
    """Part of its message."""
    template: Manifest = field(default_factory=template)
    before: Callable[[Client], Awaitable[None]] | None = None
    """Puts it in the way."""
    repair: Callable[[Client], Awaitable[None]] | None = None


UNSCHEDULED = job(worker={"replicas": 2}, template=pod(schedulerName="nobody"))
SCHEDULING = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


async def make_account(client: Client) -> None:
    await client.post(f"{client.core}/serviceaccounts", {"metadata": {"name": "trainer"}})


async def make_priority(client: Client) -> None:
    await client.post(SCHEDULING, {"metadata": {"name": f"high-{client.namespace}"}, "value": 7})


async def make_runtime(client: Client) -> None:
    await client.post(RUNTIMES, {"metadata": {"name": f"sandbox-{client.namespace}"}, "handler": "runsc"})


async def restrict(client: Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.patch(f"/api/v1/namespaces/{client.namespace}", metadata={"labels": labels})


async def unrestrict(client: Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": None}
    await client.patch(f"/api/v1/namespaces/{client.namespace}", metadata={"labels": labels})


def quota(**hard: str) -> Callable[[Client], Awaitable[None]]:
    """Makes a quota, and waits until it is counted."""

    async def make(client: Client) -> None:
        named = {key.replace("_", "."): value for key, value in hard.items()}
        await client.post(f"{client.core}/resourcequotas", {"metadata": {"name": "small"}, "spec": {"hard": named}})

        async def counted() -> bool:
            return "used" in (await client.get(f"{client.core}/resourcequotas/small")).get("status", {})

        await eventually(counted)

    return make


async def lift(client: Client) -> None:
    await client.delete(f"{client.core}/resourcequotas/small")


async def bound(client: Client) -> None:
    limit = {"type": "Container", "max": {"cpu": "1"}}
    await client.post(f"{client.core}/limitranges", {"metadata": {"name": "small"}, "spec": {"limits": [limit]}})


async def unbound(client: Client) -> None:
    await client.delete(f"{client.core}/limitranges/small")


def of_namespace(client: Client) -> Manifest:
    return {"matchLabels": {"kubernetes.io/metadata.name": client.namespace}}


async def put_policy(client: Client) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    validation = {"expression": "has(object.metadata.annotations)", "message": "every pod names its cost centre"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    await client.post(POLICIES, {"metadata": {"name": client.namespace}, "spec": spec})
    binding = {
        "policyName": client.namespace,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": of_namespace(client)},
    }
    await client.post(
        f"{POLICIES.removesuffix('ies')}ybindings", {"metadata": {"name": client.namespace}, "spec": binding}
    )
    probe = {"metadata": {"name": "probe"}, "spec": template()["spec"]}

    async def in_force() -> bool:
        try:
            await client.post(f"{client.core}/pods?dryRun=All", probe)
        except Exception as error:
            return "cost centre" in str(error)
        return False

    await eventually(in_force)


async def drop_policy(client: Client) -> None:
    await client.delete(f"{POLICIES.removesuffix('ies')}ybindings/{client.namespace}")
    await client.delete(f"{POLICIES}/{client.namespace}")


async def put_webhook(client: Client) -> None:
    """One that nobody answers."""
    hook = {
        "name": "gone.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": of_namespace(client),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    await client.post(WEBHOOKS, {"metadata": {"name": client.namespace}, "webhooks": [hook]})
    probe = {"metadata": {"name": "probe"}, "spec": template()["spec"]}

    async def in_force() -> bool:
        try:
            await client.post(f"{client.core}/pods?dryRun=All", probe)
        except Exception as error:
            return "failed calling webhook" in str(error)
        return False

    await eventually(in_force)


async def drop_webhook(client: Client) -> None:
    await client.delete(f"{WEBHOOKS}/{client.namespace}")


OBSTACLES = {
    "no service account": Obstacle(
        "ServiceAccountMissing",
        'serviceaccount "trainer" not found',
        pod(serviceAccountName="trainer"),
        repair=make_account,
    ),
    "no priority class": Obstacle(
        "PriorityClassMissing",
        "no PriorityClass with name high-",
        pod(priorityClassName="high-{namespace}"),
        repair=make_priority,
    ),
    "no runtime class": Obstacle(
        "RuntimeClassMissing",
        'RuntimeClass "sandbox-',
        pod(runtimeClassName="sandbox-{namespace}"),
        repair=make_runtime,
    ),
    "pod security": Obstacle(
        "PodSecurity", 'violates PodSecurity "restricted:latest"', before=restrict, repair=unrestrict
    ),
    "a quota": Obstacle("QuotaExceeded", "exceeded quota: small", before=quota(pods="0"), repair=lift),
    "a quota of what the pod does not say": Obstacle(
        "QuotaExceeded", "must specify limits.cpu", before=quota(limits_cpu="8"), repair=lift
    ),
    "a limit range": Obstacle(
        "LimitRange",
        "maximum cpu usage per Container is 1, but limit is 2",
        template(resources={"limits": {"cpu": "2"}}),
        before=bound,
        repair=unbound,
    ),
    "an admission policy": Obstacle(
        "AdmissionDenied", "every pod names its cost centre", before=put_policy, repair=drop_policy
    ),
    "a webhook that nobody answers": Obstacle(
        "AdmissionFailed", "failed calling webhook", before=put_webhook, repair=drop_webhook
    ),
}


@pytest.mark.kube
@pytest.mark.parametrize(("bare_api", "name"), [("kube", name) for name in OBSTACLES], indirect=["bare_api"])
async def test_stalled_until_repaired(client: Client, operator: Running, name: str) -> None:
    """`Stalled` with the server's words, tried again and again, and on it goes when somebody has repaired it."""
    case = OBSTACLES[name]
    if case.before:
        await case.before(client)
    # Classes are the cluster's: each test has its own. A scheduler without nodes would say that something is stalled.
    text = json.dumps(case.template).replace("{namespace}", client.namespace)
    chosen = json.loads(text)
    chosen["spec"]["schedulerName"] = "nobody"
    began = time.monotonic()
    await client.apply(job(worker={"replicas": 3}, template=chosen))
    words = await said(client, "Stalled", case.word, began)
    assert case.words in words
    assert words.startswith("Pod digits-worker-0 was refused: ")
    assert (await client.status())["state"] == "Pending"
    assert await client.pods() == {}
    assert case.repair
    await case.repair(client)
    await eventually(lambda: has_pods(client, 3), 20)
    await eventually(lambda: reason(client, "Stalled", "Proceeding"))
    await eventually(lambda: reason(client, "Accepted", "PodsCreated"))


@pytest.mark.parametrize("bare_api", [ours_too, kube], indirect=True)
@pytest.mark.parametrize("kind", ["services", "pods"])
@pytest.mark.parametrize("owned", [False, True], ids=["nobody's", "another's"])
async def test_a_strangers_object_of_the_name(client: Client, operator: Running, kind: str, owned: bool) -> None:
    """Never adopted, never changed, never deleted; and once it is gone, on it goes."""
    name = "digits" if kind == "services" else "digits-worker-1"
    specs: dict[str, Manifest] = {
        "services": {"clusterIP": "None", "selector": {"app": "web"}},
        "pods": {"containers": [{"name": "web", "image": "web"}]},
    }
    metadata: Manifest = {"name": name}
    if owned:
        owner = await client.post(f"{client.core}/configmaps", {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    path = f"{client.core}/{kind}/{name}"
    await client.post(f"{client.core}/{kind}", {"metadata": metadata, "spec": specs[kind]})
    began = time.monotonic()
    await client.apply(UNSCHEDULED)
    words = await said(client, "Accepted", "NameTaken", began)
    assert f"{name} was refused: exists and belongs to {'ConfigMap owner' if owned else 'nobody'}" in words
    kept = await client.get(path)
    assert (kept["metadata"].get("labels"), kept["metadata"].get("ownerReferences")) == (
        None,
        metadata.get("ownerReferences"),
    )
    assert all(kept["spec"][key] == value for key, value in specs[kind].items() if key != "containers")
    await client.delete(f"{client.jobs}/digits")

    async def forgotten() -> bool:
        return not await found(client, f"{client.jobs}/digits") and not await client.pods()

    await eventually(forgotten)
    assert (await client.get(path))["metadata"]["uid"] == kept["metadata"]["uid"]
    await client.apply(UNSCHEDULED)
    await eventually(lambda: reason(client, "Accepted", "NameTaken"))
    await client.delete(path)
    await eventually(lambda: has_pods(client, 2), 20)
    await eventually(lambda: reason(client, "Accepted", "PodsCreated"))


@pytest.mark.parametrize("bare_api", [ours_too, kube], indirect=True)
async def test_a_namespace_that_ends(client: Client, operator: Running) -> None:
    """403, and for good: one pod is tried, and the events of that, which are refused too."""
    await client.post(f"{client.core}/configmaps", {"metadata": {"name": "holds", "finalizers": ["example.com/holds"]}})
    await client.apply(job(worker={"replicas": 2}))
    await eventually(lambda: has_pods(client, 2))
    await client.api.call("DELETE", f"/api/v1/namespaces/{client.namespace}")

    async def empty() -> bool:
        return await client.pods() == {}

    await eventually(empty)
    await asyncio.sleep(1.5)  # what must not come cannot be waited for
    assert operator.calls("POST", 403) <= 4
    await client.patch(f"{client.core}/configmaps/holds", metadata={"finalizers": None})

    async def gone() -> bool:
        return not await found(client, f"/api/v1/namespaces/{client.namespace}")

    await eventually(gone, 30)
