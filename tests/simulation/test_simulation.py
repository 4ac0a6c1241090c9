"""The core keeps its promises in every story, and the stories notice when it does not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from disttrain import reconcile as core
from disttrain.api.plan import Plan, Reconcile, Seen, Settings
from disttrain.api.types import Job

from .simulate import numbers_of, search, shrink, tell

SEEDS = int(os.environ.get("SEEDS", "1500"))
Mutant = Callable[[Job, Seen, float, Settings], Plan]


def test_fixed_stories() -> None:
    found = search(range(SEEDS))
    assert found is None, "\n" + tell(found)


def test_fresh_stories() -> None:
    start = random.SystemRandom().randrange(10**9)
    found = search(range(start, start + SEEDS // 3))
    assert found is None, "\n" + tell(found)


# Deliberate bugs: each must be found, or the stories prove nothing.


def charges_twice(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """A restart costs two."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.commit and plan.commit.restarts > job.status.restarts:
        return structs.replace(plan, commit=structs.replace(plan.commit, restarts=plan.commit.restarts + 1))
    return plan


def forgets_to_charge(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """A restart costs nothing."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.commit and plan.commit.restarts > job.status.restarts:
        return structs.replace(plan, commit=structs.replace(plan.commit, restarts=job.status.restarts))
    return plan


def charges_infrastructure(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """An eviction is charged."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.commit and plan.commit.round_cause == "Restart" and plan.commit.round > job.status.round:
        return structs.replace(plan, commit=structs.replace(plan.commit, restarts=job.status.restarts + 1))
    return plan


def charges_without_a_round(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """The charge is written, the round is not: the failure is seen again."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.commit and plan.commit.restarts > job.status.restarts:
        return structs.replace(plan, commit=structs.replace(plan.commit, round=job.status.round))
    return plan


def revives_the_dead(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """An ended job whose pods are gone runs again."""
    if job.status.state == "Failed" and not seen.pods:
        return core.reconcile(
            structs.replace(job, status=structs.replace(job.status, state="Running")), seen, now, settings
        )
    return core.reconcile(job, seen, now, settings)


def trusts_its_cache(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """A pod that the cache lacks is a lost one."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.look:
        absent = dict.fromkeys(plan.look, int(job.metadata.resource_version))
        return core.reconcile(job, structs.replace(seen, absent={**seen.absent, **absent}), now, settings)
    return plan


def forgets_how_pods_ended(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """What a pod that is gone had ended with does not count."""
    return core.reconcile(job, structs.replace(seen, departed=()), now, settings)


def leaves_names_behind(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """A successor is made while the name still resolves to its predecessor."""
    plan = core.reconcile(job, seen, now, settings)
    return structs.replace(plan, create=[structs.replace(made, replaces=None) for made in plan.create])


def never_cleans_up(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """Pods run on after the end."""
    plan = core.reconcile(job, seen, now, settings)
    return structs.replace(plan, delete=()) if job.status.state in core.ENDED else plan


def leaves_the_past_behind(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """Pods of slots that a resize took away stay."""
    plan = core.reconcile(job, seen, now, settings)
    return structs.replace(plan, delete=[gone for gone in plan.delete if gone.pod.round == job.status.round])


def ignores_the_limit(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """Restarts without end."""
    spec = structs.replace(job.spec, restart=structs.replace(job.spec.restart, limit=1000))
    return core.reconcile(structs.replace(job, spec=spec), seen, now, settings)


def skips_a_round(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """Rounds go up by two."""
    plan = core.reconcile(job, seen, now, settings)
    if plan.commit and plan.commit.round > job.status.round > 0:
        return structs.replace(plan, commit=structs.replace(plan.commit, round=plan.commit.round + 1))
    return plan


def stands_still(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """A refused pod is never tried again."""
    plan = core.reconcile(job, seen, now, settings)
    return structs.replace(plan, create=()) if seen.refusal else plan


MUTANTS: list[Mutant] = [
    charges_twice,
    forgets_to_charge,
    charges_infrastructure,
    charges_without_a_round,
    revives_the_dead,
    trusts_its_cache,
    forgets_how_pods_ended,
    leaves_names_behind,
    never_cleans_up,
    leaves_the_past_behind,
    ignores_the_limit,
    skips_a_round,
    stands_still,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_mutant_is_found(mutant: Any) -> None:
    found = search(range(2_000), mutant)
    assert found is not None, f"2,000 stories did not notice: {mutant.__doc__}"


def test_a_broken_story_is_shrunk_and_told() -> None:
    mutant: Reconcile = charges_twice
    seed = search(range(2_000), mutant)
    assert seed is not None
    short = shrink(numbers_of(seed), mutant)
    assert len(short) < 60
    text = tell(seed, mutant)
    assert "BROKEN: restarts went from 0 to 2" in text
    assert f"--seed {seed}" in text
