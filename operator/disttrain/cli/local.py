"""Starts, stops or looks at the one-machine cluster: a Kubernetes API on loopback, a kubelet that runs pods as
processes of this machine, and the operator. With its kubeconfig kubectl works on it as on any other cluster.

Its objects stay from one `up` to the next; claims are folders in its state folder. It is for one user: the API wants a
token that only the kubeconfig has.

examples:
  eval "$(disttrain local up)"       start it, and make kubectl use it
  kubectl apply -f job.yaml
  disttrain get
  disttrain local down
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from ..local import cluster
from ..local.client import Client
from . import preflight
from .children import operator_command
from .console import CliError, mapping, output_option, print_json
from .session import install_crd

UP = """Starts the one-machine cluster in the background, or finds it running. The line that makes kubectl use it goes
to stdout, all else to stderr: eval "$(disttrain local up)"."""
DOWN = """Stops the one-machine cluster and its pods, which get their grace period. Its objects and claims stay for the
next `up`; remove the state folder to begin anew."""
STATUS = "Says whether the one-machine cluster runs, where, and with which pods. The exit code is 1 if it does not run."


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `disttrain local` takes."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    up = actions.add_parser("up", help="start it; prints the line that makes kubectl use it", allow_abbrev=False)
    down = actions.add_parser("down", help="stop it: pods get their grace period", allow_abbrev=False)
    status = actions.add_parser("status", help="say whether it runs; exit code 1 if not", allow_abbrev=False)
    for action, words in ((up, UP), (down, DOWN), (status, STATUS)):
        action.description = words
        action.add_argument(
            "--state", type=Path, metavar="FOLDER", help="its state folder; default: ~/.local/state/disttrain"
        )
    up.add_argument("--python", metavar="FILE", help="the Python whose environment the pods get; default: ours")
    up.add_argument(
        "--map", action="append", default=[], type=mapping, metavar="PATH=HERE",
        help="what the pods find at PATH is HERE on this machine; repeatable",
    )  # fmt: skip
    up.add_argument("--cpu", action="store_true", help="run pods without the accelerators that they ask for")
    up.add_argument("--port", type=int, default=0, help="of the API; default: the last one, or any that is free")
    output_option(up, "json")
    output_option(status, "json")


def command(options: argparse.Namespace) -> int:
    """`disttrain local`."""
    state = options.state.resolve() if options.state else cluster.default_state()
    try:
        return {"up": _up, "down": _down, "status": _status}[options.action](options, state)
    except cluster.ClusterError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"the state folder {state} cannot be used ({error}): choose another with --state") from None


def _up(options: argparse.Namespace, state: Path) -> int:
    chosen = cluster.Options(
        python=preflight.interpreter(options.python), maps=dict(options.map), cpu=options.cpu, workdir=Path.cwd()
    )
    before = cluster.status(state)
    now = cluster.up(state, chosen, [operator_command("{kubeconfig}", "{pid}")], port=options.port)
    asyncio.run(_prepare(now))
    if options.output == "json":
        print_json(_facts(now))
        return 0
    print(_words(now), file=sys.stderr)
    if before.running and (options.python or options.map or options.cpu or options.port):
        print("It ran before, so these options have no effect: `disttrain local down` first.", file=sys.stderr)
    print(f"export KUBECONFIG={shlex.quote(str(now.kubeconfig))}", flush=True)
    return 0


async def _prepare(now: cluster.Status) -> None:
    async with Client(now.url, (now.state / "token").read_text()) as client:
        await install_crd(client)


def _down(options: argparse.Namespace, state: Path) -> int:
    if cluster.down(state):
        print(f"the one-machine cluster is stopped; its state stays in {state}")
    else:
        print(f"no one-machine cluster runs in {state}")
    return 0


def _status(options: argparse.Namespace, state: Path) -> int:
    now = cluster.status(state)
    if options.output == "json":
        print_json(_facts(now))
    else:
        print(_words(now))
        if now.kubeconfig:
            print(f"export KUBECONFIG={shlex.quote(str(now.kubeconfig))}")
    return 0 if now.running else 1


def _facts(now: cluster.Status) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(asdict(now), default=str))
    return found


def _words(now: cluster.Status) -> str:
    if not now.running:
        return f"no one-machine cluster runs in {now.state}: `disttrain local up` starts it"
    pods = ", ".join(f"{count} {phase}" for phase, count in sorted(now.pods.items())) or "none"
    words = f"the one-machine cluster runs at {now.url} (process {now.pid}); pods: {pods}"
    if now.isolation != "namespaces":
        words += f"\npods see this machine's own files here ({now.isolation})"
    return words
