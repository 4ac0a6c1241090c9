"""Runs a job on this machine, from its manifest to its end: starts a cluster of its own, applies the manifest, follows
the job and stops everything. The exit code is 0 only if the job has Succeeded, 1 if it failed, 130 after Ctrl-C.

The pods are processes of this machine, in the Python environment at hand: images are not pulled. Beside one
DistTrainJob the file may hold what it needs, such as ConfigMaps, Secrets and claims.

Each run has a folder, ./disttrain-runs/<job>-<time>/, with the logs of its pods (logs/), of the operator and what was
applied. Claims are folders in ./disttrain-runs/volumes/ that all runs share, so that --resume finds the checkpoints:
the training gets the folder of the run that it goes on from in DISTTRAIN_RESUME_FROM, and its own, which is empty at
first, in DISTTRAIN_CHECKPOINT_DIR.

One Ctrl-C asks the pods to write their checkpoints and stop; a second one kills them. Nothing is left running.

examples:
  disttrain run job.yaml
  disttrain run job.yaml --resume                 go on from the last run's checkpoints
  disttrain run job.yaml --map /app=./src         the pods find ./src at /app: command: [torchrun, /app/train.py]
  disttrain run job.yaml --python ./venv/bin/python --timeout 30m
  disttrain run job.yaml --output json            one line of JSON at the end; the rest goes to stderr
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import TextIO

from . import manifest as manifests
from . import preflight, runs
from .console import CliError, fail, mapping, output_option, print_json, span
from .runner import Outcome, Runner, Wanted
from .view import choose

RUNS = Path("disttrain-runs")
UNITS = {"s": 1, "m": 60, "h": 3600}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `disttrain run` takes."""
    add = parser.add_argument
    add("file", metavar="FILE", help="the manifest; - reads it from stdin")
    add("--resume", action="store_true", help="go on from the checkpoints of the last run of this job")
    add("--replicas", type=_count, metavar="N", help="workers, in place of spec.worker.replicas")
    add(
        "--map",
        action="append",
        default=[],
        type=mapping,
        metavar="PATH=HERE",
        help="what the pods find at PATH is HERE on this machine; repeatable",
    )
    add("--cpu", action="store_true", help="run without the accelerators that the job asks for, one process a pod")
    add("--python", metavar="FILE", help="the Python whose environment the pods get; default: this command's own")
    add("--timeout", type=_duration, metavar="TIME", help="stop the job after so long, such as 90s, 10m or 2h")
    add("--runs", type=Path, default=RUNS, metavar="FOLDER", help="default: ./disttrain-runs")
    output_option(parser, "json")


def command(options: argparse.Namespace) -> int:
    """`disttrain run`."""
    manifest = manifests.load(options.file)
    if options.replicas is not None:
        manifest = manifests.resized(manifest, options.replicas)
    if options.cpu:
        manifest = manifests.without_accelerators(manifest)
    resumes = ""
    if options.resume:
        last = runs.last(options.runs, manifest.name, manifest.namespace)
        manifest = manifests.resumed(manifest, last.facts["uid"])
        resumes = runs.shown(last.path)
    python = preflight.interpreter(options.python)
    preflight.check(python, manifests.words(manifest))
    preflight.check_programs(python, manifest.framework, manifests.words(manifest))
    wanted = Wanted(
        manifest=manifest,
        python=python,
        maps=dict(options.map),
        cpu=options.cpu,
        timeout=options.timeout,
        runs=options.runs.resolve(),
        again=shlex.join(_again(options)),
        json=options.output == "json",
        resumes=resumes,
    )
    return asyncio.run(_run(wanted))


async def _run(wanted: Wanted) -> int:
    out = sys.stderr if wanted.json else sys.stdout
    run = runs.Run.new(wanted.runs, wanted.manifest.name, wanted.manifest.namespace)
    (run.path / "manifest.yaml").write_text(wanted.manifest.dump(), encoding="utf-8")
    shown = choose(out)
    try:
        shown.note(f"{wanted.manifest.name}: starting the one-machine cluster")
        outcome = await Runner(wanted, run, shown).go()
    except CliError:
        if not run.facts.get("uid"):
            run.discard()  # nothing was created: there is nothing to look at
        raise
    finally:
        shown.close()
    run.save(
        state=outcome.state,
        message=outcome.words,
        progress=outcome.progress,
        result=outcome.result,
        exitCode=outcome.code,
        ended=time.time(),
    )
    _report(wanted, run, outcome, out)
    return outcome.code


def _again(options: argparse.Namespace) -> list[str]:
    """The words of a command that goes on from this run's checkpoints, in the same way."""
    words = ["disttrain", "run", options.file, "--resume"]
    if options.replicas is not None:
        words += ["--replicas", str(options.replicas)]
    for there, here in options.map:
        words += ["--map", f"{there}={runs.shown(here)}"]
    if options.cpu:
        words += ["--cpu"]
    if options.python is not None:
        words += ["--python", options.python]
    if options.runs != RUNS:
        words += ["--runs", str(options.runs)]
    return words


def _report(wanted: Wanted, run: runs.Run, outcome: Outcome, out: TextIO) -> None:
    """Says how it ended, and where to look."""
    name, after = wanted.manifest.name, span(run.facts["ended"] - run.facts["started"])
    if outcome.code == 0:
        numbers = f": {outcome.numbers}" if outcome.numbers else ""
        print(f"{name} has succeeded after {after}{numbers}", file=out)
    else:
        if outcome.tail:
            print(f"\nThe last lines of {outcome.pod}:", *outcome.tail, "", sep="\n  ", file=out, flush=True)
        fail(f"{name} {outcome.words}")
    print(f"Logs, the manifest and run.json are in {runs.shown(run.path)}", file=out)
    if outcome.code and outcome.checkpoints:
        print(f"To go on from its last checkpoint: {wanted.again}", file=out)
    out.flush()
    if wanted.json:
        print_json(run.facts, lines=True)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _duration(text: str) -> float:
    """Seconds of `90`, `90s`, `10m` or `2h`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 90s, 10m or 2h")
    return seconds
