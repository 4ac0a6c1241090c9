"""Stories of a job at its worst, from a list of choices; a story that breaks a promise is shrunk to a short one.

python -m simulation.simulate --seeds 20000          many stories
python -m simulation.simulate --seed 4711            one story, told
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from disttrain.api.plan import Reconcile, Settings
from disttrain.lifecycle.view import slot_rounds
from disttrain.reconcile import reconcile

from .operator_ import Lost, Operator, nothing
from .world import ENDED, Violation, World

LENGTH = 160
"""Choices of a story."""
QUIET = 4_000
"""Steps after the last fault in which a job must have come to its end."""


class Choices:
    """A list of numbers to choose by; zeroes where it has ended, and zero is always the dullest choice."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.at = 0

    @property
    def over(self) -> bool:
        """Whether the story has been told."""
        return self.at >= len(self.numbers)

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1."""
        number = self.numbers[self.at] if not self.over else 0
        self.at += 1
        return number % bound


def spec_of(choices: Choices) -> dict[str, Any]:
    """A job of one of several shapes."""
    spec: dict[str, Any] = {
        "framework": "pytorch",
        "worker": {"replicas": 1 + choices.below(3)},
        "template": {"spec": {"containers": [{"name": "t", "image": "i", "command": ["torchrun"]}]}},
        "restart": {"limit": (3, 0, 1, 6)[choices.below(4)]},
        "cleanPods": ("Running", "All", "None")[choices.below(3)],
        "success": ("Leader", "AllWorkers")[choices.below(2)],
        "graceSeconds": (30, 0)[choices.below(2)],
    }
    kind = choices.below(6)
    if kind == 1:
        spec["master"] = {"replicas": 1}
    elif kind == 2:
        spec |= {"framework": "tensorflow", "chief": {}, "ps": {"replicas": 1}, "success": "Leader"}
    elif kind == 3:
        spec |= {"framework": "tensorflow", "evaluator": {}}
    elif kind == 4:
        spec["restart"]["scope"] = ("Pod", "Job")[choices.below(2)]
    return spec


class Story:
    """One run."""

    def __init__(self, numbers: Sequence[int], core: Reconcile = reconcile) -> None:
        self.choices = Choices(numbers)
        self.core = core
        self.world = World(spec_of(self.choices))
        self.serial = 0
        self.operators = [self.begin()]

    def begin(self) -> Operator:
        """A new operator, with consistent lists."""
        self.serial += 1
        self.world.tell(f"operator {self.serial} starts")
        return Operator(f"operator {self.serial}", self.world, self.core, Settings())

    def run(self) -> World:
        """The story, and the quiet after it. Raises Violation."""
        while not self.choices.over:
            self.chaos()
        self.quiet()
        return self.world

    def chaos(self) -> None:
        """One thing that happens."""
        choices, world = self.choices, self.world
        what = choices.below(28)
        pods = sorted(world.pods.values(), key=lambda pod: pod.name)
        pod = pods[choices.below(len(pods))] if pods and what >= 14 else None
        operator = self.operators[choices.below(len(self.operators))]
        if what < 6:
            self.call(operator, "done")
        elif what < 10:
            operator.deliver()
        elif what == 10:
            self.call(operator, "lost before" if choices.below(2) else "lost after")
        elif what == 11:
            world.tell(f"{operator.name} dies")
            self.operators.remove(operator)
            world.unwatch(operator.watch)
            self.operators = self.operators or [self.begin()]
        elif what == 12:
            if len(self.operators) < 2:
                self.operators.append(self.begin())
        elif what == 13:
            world.now += (1, 10, 31, 200)[choices.below(4)]
        elif pod is None:
            self.edit()
        elif what < 20:
            world.run(pod)
        elif what < 22:
            world.fail(pod, (1, 1, 137, 127)[choices.below(4)])
        elif what == 22 and pod.role != "ps":
            world.succeed(pod)
        elif what == 23:
            world.evict(pod)
        elif what == 24:
            world.remove(pod)
        elif what < 27:
            world.reap(pod)
        else:
            self.edit()

    def edit(self) -> None:
        """The user, or an administrator, does something."""
        choices, world = self.choices, self.world
        what = choices.below(5)
        if what == 1:
            world.scale(1 + choices.below(4))
        elif what == 2:
            world.recreate()
        elif what == 3:
            world.quota = not world.quota
            world.tell(f"pods are {'taken' if world.quota else 'refused: quota'}")
        elif what == 4:
            world.collect()

    def call(self, operator: Operator, how: str) -> None:
        """One step of an operator: its next call is made, or its answer lost."""
        call = next(operator.work)
        if call is nothing:
            return
        while True:
            try:
                if how != "lost before":
                    call()
                if how != "done":
                    self.world.tell(f"{operator.name} gets no answer ({how} it took effect)")
                    raise Lost
                return
            except Violation:
                raise
            except Exception as error:
                call = operator.work.throw(error)
                how = "done"

    def quiet(self) -> None:
        """No more faults: pods run and end well, one operator works. The job must end, and be cleaned up."""
        world = self.world
        world.tell("from here on nothing goes wrong")
        world.quota = True
        world.collect()
        operator = self.operators[0]
        for other in self.operators[1:]:
            world.unwatch(other.watch)
        for step in range(QUIET):
            while operator.deliver():
                pass
            self.call(operator, "done")
            if not operator.idle or operator.watch:
                continue
            if self.over():
                self.check_end()
                return
            world.now += 5
            world.collect()
            for pod in sorted(world.pods.values(), key=lambda pod: pod.name):
                if pod.deletion is not None and pod.deletion <= world.now:
                    world.reap(pod)
                elif pod.phase == "Pending":
                    world.run(pod)
                elif pod.phase == "Running" and step % 7 == 0 and pod.deletion is None and pod.role != "ps":
                    world.succeed(pod)
        raise Violation(f"the job did not end: {world.job and world.job.status.message}")

    def over(self) -> bool:
        """Whether nothing is left to happen."""
        job = self.world.job
        if job is None:
            return not self.world.pods
        stopped = all(pod.deletion is None for pod in self.world.pods.values())
        grace = job.spec.grace_seconds + 1
        end = job.status.state in ENDED
        return end and stopped and self.world.now > _seconds(job.status.completion_time) + grace

    def check_end(self) -> None:
        """What is left is what `cleanPods` says."""
        job = self.world.job
        assert job is not None
        for pod in self.world.pods.values():
            policy = job.spec.clean_pods
            if pod.round < slot_rounds(job, [pod.slot])[pod.slot]:
                raise Violation(f"{pod.name} of an earlier round was left behind")
            if pod.role == "ps" and not pod.terminal:
                raise Violation(f"{pod.name} serves on after the end")
            if policy == "All" or (policy == "Running" and not pod.terminal):
                raise Violation(f"cleanPods is {policy}, and {pod.name} ({pod.phase}) was left behind")


def _seconds(text: str | None) -> float:
    from disttrain.api.times import seconds

    return seconds(text) if text else 0.0


def numbers_of(seed: int) -> list[int]:
    """The choices of a seed."""
    source = random.Random(seed)
    return [source.randrange(1 << 16) for _ in range(LENGTH)]


def broken(numbers: Sequence[int], core: Reconcile = reconcile) -> tuple[Violation, list[str]] | None:
    """The promise that a story breaks, and the story."""
    story = Story(numbers, core)
    try:
        story.run()
    except Violation as violation:
        return violation, story.world.story
    return None


def shrink(numbers: Sequence[int], core: Reconcile = reconcile) -> list[int]:
    """A shorter and duller list of choices that breaks a promise as well."""
    best = list(numbers)
    size = len(best) // 2
    while size:
        at = 0
        while at < len(best):
            draft = best[:at] + best[at + size :]
            if broken(draft, core):
                best = draft
            else:
                at += size
        size //= 2
    for at in range(len(best)):
        for value in (0, best[at] % 28):
            draft = [*best[:at], value, *best[at + 1 :]]
            if draft != best and broken(draft, core):
                best = draft
                break
    return best


def search(seeds: Sequence[int], core: Reconcile = reconcile, tick: Callable[[int], None] | None = None) -> int | None:
    """The first seed whose story breaks a promise."""
    for seed in seeds:
        if tick:
            tick(seed)
        if broken(numbers_of(seed), core):
            return seed
    return None


def tell(seed: int, core: Reconcile = reconcile) -> str:
    """The shrunk story of a seed, as a timeline; empty where it keeps all promises."""
    found = broken(numbers_of(seed), core)
    if found is None:
        return ""
    short = broken(shrink(numbers_of(seed), core), core)
    violation, story = short or found
    again = f"replay: python -m simulation.simulate --seed {seed}   (in tests/)"
    if len(story) > 120:
        story = [*story[:60], f"          ... {len(story) - 100} lines ...", *story[-40:]]
    return "\n".join([*story, f"          BROKEN: {violation}", again])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many stories")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="tell this story")
    options = parser.parse_args()
    if options.seed is not None:
        text = tell(options.seed)
        print(text or "\n".join([*Story(numbers_of(options.seed)).run().story, "every promise was kept"]))
        return bool(text)
    began = time.perf_counter()

    def tick(seed: int) -> None:
        if seed % 5_000 == 0 and seed > options.start:
            print(f"{seed - options.start} of {options.seeds} stories", file=sys.stderr, flush=True)

    found = search(range(options.start, options.start + options.seeds), tick=tick)
    if found is not None:
        print(tell(found))
        return 1
    took = time.perf_counter() - began
    print(f"{options.seeds} stories, every promise kept, {options.seeds / took:.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
