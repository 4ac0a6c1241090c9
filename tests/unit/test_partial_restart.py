"""A loss that the others survive: only the slots concerned get a new pod, and the status keeps the others' round."""

from __future__ import annotations

from jobs import NOW, done, failed, job, plan, pod, settle
from msgspec import structs

from disttrain.api.plan import Plan
from disttrain.api.pods import PodView
from disttrain.api.types import Job

SPEC = {"framework": "tensorflow", "chief": {}, "ps": {"replicas": 1}}
PODS = [pod("chief"), pod("worker", 0), pod("worker", 1), pod("ps")]


def up() -> Job:
    given, _ = settle(job(SPEC, workers=2))
    status = plan(given, *PODS).status
    assert status is not None
    return structs.replace(given, status=status)


def without(*gone: str) -> list[PodView]:
    return [known for known in PODS if str(known.slot) not in gone]


def made(found: Plan) -> list[str]:
    return [one.manifest["metadata"]["name"] for one in found.create]


def test_a_lost_worker_is_replaced_alone() -> None:
    given, found = settle(up(), *without("worker-1"), failed("worker", 1))
    assert made(found) == ["digits-worker-1-r2"]
    assert not found.delete
    assert given.status.worker is not None
    assert (given.status.round, given.status.restarts) == (2, 1)
    assert given.status.worker.rounds == {"1": "0"}
    assert given.status.chief is not None
    assert given.status.chief.rounds == {"1": "0"}
    again = plan(given, *without("worker-1"), pod("worker", 1, 2))
    assert again.status is not None
    assert (again.status.state, again.status.launched) == ("Running", 2)
    assert not again.create


def test_a_lost_server_takes_the_chief_with_it_at_one_charge() -> None:
    given, found = settle(up(), *without("ps-0"), failed("ps"))
    assert sorted(made(found)) == ["digits-chief-0-r2", "digits-ps-0-r2"]
    # The chief's failure, seen later, is of a round that has passed.
    _, after = settle(given, failed("chief"), *without("ps-0", "chief-0"), pod("ps", 0, 2))
    assert after.commit is None
    assert made(after) == ["digits-chief-0-r2"]


def test_a_second_loss_is_its_own_charge() -> None:
    given, _ = settle(up(), *without("worker-1"), failed("worker", 1))
    running = [*without("worker-1"), pod("worker", 1, 2)]
    status = plan(given, *running).status
    assert status is not None
    given = structs.replace(given, status=status)
    pods = [one for one in running if str(one.slot) != "worker-0"]
    given, found = settle(given, *pods, failed("worker", 0))
    assert made(found) == ["digits-worker-0-r3"]
    assert given.status.worker is not None
    assert given.status.worker.rounds == {"2": "1"}
    assert given.status.restarts == 2


def test_a_resize_starts_all_anew() -> None:
    given = up()
    spec = structs.replace(given.spec, worker=structs.replace(given.spec.worker, replicas=1))
    given, found = settle(structs.replace(given, spec=spec), *PODS)
    assert sorted(made(found)) == ["digits-chief-0-r2", "digits-ps-0-r2", "digits-worker-0-r2"]
    assert given.status.chief is not None
    assert given.status.chief.rounds == {}


def test_scope_decides_over_the_framework() -> None:
    given = up()
    restart = structs.replace(given.spec.restart, scope="Job")
    given = structs.replace(given, spec=structs.replace(given.spec, restart=restart))
    _, found = settle(given, *without("worker-1"), failed("worker", 1))
    assert len(found.create) == 4


def test_scope_pod_for_a_framework_that_restarts_as_one() -> None:
    given, _ = settle(job({"restart": {"scope": "Pod"}}, workers=2))
    status = plan(given, pod(index=0), pod(index=1)).status
    assert status is not None
    _, found = settle(structs.replace(given, status=status), pod(index=0), failed(index=1))
    assert made(found) == ["digits-worker-1-r2"]


def test_servers_go_as_soon_as_the_chief_is_done() -> None:
    given = up()
    end = plan(given, done("chief"), *without("chief-0")).commit
    assert end is not None
    given = structs.replace(given, status=end)
    after = plan(given, done("chief"), *without("chief-0"), now=NOW)
    assert sorted(gone.pod.name for gone in after.delete) == ["digits-ps-0", "digits-worker-0", "digits-worker-1"]
