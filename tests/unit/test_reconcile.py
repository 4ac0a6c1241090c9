"""The core's story, each step by what it plans."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jobs import NOW, UID, done, failed, job, plan, pod, settle, started
from msgspec import structs

from disttrain.api.plan import Plan, Refusal
from disttrain.api.pods import WirePod, view
from disttrain.api.times import stamp
from disttrain.api.types import Checkpoint, Job, Progress, Status
from disttrain.lifecycle import conditions


def names(found: Plan) -> list[str]:
    return [made.manifest["metadata"]["name"] for made in found.create]


def refusal(reason: str = "Forbidden", word: str = "QuotaExceeded", **fields: object) -> Refusal:
    base = {"kind": "Pod", "name": "digits-worker-0", "message": "exceeded quota", "generation": 1, "retry_at": NOW + 5}
    return Refusal(reason=reason, word=word, **{**base, **fields})  # type: ignore[arg-type]


def test_first_round_is_written_before_anything_is_made() -> None:
    found = plan(job())
    assert found.commit is not None
    assert (found.commit.round, found.commit.state, found.commit.round_cause) == (1, "Starting", "Start")
    assert found.commit.worker is not None
    assert found.commit.worker.replicas == 3
    assert found.commit.world_size == 3
    assert found.commit.start_time == stamp(NOW)
    assert not found.create
    assert not found.objects


def test_then_service_and_pods() -> None:
    _, found = settle(job())
    assert [made["kind"] for made in found.objects] == ["Service"]
    assert names(found) == ["digits-worker-0", "digits-worker-1", "digits-worker-2"]
    assert not found.delete


def test_master_leads() -> None:
    _, found = settle(job({"master": {"replicas": 1}}, workers=2))
    assert names(found) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    leaders = [made.manifest["metadata"]["labels"].get("disttrain.dev/leader") for made in found.create]
    assert leaders == ["true", None, None]


def test_only_what_is_missing_is_made() -> None:
    given, _ = settle(job())
    found = plan(given, pod(index=0), pod(index=2))
    assert names(found) == ["digits-worker-1"]


def test_running_when_all_run() -> None:
    given, _ = settle(job())
    found = plan(given, *(pod(index=i) for i in range(3)))
    assert found.status is not None
    assert found.status.state == "Running"
    assert found.status.launched == 1
    assert found.status.ready == "3/3"
    assert found.status.running_time == stamp(NOW)
    assert conditions.is_true(found.status, "Running")
    assert conditions.is_true(found.status, "Accepted")
    assert found.write_after == 0
    assert [event.reason for event in found.events] == ["Running"]


def test_counters_alone_wait_so_that_writes_do_not_grow_with_pods() -> None:
    given, _ = settle(job(workers=50))
    pods = [pod(index=i, phase="Pending", ready=False) for i in range(50)]
    first = plan(given, *pods)
    assert first.status is not None
    given = structs.replace(given, status=first.status)
    found = plan(given, pod(index=0), *pods[1:])
    assert found.status is not None
    assert found.status.ready == "1/50"
    assert found.write_after == 25


def test_nothing_to_do_is_nothing() -> None:
    given = started()
    found = plan(given, *(pod(index=i) for i in range(3)), now=NOW + 60)
    assert found == Plan(objects=[], create=[], delete=[], read_progress=pod(index=0), write_after=found.write_after)


def test_leaders_success_ends_the_job() -> None:
    given = started()
    text = '{"accuracy": 0.97, "loss": 0.1, "step": 50, "of": 50, "result": {"weightsSha256": "ab"}}'
    found = plan(given, done(index=0, exit_message=text), pod(index=1), pod(index=2))
    assert found.commit is not None
    assert found.commit.state == "Succeeded"
    assert found.commit.completion_time == stamp(NOW)
    assert found.commit.result == {"accuracy": 0.97, "loss": 0.1, "weightsSha256": "ab"}
    assert conditions.is_true(found.commit, "Succeeded")
    assert not conditions.is_true(found.commit, "Running")


def test_a_workers_success_is_remembered_and_its_pod_not_made_again() -> None:
    given = started()
    found = plan(given, pod(index=0), done(index=1), pod(index=2))
    assert found.status is not None
    assert found.status.worker is not None
    assert found.status.worker.completed == "1"
    assert found.status.state == "Running"
    given = structs.replace(given, status=found.status)
    again = plan(given, pod(index=0), pod(index=2))  # the pod was collected
    assert again.commit is None
    assert not again.create


def test_all_workers_policy_waits_for_each() -> None:
    given = started({"success": "AllWorkers"})
    assert plan(given, done(index=0), done(index=1), pod(index=2)).commit is None
    found = plan(given, done(index=0), done(index=1), done(index=2))
    assert found.commit is not None
    assert found.commit.state == "Succeeded"


def test_failure_is_charged_first_and_alone() -> None:
    given = started()
    found = plan(given, pod(index=0), failed(index=1, code=137, exit_reason="OOMKilled"), pod(index=2))
    assert found.commit is not None
    assert not found.create
    assert not found.delete
    assert (found.commit.round, found.commit.restarts, found.commit.state) == (2, 1, "Restarting")
    failure = found.commit.failures[-1]
    assert (failure.pod, failure.exit_code, failure.reason, failure.charged) == (
        "digits-worker-1",
        137,
        "OOMKilled",
        True,
    )
    assert "worker-1 failed with exit code 137 (OOMKilled)" in found.commit.message.lower().replace(
        "oomkilled", "OOMKilled"
    )


def test_restart_replaces_every_pod_and_the_ended_one_first() -> None:
    given, found = settle(started(), pod(index=0), failed(index=1), pod(index=2))
    assert names(found) == ["digits-worker-1-r2", "digits-worker-0-r2", "digits-worker-2-r2"]
    assert [made.replaces and made.replaces.name for made in found.create] == [
        "digits-worker-1",
        "digits-worker-0",
        "digits-worker-2",
    ]
    assert given.status.round == 2


def test_the_rounds_other_failures_are_consequences() -> None:
    given, _ = settle(started(), failed(index=0), failed(index=1), failed(index=2))
    assert given.status.restarts == 1
    _, found = settle(given, failed(index=0), failed(index=1), failed(index=2))
    assert given.status.restarts == 1
    assert len(found.create) == 3


def test_limit_ends_the_job() -> None:
    given = started({"restart": {"limit": 1}})
    given, _ = settle(given, failed(index=0), pod(index=1), pod(index=2))
    pods = [pod(index=i, round_=2) for i in range(3)]
    up = plan(given, *pods)
    assert up.status is not None
    given = structs.replace(given, status=up.status)
    found = plan(given, failed(index=0, round_=2), *pods[1:])
    assert found.commit is not None
    assert found.commit.state == "Failed"
    assert "restart.limit is 1" in found.commit.message
    assert found.commit.round == 2


def test_a_newer_checkpoint_clears_the_count() -> None:
    given = started({"restart": {"limit": 1}})
    given, _ = settle(given, failed(index=0), pod(index=1), pod(index=2))
    assert given.status.restarts_in_a_row == 1
    told = Progress(checkpoint=Checkpoint(step=100, round=2), round=2)
    pods = [failed(index=0, round_=2), pod(index=1, round_=2), pod(index=2, round_=2)]
    found = plan(given, *pods, progress=told)
    assert found.commit is not None
    assert (found.commit.state, found.commit.restarts, found.commit.restarts_in_a_row) == ("Restarting", 2, 1)
    assert found.commit.restart_checkpoint == 100


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_run_fails_at_once(code: int) -> None:
    found = plan(started(), pod(index=0), failed(index=1, code=code), pod(index=2))
    assert found.commit is not None
    assert found.commit.state == "Failed"
    assert found.commit.restarts == 0


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param([pod(index=0), pod(index=2)], id="vanished"),
        pytest.param([pod(index=0), pod(index=1, deletion=NOW + 30), pod(index=2)], id="deleted by hand"),
        pytest.param([pod(index=0), failed(index=1, code=137, reason="Evicted"), pod(index=2)], id="evicted"),
        pytest.param([failed(index=0), failed(index=1, code=143, disrupted=True), pod(index=2)], id="preempted"),
    ],
)
def test_infrastructure_is_not_charged(lost: list[object]) -> None:
    found = plan(started({"restart": {"limit": 0}}), *lost, absent={"digits-worker-1": 8})  # type: ignore[arg-type]
    assert found.commit is not None
    assert (found.commit.state, found.commit.round, found.commit.restarts) == ("Restarting", 2, 0)
    assert found.commit.failures[-1].charged is False


@pytest.mark.parametrize("absent", [{}, {"digits-worker-1": 6}])
def test_a_pod_that_the_cache_lacks_is_looked_for_before_it_counts_as_lost(absent: dict[str, int]) -> None:
    found = plan(started(), pod(index=0), pod(index=2), absent=absent)  # the job in hand is of version 7
    assert found == Plan(look=["digits-worker-1"])


def test_a_pod_that_was_never_made_is_not_lost() -> None:
    given, _ = settle(job())  # written, nothing launched: the operator died between two creations
    found = plan(given, pod(index=0))
    assert found.commit is None
    assert names(found) == ["digits-worker-1", "digits-worker-2"]


@pytest.mark.parametrize(("before", "after"), [(3, 5), (3, 1)])
def test_resize_restarts_at_the_new_size(before: int, after: int) -> None:
    given = started(workers=before)
    spec = structs.replace(given.spec, worker=structs.replace(given.spec.worker, replicas=after))
    given = structs.replace(given, spec=spec)
    pods = [pod(index=i) for i in range(before)]
    given, found = settle(given, *pods)
    assert (given.status.state, given.status.round, given.status.restarts) == ("Resizing", 2, 0)
    assert given.status.worker is not None
    assert given.status.worker.replicas == after
    assert len(found.create) == after
    gone = {d.pod.name for d in found.delete} | {m.replaces.name for m in found.create if m.replaces}
    assert gone == {p.name for p in pods}
    assert all(
        {"name": "WORLD_SIZE", "value": str(after)} in m.manifest["spec"]["containers"][0]["env"] for m in found.create
    )


def test_pods_of_a_later_round_mean_an_old_job() -> None:
    assert plan(started(), pod(index=0, round_=2)).stale


def test_a_wiped_status_takes_up_the_round_that_runs() -> None:
    found = plan(job(), *(pod(index=i, round_=4) for i in range(3)))
    assert found.commit is not None
    assert found.commit.round == 4
    given, acting = settle(job(), *(pod(index=i, round_=4) for i in range(3)))
    assert given.status.round == 4
    assert not acting.create


def test_strangers_pods_do_not_count() -> None:
    given, _ = settle(job())
    found = plan(given, pod(index=0, owner="somebody"))
    assert len(found.create) == 3


@pytest.mark.parametrize("given", [job(), started()])
def test_a_job_being_deleted_is_left_alone(given: Job) -> None:
    dying = structs.replace(given, metadata=structs.replace(given.metadata, deletion_timestamp=stamp(NOW)))
    assert plan(dying, failed(index=0)) == Plan(finished=True)


def test_another_controllers_job_is_left_alone() -> None:
    assert plan(job({"managedBy": "kueue.x-k8s.io/multikueue"})) == Plan(finished=True)


def test_refused_template_is_held_until_the_spec_changes() -> None:
    given, _ = settle(job())
    found = plan(given, refusal=refusal("Invalid", "InvalidTemplate", message='unknown field "spec.contaners"'))
    assert found.status is not None
    accepted = conditions.get(found.status, "Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", "InvalidTemplate")
    assert "contaners" in found.status.message
    assert found.status.state == "Pending"
    assert found.write_after == 0
    assert not found.create
    given = structs.replace(given, status=found.status)
    assert not plan(given, now=NOW + 1000).create  # also by another operator, which saw no refusal
    fixed = structs.replace(given, metadata=structs.replace(given.metadata, generation=2))
    assert len(plan(fixed).create) == 3


def test_what_others_can_repair_is_stalled_and_tried_again() -> None:
    given, _ = settle(job())
    found = plan(given, refusal=refusal())
    assert found.status is not None
    stalled = conditions.get(found.status, "Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "QuotaExceeded")
    assert "exceeded quota" in found.status.message
    assert not found.create
    assert found.wake == NOW + 5
    given = structs.replace(given, status=found.status)
    assert len(plan(given, refusal=refusal(), now=NOW + 6).create) == 3
    after = plan(given, *(pod(index=i) for i in range(3)), now=NOW + 7)
    assert after.status is not None
    assert not conditions.is_true(after.status, "Stalled")


def test_a_predecessors_pods_are_gone_round() -> None:
    given, _ = settle(job())
    found = plan(given, refusal=refusal("Predecessor", "Predecessor"))
    assert found.commit is not None
    assert (found.commit.round, found.commit.state, found.commit.restarts) == (2, "Starting", 0)


def test_terminal_is_terminal() -> None:
    given = started()
    found = plan(given, done(index=0), pod(index=1), pod(index=2))
    assert found.commit is not None
    given = structs.replace(given, status=found.commit)
    for pods in ([], [failed(index=1)], [pod(index=1), pod(index=2)]):
        after = plan(given, *pods, now=NOW + 1000)
        assert not after.create
        assert after.commit is None
        assert after.status is None or after.status.state == "Succeeded"


def test_an_image_that_cannot_be_pulled_is_said_with_the_cure() -> None:
    given, _ = settle(job())
    waits = pod(index=1, phase="Pending", ready=False, waiting="ImagePullBackOff", waiting_message='image "imgg"')
    found = plan(given, pod(index=0), waits, pod(index=2))
    assert found.status is not None
    stalled = conditions.get(found.status, "Stalled")
    assert stalled is not None
    assert stalled.reason == "ImagePullBackOff"
    assert "digits-worker-1" in stalled.message
    assert "check the image's name" in stalled.message
    assert found.status.message == stalled.message


def test_processes_that_train_alone_are_said_at_once() -> None:
    given = started()
    alone = Progress(world_size=1, step=5, round=1)
    found = plan(given, *(pod(index=i) for i in range(3)), progress=alone)
    assert found.status is not None
    assert conditions.get(found.status, "Stalled").reason == "TrainsAlone"  # type: ignore[union-attr]
    earlier = structs.replace(alone, round=0)  # said by another round: no news of this one
    after = plan(given, *(pod(index=i) for i in range(3)), progress=earlier)
    assert after.status is None or not conditions.is_true(after.status, "Stalled")


def test_undecidable_processes_are_refused_in_words() -> None:
    template = {"spec": {"containers": [{"name": "t", "image": "i", "resources": {"limits": {"acme.com/warp": "4"}}}]}}
    found = plan(job({"template": template}))
    assert found.commit is None
    assert found.status is not None
    assert "acme.com/warp" in found.status.message
    assert "set procsPerNode" in found.status.message
    assert conditions.get(found.status, "Accepted").status == "False"  # type: ignore[union-attr]
    fixed = job({"template": template, "procsPerNode": 4})
    given, _ = settle(fixed)
    assert given.status.world_size == 12


def test_what_an_earlier_version_could_not_run_this_one_runs() -> None:
    words = {"reason": "InvalidSpec", "message": "cannot read the job", "observedGeneration": 1}
    _, found = settle(job(conditions=[{"type": "Accepted", "status": "False", **words}]))
    assert len(found.create) == 3


@pytest.mark.parametrize("change", ["resized", "suspended and resumed"])
def test_a_round_after_one_that_never_came_up_makes_the_service_too(change: str) -> None:
    given, _ = settle(job())  # written; then the Service is refused, by a quota say, and the user changes the job
    workers = structs.replace(given.spec.worker, replicas=2)
    if change == "resized":
        given = structs.replace(given, spec=structs.replace(given.spec, worker=workers))
    else:
        given, _ = settle(structs.replace(given, spec=structs.replace(given.spec, suspend=True)))
        given = structs.replace(given, spec=structs.replace(given.spec, suspend=False))
    given, found = settle(given)
    assert given.status.round == 2
    assert [made["kind"] for made in found.objects] == ["Service"]


def test_what_a_later_round_has_already_is_not_made_again() -> None:
    _, found = settle(started(), failed(index=0), pod(index=1), pod(index=2))
    assert found.create
    assert not found.objects


LONG = "x" * 9000


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "ErrImagePull", "message": LONG}}}]},
        {"conditions": [{"type": "PodScheduled", "status": "False", "message": LONG}]},
    ],
    ids=["image", "scheduler"],
)
def test_messages_fit_into_the_status_whatever_the_cluster_says(status: dict[str, Any]) -> None:
    """A status that the CRD refuses is never written, and what it decides never done."""
    given, _ = settle(job({"startupDeadlineSeconds": 60}))
    wire = {"metadata": {"name": "digits-worker-0"}, "spec": {"containers": [{"name": "train"}]}, "status": status}
    told = view(msgspec.convert(wire, WirePod))
    waits = pod(
        phase="Pending", waiting=told.waiting, waiting_message=told.waiting_message, unscheduled=told.unscheduled
    )
    stalled = plan(given, waits, pod(index=1), pod(index=2)).status
    ended = plan(given, waits, pod(index=1), pod(index=2), now=NOW + 60).commit
    for found in (stalled, ended):
        assert found is not None
        assert "xxx" in found.message
        msgspec.convert(msgspec.to_builtins(found), Status)  # the bounds of the types are the CRD's


def test_a_refusal_of_the_spec_fits_into_the_status() -> None:
    resources = {"limits": {"nvidia.com/gpu": LONG}}
    found = plan(job({"template": {"spec": {"containers": [{"name": "t", "image": "i", "resources": resources}]}}}))
    assert found.status is not None
    msgspec.convert(msgspec.to_builtins(found.status), Status)


def test_owner_is_the_uid() -> None:
    _, found = settle(job())
    for made in [*found.objects, *(m.manifest for m in found.create)]:
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (UID, True, False)
