"""Prints the log of one of a job's pods: of the leader, unless another is asked for.

A rank is one of the training's: with several processes a pod, the pod that runs it. Logs are of the current round.

examples:
  disttrain logs digits                            the leader's
  disttrain logs digits --rank 1 -f                follow the pod of rank 1
  disttrain logs digits --role worker --index 1    by its place in the job
  disttrain logs digits --tail 20 --container sidecar
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from ..api.constants import LABEL_INDEX, LABEL_LEADER, LABEL_ROLE, LABEL_ROUND
from ..cluster.errors import Invalid, NotFound
from . import connection
from .console import CliError, usage

Object = dict[str, Any]
Place = tuple[str, int]
"""Role and index."""
MEMBERS = ("master", "chief", "worker")
"""Roles whose pods train, in the order of their ranks."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `disttrain logs` takes."""
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument("--rank", type=int, metavar="R", help="the pod that runs this rank of the training")
    parser.add_argument("--role", help="the pod of this role: master, worker, ...; default with --index: worker")
    parser.add_argument("--index", type=int, metavar="I", help="the pod of this index within its role, from 0")
    parser.add_argument("-c", "--container", metavar="NAME", help="default: the first, which runs the training")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the pod ends")
    parser.add_argument("--tail", type=int, metavar="N", help="the last N lines only")
    connection.arguments(parser)


def command(options: argparse.Namespace) -> int:
    """`disttrain logs`."""
    if options.rank is not None and (options.role or options.index is not None):
        raise usage("--rank and --role or --index name a pod each: give one of the two")
    return asyncio.run(_logs(options))


async def _logs(options: argparse.Namespace) -> int:
    async with connection.connect(options) as cluster:
        job = await cluster.job(options.job)
        pod = choose(job, await cluster.pods(job), rank=options.rank, role=options.role, index=options.index)
        meta = pod["metadata"]
        query = {"container": options.container or pod["spec"]["containers"][0]["name"]}
        if options.tail is not None:
            query["tailLines"] = str(options.tail)
        if options.follow:
            query["follow"] = "true"
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log?{urlencode(query)}"
        try:
            await _print(cluster, path, follow=options.follow)
        except NotFound:
            raise CliError(
                f"pod {meta['name']} has just gone, and its log with it: try again for its successor"
            ) from None
        except Invalid as error:
            raise CliError(f"pod {meta['name']} has no log: {error.message}") from None
    return 0


async def _print(cluster: connection.Connection, path: str, *, follow: bool) -> None:
    out = sys.stdout.buffer
    if follow:
        async for line in cluster.api.watch(path, silence=0):
            out.write(line + b"\n")
            out.flush()
    else:
        out.write(await cluster.api.call("GET", path))
        out.flush()


def choose(
    job: Object, pods: Sequence[Object], *, rank: int | None = None, role: str | None = None, index: int | None = None
) -> Object:
    """The pod asked for: of each place the newest round's. Raises CliError where there is none."""
    newest: dict[Place, Object] = {}
    for pod in sorted(pods, key=_round):
        newest[_place(pod)] = pod
    name = job["metadata"]["name"]
    state = (job.get("status") or {}).get("state", "Pending")
    if not newest:
        raise CliError(f"job {name} is {state} and has no pods, so there is no log to be had")
    ranked = _ranked(job, newest)
    if rank is not None:
        found = [place for place in newest if rank in ranked[place]]
        wanted = f"of rank {rank}"
    elif role or index is not None:
        found = [place for place in newest if place == (role or "worker", index or 0)]
        wanted = f"{role or 'worker'}-{index or 0}"
    else:
        found = [place for place, pod in newest.items() if _labels(pod).get(LABEL_LEADER) == "true"]
        wanted = "that leads"
    if not found:
        have = ", ".join(f"{role}-{number}" + _in_words(ranked[role, number]) for role, number in sorted(newest))
        raise CliError(f"job {name} is {state} and has no pod {wanted}; it has: {have}")
    return newest[found[0]]


def _ranked(job: Object, pods: Mapping[Place, Object]) -> Mapping[Place, range]:
    """The ranks of each pod: as its environment says, else in the order of its place."""
    told = {place: ranks(pod) for place, pod in pods.items()}
    if any(told.values()):
        return told
    members = sorted((place for place in pods if place[0] in MEMBERS), key=lambda p: (MEMBERS.index(p[0]), p[1]))
    procs = max(1, ((job.get("status") or {}).get("worldSize") or 0) // max(1, len(members)))
    return told | {place: range(at * procs, (at + 1) * procs) for at, place in enumerate(members)}


def _labels(pod: Object) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels


def _round(pod: Object) -> int:
    return int(_labels(pod).get(LABEL_ROUND) or 0)


def _place(pod: Object) -> Place:
    labels = _labels(pod)
    return labels.get(LABEL_ROLE, ""), int(labels.get(LABEL_INDEX) or 0)


def ranks(pod: Object) -> range:
    """The ranks that a pod runs, from the environment that the operator gave it; empty where it has none."""
    found = {entry.get("name"): entry.get("value") for entry in pod["spec"]["containers"][0].get("env") or []}
    node, procs = found.get("NODE_RANK") or "", found.get("PET_NPROC_PER_NODE") or "1"
    if not node.isdecimal() or not procs.isdecimal():
        return range(0)
    return range(int(node) * int(procs), (int(node) + 1) * int(procs))


def _in_words(found: range) -> str:
    if not found:
        return ""
    return f" (rank {found[0]})" if len(found) == 1 else f" (ranks {found[0]} to {found[-1]})"
