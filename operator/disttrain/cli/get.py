"""Lists jobs as kubectl does, or tells all about one: its state, pods, progress and failures.

It talks to the cluster that kubectl would talk to; after `disttrain local up` that may be the one on this machine.

examples:
  disttrain get                      jobs of the current namespace
  disttrain get -A                   jobs of all namespaces
  disttrain get digits               one job with its pods
  disttrain get digits -o json       the object, for a script
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from ..api.crd import COLUMNS
from ..api.pods import WirePod, view
from ..api.times import seconds
from ..api.types import Job
from . import connection
from .console import output_option, print_json, span, table
from .phrases import remark

Object = dict[str, Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `disttrain get` takes."""
    parser.add_argument("job", nargs="?", metavar="JOB", help="name of one job; default: all")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="jobs of every namespace")
    connection.arguments(parser)
    output_option(parser, "json", "yaml")


def command(options: argparse.Namespace) -> int:
    """`disttrain get`."""
    return asyncio.run(_get(options))


async def _get(options: argparse.Namespace) -> int:
    async with connection.connect(options) as cluster:
        if options.job:
            job = await cluster.job(options.job)
            pods = await cluster.pods(job) if options.output == "text" else []
            document: Object = job
            text = describe(job, pods, time.time())
        else:
            jobs = await cluster.jobs(everywhere=options.all_namespaces)
            document = {"apiVersion": "v1", "kind": "List", "items": jobs}
            text = listing(jobs, time.time(), namespaces=options.all_namespaces)
            if not jobs:
                text = "no jobs" + ("" if options.all_namespaces else f" in namespace {cluster.namespace}")
    if options.output == "json":
        print_json(document)
    elif options.output == "yaml":
        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    else:
        print(text)
    return 0


def listing(jobs: Sequence[Object], now: float, *, namespaces: bool = False) -> str:
    """The jobs in a table with the columns that kubectl shows."""
    first = ["NAMESPACE"] * namespaces + ["NAME"]
    rows = [[*first, *(name.upper() for name, _, _, _ in COLUMNS)]]
    for job in jobs:
        meta = job["metadata"]
        cells = [_cell(job, kind, path, now) for _, kind, path, _ in COLUMNS]
        rows.append([*([meta["namespace"]] * namespaces), meta["name"], *cells])
    return table(rows)


def _cell(job: Object, kind: str, path: str, now: float) -> str:
    value: Any = job
    for key in path.strip(".").split("."):
        value = (value or {}).get(key)
    if kind == "date":
        return span(now - seconds(value)) if value else ""
    return str(value if value is not None else 0 if kind == "integer" else "")


def describe(found: Object, pods: Sequence[Object], now: float) -> str:
    """One job in full."""
    job = msgspec.convert(found, Job)
    status = job.status
    facts = [
        ("Job", f"{job.metadata.namespace}/{job.metadata.name} ({job.spec.framework})"),
        ("State", status.state),
        ("Message", status.message or "the operator has not taken it up yet"),
        ("Ready", status.ready),
        ("Round", str(status.round)),
        ("Restarts", f"{status.restarts} (limit {job.spec.restart.limit} in a row)"),
        ("Progress", status.progress_text),
        ("Result", ", ".join(f"{key} {value}" for key, value in (status.result or {}).items())),
        ("Age", span(now - seconds(job.metadata.creation_timestamp))),
    ]
    width = max(len(name) for name, _ in facts) + 1
    parts = ["\n".join(f"{name + ':':<{width}} {value}" for name, value in facts if value)]
    if pods:
        views = sorted((view(msgspec.convert(pod, WirePod)) for pod in pods), key=lambda p: (p.role, p.index, p.round))
        rows = [["POD", "ROLE", "INDEX", "PHASE", "READY", "ROUND", ""]]
        for pod in views:
            ready = "yes" if pod.ready else "no"
            rows.append([pod.name, pod.role, str(pod.index), pod.phase, ready, str(pod.round), remark(pod)])
        parts.append(table(rows))
    if status.failures:
        rows = [["FAILED POD", "REASON", "EXIT CODE", "ROUND", "CHARGED"]]
        for failure in status.failures:
            code = "" if failure.exit_code is None else str(failure.exit_code)
            rows.append([failure.pod, failure.reason, code, str(failure.round), "yes" if failure.charged else "no"])
        parts.append(table(rows))
    return "\n\n".join(parts)
