"""The operator, whole, against an API server: jobs become pods, and what happens to pods is seen to."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from api.jobs import Manifest, job, template
from api.servers import Api
from disttrain.cluster.errors import NotFound
from disttrain.cluster.login import login
from disttrain.cluster.transport import MERGE, Transport
from disttrain.main import Operator, Options

JOBS = "/apis/disttrain.dev/v1alpha1/namespaces/{}/disttrainjobs"
UNIQUE = itertools.count(1)


class Client:
    """Calls in one namespace."""

    def __init__(self, api: Transport, namespace: str, kubeconfig: str) -> None:
        self.api = api
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = JOBS.format(namespace)

    async def post(self, path: str, body: Manifest) -> Manifest:
        answer: Manifest = json.loads(await self.api.call("POST", path, json.dumps(body).encode()))
        return answer

    async def get(self, path: str) -> Manifest:
        answer: Manifest = json.loads(await self.api.call("GET", path))
        return answer

    async def apply(self, manifest: Manifest) -> Manifest:
        return await self.post(self.jobs, manifest)

    async def patch(self, path: str, **body: Any) -> None:
        await self.api.call("PATCH", path, json.dumps(body).encode(), MERGE)

    async def delete(self, path: str) -> None:
        await self.api.call("DELETE", path, b'{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}')

    async def status(self, name: str = "digits") -> Manifest:
        status: Manifest = (await self.get(f"{self.jobs}/{name}")).get("status", {})
        return status

    async def pods(self, job_name: str = "digits") -> dict[str, Manifest]:
        found = await self.get(f"{self.core}/pods?labelSelector=disttrain.dev/job%3D{job_name}")
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def condition(self, kind: str, name: str = "digits") -> Manifest:
        listed = (await self.status(name)).get("conditions", [])
        return next((one for one in listed if one["type"] == kind), {"status": ""})

    async def runs(self, *names: str) -> None:
        """Does what a kubelet would: the pods run and are ready."""
        for name in names:
            main = {"name": "train", "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
            await self.patch(
                f"{self.core}/pods/{name}/status",
                status={
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [main | {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
                },
            )

    async def ends(self, name: str, code: int) -> None:
        """The pod's main container ends."""
        main = {"name": "train", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
        await self.patch(
            f"{self.core}/pods/{name}/status",
            status={
                "phase": "Failed" if code else "Succeeded",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [main | {"state": {"terminated": {"exitCode": code, "reason": "Error"}}}],
            },
        )


async def eventually(holds: Callable[[], Awaitable[object]], seconds: float = 15) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 -- the API server has no event for it
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    async with Transport(login(str(api.kubeconfig))) as transport:
        namespace = f"loop-{next(UNIQUE)}"
        made = Client(transport, namespace, str(api.kubeconfig))
        await made.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        if api.kind == "kube":
            await eventually(lambda: found(made, f"{made.core}/serviceaccounts/default"))
        yield made
        for one in (await made.get(made.jobs))["items"]:
            await made.delete(f"{made.jobs}/{one['metadata']['name']}")


async def found(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except NotFound:
        return False
    return True


class Running:
    """An operator in this process."""

    def __init__(self, client: Client, **options: Any) -> None:
        chosen = Options(listen="127.0.0.1:0", progress_seconds=0, namespaces=(client.namespace,), **options)
        self.stop = asyncio.Event()
        self.operator = Operator(chosen, login(client.kubeconfig))
        self.task = asyncio.create_task(self.operator.run(self.stop))

    def calls(self, verb: str, code: int) -> float:
        labels = {"verb": verb, "code": str(code)}
        return self.operator.metrics.registry.get_sample_value("disttrain_api_calls_total", labels) or 0

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(5):
            await self.task


@pytest_asyncio.fixture
async def operator(client: Client) -> AsyncIterator[Running]:
    running = Running(client)
    yield running
    await running.end()


async def begun(client: Client, number: int = 3) -> None:
    await client.apply(job(worker={"replicas": number}))
    await eventually(lambda: has_pods(client, number))


async def has_pods(client: Client, number: int, round_: int = 1) -> bool:
    pods = [
        one
        for one in (await client.pods()).values()
        if one["metadata"]["labels"]["disttrain.dev/round"] == str(round_)
        and "deletionTimestamp" not in one["metadata"]
    ]
    return len(pods) == number


async def is_state(client: Client, state: str) -> bool:
    return (await client.status()).get("state") == state


async def test_a_job_becomes_pods(client: Client, operator: Running) -> None:
    await client.apply(job(worker={"replicas": 3}))
    await eventually(lambda: is_state(client, "Starting"))
    await eventually(lambda: has_pods(client, 3))
    pods = await client.pods()
    assert set(pods) == {f"digits-worker-{i}" for i in range(3)}
    service = await client.get(f"{client.core}/services/digits")
    assert service["spec"]["clusterIP"] == "None"
    uid = (await client.get(f"{client.jobs}/digits"))["metadata"]["uid"]
    for one in (service, *pods.values()):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (uid, True, False)
    assert "finalizers" not in (await client.get(f"{client.jobs}/digits"))["metadata"]


async def test_a_start_costs_few_calls(client: Client, operator: Running) -> None:
    await begun(client, 8)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    status = await client.status()
    assert (status["ready"], status["worker"]["ready"]) == ("8/8", 8)
    assert operator.calls("PATCH", 200) <= 4
    assert operator.calls("POST", 409) == 0


async def test_success_ends_the_job(client: Client, operator: Running) -> None:
    await begun(client, 2)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await client.ends("digits-worker-1", 0)
    await client.ends("digits-worker-0", 0)
    await eventually(lambda: is_state(client, "Succeeded"))
    assert (await client.condition("Succeeded"))["status"] == "True"


async def test_a_failure_is_charged_once_and_begins_a_round(client: Client, operator: Running) -> None:
    await begun(client)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await client.ends("digits-worker-1", 137)
    await eventually(lambda: has_pods(client, 3, round_=2))
    status = await client.status()
    assert (status["restarts"], status["round"]) == (1, 2)
    assert [one["pod"] for one in status["failures"]] == ["digits-worker-1"]


async def test_a_pod_deleted_by_hand_is_replaced_within_a_second(client: Client, operator: Running) -> None:
    await begun(client)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await client.delete(f"{client.core}/pods/digits-worker-2")
    await eventually(lambda: has_pods(client, 3, round_=2), 1)
    assert (await client.status())["restarts"] == 0


async def test_deleting_and_making_the_job_again_at_once(client: Client, operator: Running) -> None:
    await begun(client)
    await client.delete(f"{client.jobs}/digits")
    uid = (await client.apply(job(worker={"replicas": 2})))["metadata"]["uid"]

    async def done() -> bool:
        ours = [
            one for one in (await client.pods()).values() if one["metadata"]["labels"]["disttrain.dev/job-uid"] == uid
        ]
        return len(ours) == 2

    await eventually(done, 60)  # a fresh garbage collector takes up to 30 s to know of a CRD


async def test_a_name_that_is_taken(client: Client, operator: Running) -> None:
    stranger = {"metadata": {"name": "digits"}, "spec": {"clusterIP": "None", "selector": {"app": "web"}}}
    await client.post(f"{client.core}/services", stranger)
    await client.apply(job(worker={"replicas": 1}))
    await eventually(lambda: reason(client, "Accepted", "NameTaken"), 2)
    assert await client.pods() == {}
    kept = await client.get(f"{client.core}/services/digits")
    assert kept["spec"]["selector"] == {"app": "web"}
    assert "ownerReferences" not in kept["metadata"]
    await client.delete(f"{client.core}/services/digits")
    await eventually(lambda: has_pods(client, 1))


async def reason(client: Client, kind: str, word: str) -> bool:
    return (await client.condition(kind)).get("reason") == word


async def test_a_template_that_no_pod_can_have(client: Client, operator: Running) -> None:
    broken = template(pod={"restartPolicyy": "Never"})
    await client.apply(job(worker={"replicas": 4}, template=broken))
    await eventually(lambda: reason(client, "Accepted", "InvalidTemplate"), 2)
    assert "restartPolicyy" in (await client.condition("Accepted"))["message"]
    assert await client.pods() == {}
    assert operator.calls("POST", 400) + operator.calls("POST", 422) == 1


async def test_a_restart_of_the_operator_makes_no_needless_call(client: Client) -> None:
    first = Running(client)
    await begun(client)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await first.end()
    before = await client.get(f"{client.jobs}/digits")
    second = Running(client)
    try:
        await client.apply(job("other", worker={"replicas": 1}))
        await eventually(lambda: other_has_pod(client))
        assert await client.get(f"{client.jobs}/digits") == before
        assert second.calls("POST", 409) == 0
    finally:
        await second.end()


async def other_has_pod(client: Client) -> bool:
    return len(await client.pods("other")) == 1


async def test_what_happened_while_the_operator_was_away(client: Client) -> None:
    first = Running(client)
    await begun(client)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await first.end()
    await client.delete(f"{client.core}/pods/digits-worker-1")
    second = Running(client)
    try:
        await eventually(lambda: has_pods(client, 3, round_=2))
    finally:
        await second.end()


async def test_a_resize(client: Client, operator: Running) -> None:
    await begun(client, 2)
    await client.runs(*(await client.pods()))
    await eventually(lambda: is_state(client, "Running"))
    await client.patch(f"{client.jobs}/digits/scale", spec={"replicas": 3})
    await eventually(lambda: has_pods(client, 3, round_=2))


async def test_a_deleted_job_is_forgotten(client: Client, operator: Running) -> None:
    await begun(client, 1)
    assert len(operator.operator.controller.jobs) == 1
    await client.delete(f"{client.jobs}/digits")

    async def forgotten() -> bool:
        return not operator.operator.controller.jobs

    await eventually(forgotten)


async def test_the_watch_of_jobs_comes_back(client: Client, operator: Running) -> None:
    """kopf ends on an ERROR event; the loop goes on, and jobs made and deleted meanwhile are seen to."""
    await begun(client, 1)
    operator.operator.host.restart()
    await client.delete(f"{client.jobs}/digits")
    await client.apply(job("other", worker={"replicas": 1}))
    await eventually(lambda: other_has_pod(client))

    async def forgotten() -> bool:
        return set(operator.operator.controller.jobs) == {(client.namespace, "other")}

    await eventually(forgotten)


async def test_events_are_on_the_job(client: Client, operator: Running) -> None:
    await begun(client, 1)

    async def told() -> bool:
        listed = await client.get(f"{client.core}/events")
        return any(
            one["involvedObject"]["kind"] == "DistTrainJob" and one["reason"] == "Starting" for one in listed["items"]
        )

    await eventually(told)


@pytest.fixture
def _kube_only(api: Api) -> None:
    if api.kind != "kube":
        pytest.skip("the one-machine API has no quota and no Pod Security")


@pytest.mark.usefixtures("_kube_only")
async def test_a_quota_is_said_and_tried_again(client: Client, operator: Running) -> None:
    await client.post(f"{client.core}/resourcequotas", {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}})

    async def counted() -> bool:
        quota = await client.get(f"{client.core}/resourcequotas/small")
        return "pods" in quota.get("status", {}).get("used", {})

    await eventually(counted)
    await client.apply(job(worker={"replicas": 3}))
    await eventually(lambda: reason(client, "Stalled", "QuotaExceeded"), 3)
    assert "exceeded quota" in (await client.condition("Stalled"))["message"]
    await client.patch(f"{client.core}/resourcequotas/small", spec={"hard": {"pods": "9"}})
    await eventually(lambda: has_pods(client, 3))
