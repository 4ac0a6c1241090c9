"""The core: a job, its pods and the time make a plan. Pure: no I/O, no clock, no randomness.

The story, in order; the first that applies wins:

 1. a job that is being deleted, or is another controller's, is left alone;
 2. a job that has ended is cleaned up, and never made to run again;
 3. a spec that cannot run is said so;
 4. pods of a later round than the job's mean that the job in hand is old;
 5. the first round begins, and so does one after a suspension;
 6. success ends the job; a suspension takes its pods; a deadline ends it;
 7. a lost pod begins the next round, or ends the job, once it is sure that it is not the cache that is old;
 8. another size begins the next round;
 9. pods that are missing are made, pods of earlier rounds go, and the status says how it stands.

5 to 8 only write the status (`Plan.commit`): what they decide is done by 9, in a later pass, once it has been written.
So a decision holds whoever carries it out, and is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from .api import names
from .api.constants import MANAGED_BY
from .api.plan import Creation, Deletion, Event, Manifest, Plan, Refusal, Seen, Settings
from .api.pods import PodView, Slot
from .api.times import stamp
from .api.types import Job, RoundCause, Status
from .frameworks import FRAMEWORKS, Framework, World, objects, world
from .lifecycle import (
    avoidance,
    backoff,
    cleanup,
    conditions,
    counters,
    deadlines,
    events,
    resize,
    restart,
    stuck,
    success,
    suspend,
    transitions,
    ttl,
)
from .lifecycle.view import View, slot_rounds

ENDED = ("Succeeded", "Failed")
FINAL_REFUSAL = "InvalidTemplate"
"""Reason of `Accepted=False` that only a change of the spec can cure. `InvalidSpec` is judged anew each time."""


def reconcile(job: Job, seen: Seen, now: float, settings: Settings) -> Plan:
    """The plan for a job. See the module's docstring."""
    if job.metadata.deletion_timestamp or job.spec.managed_by != MANAGED_BY:
        return Plan(finished=True)
    pods = [pod for pod in seen.pods if pod.owner == job.metadata.uid]
    if job.status.state in ENDED:
        return _ended(job, pods, now, FRAMEWORKS.get(job.spec.framework))
    framework = FRAMEWORKS.get(job.spec.framework)
    if framework is None:
        known = ", ".join(FRAMEWORKS)
        return _refused(job, now, f"spec.framework is {job.spec.framework}; this version runs {known}")
    try:
        return _going(job, pods, seen, now, framework, settings)
    except world.Undecided as problem:
        return _refused(job, now, str(problem))


def _going(job: Job, pods: list[PodView], seen: Seen, now: float, framework: Framework, settings: Settings) -> Plan:
    """The plan for a job that has not ended. Raises Undecided."""
    status, version = job.status, int(job.metadata.resource_version)
    newest = max((pod.round for pod in pods), default=0)
    if status.round and newest > status.round:
        return Plan(stale=True)
    if status.state == "Suspended" or (job.spec.suspend and not status.round):
        if job.spec.suspend:
            return _suspended(job, pods, now)
        cause: RoundCause = "Resume" if status.round else "Start"
        advice = [] if status.round else _advice(job, framework, settings)
        return _begin(job, seen, now, framework, cause=cause, message="The job goes on.", extra=advice)
    if not status.round:
        # A status that was wiped while pods ran: their round goes on.
        return _begin(
            job,
            seen,
            now,
            framework,
            cause="Start",
            round_=max(newest, 1),
            message="The job starts.",
            extra=_advice(job, framework, settings),
        )
    sizes = world.wanted(job, framework)
    places = world.slots(resize.committed(job, sizes), framework)
    view = _view(job, seen, places, pods, now, settings)
    if won := success.reached(view):
        done = structs.replace(job, status=_counted(view))
        end = transitions.end(done, now, "Succeeded", "Succeeded", f"The job has succeeded: {won}.")
        return _commit(
            job, transitions.with_result(end, view.current.get(view.leader) or view.departed.get(view.leader), now)
        )
    if job.spec.suspend:
        return _suspended(job, pods, now)
    trouble = stuck.stall(view, seen.refusal)
    if late := deadlines.exceeded(view, trouble.message if trouble else None):
        done = structs.replace(job, status=_counted(view))
        return _commit(job, transitions.end(done, now, "Failed", late.reason, late.message))
    if view.launched and (unsure := [name for name in _names(view) if seen.absent.get(name, -1) < version]):
        return Plan(look=unsure)
    if verdict := restart.judge(view):
        return _lost(view, verdict, seen, framework)
    change = resize.asked(job, sizes)
    this_world = world.build(job, places, view.rounds, framework, settings)
    if not change and not view.launched and this_world.size != status.world_size:
        change = f"processes from {status.world_size} to {this_world.size}"
    if change:
        message = f"The job is resized, {change}: it restarts at the new size."
        return _begin(job, seen, now, framework, cause="Resize", message=message)
    if seen.refusal and seen.refusal.reason == "Predecessor" and seen.refusal.name in _names(view):
        # A refusal of another name would be an earlier round's, dealt with already.
        message = "Pods of a deleted job of the same name still hold their names; the next round has names of its own."
        return _begin(job, seen, now, framework, cause=status.round_cause or "Start", message=message)
    return _act(view, this_world, framework, seen.refusal)


def _view(job: Job, seen: Seen, places: list[Slot], pods: Sequence[PodView], now: float, settings: Settings) -> View:
    rounds = slot_rounds(job, places)
    current = {pod.slot: pod for pod in pods if rounds.get(pod.slot) == pod.round}
    departed = {
        pod.slot: pod
        for pod in seen.departed
        if pod.owner == job.metadata.uid and rounds.get(pod.slot) == pod.round and pod.slot not in current
    }
    kept = {pod.uid for pod in current.values()}
    return View(
        job=job,
        now=now,
        slots=places,
        rounds=rounds,
        current=current,
        departed=departed,
        old=[pod for pod in pods if pod.uid not in kept],
        progress=seen.progress or job.status.progress,
        reads_progress=settings.reads_progress,
    )


def _names(view: View) -> list[str]:
    """Names of the pods that the world lacks."""
    lacking = [slot for slot in view.missing if slot not in view.departed]
    return [names.pod(view.job.metadata.name, slot.role, slot.number, view.rounds[slot]) for slot in lacking]


def _commit(job: Job, status: Status, extra: Sequence[Event] = ()) -> Plan:
    return Plan(commit=status, events=[*events.between(job.status, status), *extra])


def _begin(
    job: Job,
    seen: Seen,
    now: float,
    framework: Framework,
    *,
    cause: RoundCause,
    message: str,
    round_: int | None = None,
    stay: Mapping[Slot, int] | None = None,
    extra: Sequence[Event] = (),
) -> Plan:
    """Begins a round at the size that the spec asks for. The slots in `stay` keep their pods, of the rounds given."""
    places = world.slots(world.wanted(job, framework), framework)
    _, total = world.size(job, places, framework)
    status = transitions.begin(
        job,
        now,
        round_=round_ or job.status.round + 1,
        cause=cause,
        slots=places,
        stay=stay or {},
        world_size=total,
        message=message,
    )
    return _commit(job, transitions.with_progress(status, seen.progress, now), extra)


def _advice(job: Job, framework: Framework, settings: Settings) -> list[Event]:
    """What is told once, as the job starts."""
    told = [Event(reason="FixedFlag", message=words, warning=True) for words in framework.warnings(job)]
    if job.spec.checkpoints is None and job.spec.restart.limit:
        words = "spec.checkpoints is not set: after a restart or a resize the training begins at step 0."
        told.append(Event(reason="NoCheckpoints", message=words))
    if job.spec.progress_deadline_seconds is not None and not settings.reads_progress:
        words = "spec.progressDeadlineSeconds has no effect: this operator reads no logs (--progress-seconds is 0)."
        told.append(Event(reason="ProgressNotRead", message=words, warning=True))
    return told


def _lost(view: View, verdict: restart.Verdict, seen: Seen, framework: Framework) -> Plan:
    """The next round, or the end, after a loss."""
    job = structs.replace(view.job, status=_counted(view))
    if verdict.fails:
        end = transitions.end(job, view.now, "Failed", verdict.loss.reason or "Error", verdict.message)
        return _commit(view.job, transitions.restarted(view, verdict, end))
    stay = _staying(view, verdict.loss.slot, framework)
    begun = _begin(job, seen, view.now, framework, cause="Restart", message=verdict.message, stay=stay)
    assert begun.commit is not None
    return _commit(view.job, transitions.restarted(view, verdict, begun.commit))


def _staying(view: View, lost: Slot, framework: Framework) -> dict[Slot, int]:
    """The slots that keep their pods when one is lost, with their rounds."""
    job = view.job
    if resize.asked(job, world.wanted(job, framework)):
        return {}
    written = job.role(lost.role)
    scope = (written.restart_policy if written else None) or job.spec.restart.scope
    if scope == "Job":
        return {}
    going = {lost} if scope == "Pod" else framework.restarts(job, lost, view.slots)
    return {slot: round_ for slot, round_ in view.rounds.items() if slot not in going}


def _act(view: View, this_world: World, framework: Framework, refusal: Refusal | None) -> Plan:
    """Makes what is missing, deletes what is past, and says how it stands."""
    job, now = view.job, view.now
    if refusal and refusal.generation != job.metadata.generation:
        refusal = None
    accepted = conditions.get(job.status, "Accepted")
    held = (
        accepted is not None
        and accepted.status == "False"
        and accepted.reason == FINAL_REFUSAL
        and accepted.observed_generation == job.metadata.generation
    )
    final = refusal is not None and refusal.reason == "Invalid"
    pause = backoff.due(job) if view.missing else None
    until = max(refusal.retry_at if refusal else 0.0, pause or 0.0)
    waits = now < until
    avoid = avoidance.nodes(job.status)
    create: list[Creation] = []
    replaced: dict[Slot, PodView] = {}
    # Two old pods that answer to one name: both go before a third is made.
    named = [pod for pod in view.old if pod.live and not pod.terminal]
    crowded = len({pod.slot for pod in named}) < len(named)
    due = _due(view, framework)
    if due and not (held or final or waits or crowded):
        missing = set(due)
        replaced = {pod.slot: pod for pod in sorted(view.old, key=_names_first) if pod.slot in missing}
        create = [
            Creation(manifest=objects.pod(this_world, slot, framework, avoid), replaces=replaced.get(slot))
            for slot in due
        ]
        # What has nothing to give way to is made first: it is there soonest, and it tries the template out.
        create.sort(key=lambda made: made.replaces is not None and not made.replaces.terminal)
    going = {pod.uid for pod in replaced.values()}
    delete = [
        Deletion(pod=pod, unlist=pod.live and not pod.terminal)
        for pod in view.old
        if pod.uid not in going and (pod.deletion is None or (pod.live and not pod.terminal))
    ]
    status = _status(view, refusal, held, pause)
    changed = status if status != job.status else None
    leader = view.current.get(view.leader)
    made_first: list[Manifest] = []
    if create and not view.launched:
        made_first += [] if job.status.launched else [objects.service(job)]
        made_first += framework.objects(this_world)
    return Plan(
        objects=made_first,
        create=create,
        delete=delete,
        status=changed,
        write_after=0.0
        if changed and events.matters(job.status, changed)
        else max(1.0, min(30.0, len(view.slots) / 2)),
        events=events.between(job.status, changed) if changed else (),
        wake=_earliest(until if waits else None, deadlines.alarm(view)),
        read_progress=leader if leader and leader.phase == "Running" and leader.deletion is None else None,
    )


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _due(view: View, framework: Framework) -> list[Slot]:
    """The missing slots whose time has come."""
    late = framework.late(view.job)
    others = [slot for slot in view.slots if slot.role not in late]
    ready = all(slot in view.completed or (slot in view.current and view.current[slot].ready) for slot in others)
    return [slot for slot in view.missing if ready or slot.role not in late]


def _names_first(pod: PodView) -> tuple[bool, int]:
    """Orders a slot's old pods so that the one which a successor must wait for comes last."""
    return pod.live and not pod.terminal, pod.round


def _status(view: View, refusal: Refusal | None, held: bool, pause: float | None) -> Status:
    """How it stands, in words."""
    job, now, generation = view.job, view.now, view.job.metadata.generation
    status = transitions.with_progress(_counted(view), view.progress, now)
    total, running = len(view.slots), view.running
    state = "Running" if running == total else transitions.STATE_OF[status.round_cause or "Start"]
    message = _message(view, state)
    if pause is not None and now < pause:
        message += f" New pods are made at {stamp(pause)} (restart.backoff)."
    if not view.missing:
        status = structs.replace(status, launched=status.round)
    listed = status.conditions
    if refusal and refusal.reason in ("Invalid", "NameTaken"):
        words = f"{refusal.kind} {refusal.name} was refused: {refusal.message}"
        listed = conditions.put(listed, "Accepted", "False", refusal.word, words, now, generation)
        message = words
    elif held:
        before = conditions.get(job.status, "Accepted")
        message = before.message if before else message
    elif view.current:
        listed = conditions.put(listed, "Accepted", "True", "PodsCreated", "The pods are created.", now, generation)
    refused = held or refusal is not None
    if refused and not view.current and status.round_cause == "Start":
        state = "Pending"
    trouble = stuck.stall(view, refusal)
    if trouble:
        message = trouble.message
        listed = conditions.put(listed, "Stalled", "True", trouble.reason, trouble.message, now, generation)
    elif any(c.type == "Stalled" for c in listed):
        listed = conditions.put(listed, "Stalled", "False", "Proceeding", "Nothing stands in the way.", now, generation)
    runs = state == "Running"
    words = message if not trouble else _message(view, state)
    listed = conditions.put(listed, "Running", "True" if runs else "False", state, words, now, generation)
    return structs.replace(
        status,
        state=state,
        message=message,
        conditions=listed,
        observed_generation=generation,
        running_time=status.running_time or (stamp(now) if runs else None),
    )


def _message(view: View, state: str) -> str:
    total, running = len(view.slots), view.running
    pods = "pod" if total == 1 else "pods"
    if state == "Running":
        return f"All {total} {pods} run." if total > 1 else "The pod runs."
    begun = f"Round {view.job.status.round}: " if view.job.status.round > 1 else ""
    return f"{begun}{running} of {total} {pods} run."


def _counted(view: View) -> Status:
    found: dict[str, Any] = counters.roles(view)
    return structs.replace(view.job.status, ready=counters.summary(found), **found)


def _suspended(job: Job, pods: list[PodView], now: float) -> Plan:
    """No pods, until the job is resumed."""
    if job.status.state != "Suspended":
        return _commit(job, suspend.begin(job, now))
    return Plan(delete=[Deletion(pod=pod, unlist=False) for pod in pods if pod.deletion is None])


def _refused(job: Job, now: float, words: str) -> Plan:
    """A spec that passed admission and yet cannot run. `words` may hold any of the user's, of any length."""
    words, generation = words[:1024], job.metadata.generation
    listed = conditions.put(job.status.conditions, "Accepted", "False", "InvalidSpec", words, now, generation)
    status = structs.replace(job.status, conditions=listed, message=words, observed_generation=generation)
    if status == job.status:
        return Plan()
    return Plan(status=status, events=events.between(job.status, status))


def _ended(job: Job, pods: list[PodView], now: float, framework: Framework | None) -> Plan:
    """Clean-up. Nothing here makes a pod."""
    endless = framework.endless(job) if framework else ()
    delete = [Deletion(pod=pod, unlist=False) for pod in cleanup.doomed(job, pods, now, endless)]
    found: dict[str, Any] = counters.final(job, pods)
    status = structs.replace(job.status, ready=counters.summary(found), **found)
    changed = status if status != job.status else None
    due, death = cleanup.due(job, pods, endless), ttl.due(job)
    if death is not None:
        death = max(death, due)  # the pods that may still finish go with the job
        if now >= death:
            return Plan(remove=True)
    return Plan(
        delete=delete,
        status=changed,
        write_after=max(1.0, min(30.0, len(pods) / 2)),
        wake=_earliest(due if due > now and not delete else None, death),
        finished=not delete and changed is None and now >= due and death is None,
    )
