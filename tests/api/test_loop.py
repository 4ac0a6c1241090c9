"""The operator, whole, against an API server: jobs become pods, and what happens to pods is seen to."""

from __future__ import annotations

import pytest

from api.jobs import job, template
from api.loop import Client, Running, begun, eventually, has_pods, is_state, reason
from api.servers import Api


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
