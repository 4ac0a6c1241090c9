"""Runs the operator until it is told to stop (SIGINT or SIGTERM), in or out of a cluster.

It finds the cluster as kubectl does: --kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config. Every
option may come from the environment instead, as DISTTRAIN_ and its name (DISTTRAIN_LISTEN, DISTTRAIN_LOG_FORMAT, ...;
DISTTRAIN_NAMESPACE takes several, with commas between them); the command line wins.

examples:
  disttrain operator                                     the current context's cluster, all namespaces
  disttrain operator -n team-a -n team-b                 two namespaces only
  disttrain operator --listen 0.0.0.0:8080 --log-format json
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from .console import CliError, usage

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")
YES, NO = ("1", "true", "yes"), ("", "0", "false", "no")


def arguments(parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ) -> None:
    """What `disttrain operator` takes."""

    def default(name: str, value: object) -> object:
        return environ.get(f"DISTTRAIN_{name}") or value

    add = parser.add_argument
    add(
        "--kubeconfig",
        metavar="FILE",
        default=default("KUBECONFIG", None),
        help="default: $KUBECONFIG, the pod's service account or ~/.kube/config",
    )
    add("--context", default=default("CONTEXT", None), help="of the kubeconfig; default: its current one")
    add("-n", "--namespace", action="append", metavar="NAME", help="look after this one only; repeatable; default: all")
    add(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        default=default("LISTEN", "127.0.0.1:8080"),
        help="of /healthz, /readyz and /metrics; none: do not listen; default: 127.0.0.1:8080",
    )
    add("--workers", type=_count, default=default("WORKERS", 24), help="jobs worked on at once; default: 24")
    add("--writes", type=_count, default=default("WRITES", 32), help="calls that change something at once; default: 32")
    add(
        "--progress-seconds",
        type=_seconds,
        metavar="S",
        default=default("PROGRESS_SECONDS", 30.0),
        help="between two looks at a running leader's log; 0: never; default: 30",
    )
    add(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="act only while this operator holds a lease, so that a second one may stand by; default: no",
    )
    add("--lease-name", metavar="NAME", default=default("LEASE_NAME", "disttrain"), help="default: disttrain")
    add(
        "--lease-namespace",
        metavar="NAME",
        default=default("LEASE_NAMESPACE", ""),
        help="default: that of the service account or context",
    )
    add(
        "--allot-ports",
        action="store_true",
        default=None,
        help="give every job ports of its own, for pods that share one machine's addresses",
    )
    add("--log-level", choices=LEVELS, default=default("LOG_LEVEL", "info"), help="default: info")
    add("--log-format", choices=FORMATS, default=default("LOG_FORMAT", "plain"), help="default: plain")
    add("--parent", type=int, help=argparse.SUPPRESS)  # of `run` and `local`: end when that process has ended


def command(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> int:
    """`disttrain operator`."""
    if options.parent:
        from .children import end_with

        end_with(options.parent)
    for name, value, known in (("LEVEL", options.log_level, LEVELS), ("FORMAT", options.log_format, FORMATS)):
        if value not in known:  # argparse checks the command line only
            raise usage(f"DISTTRAIN_LOG_{name} is {value!r}; it may be {', '.join(known)}")
    from .. import main
    from ..cluster.login import LoginError

    chosen = main.Options(
        kubeconfig=options.kubeconfig,
        context=options.context,
        namespaces=tuple(options.namespace or _list(environ.get("DISTTRAIN_NAMESPACE", ""))),
        listen=options.listen,
        workers=options.workers,
        writes=options.writes,
        progress_seconds=options.progress_seconds,
        leader_elect=_flag(environ, "DISTTRAIN_LEADER_ELECT") if options.leader_elect is None else options.leader_elect,
        lease_name=options.lease_name,
        lease_namespace=options.lease_namespace,
        allot_ports=_flag(environ, "DISTTRAIN_ALLOT_PORTS") if options.allot_ports is None else True,
        log_level=options.log_level,
        log_format=options.log_format,
    )
    try:
        return main.run(chosen)
    except LoginError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"the operator cannot listen on {options.listen}: {error}; choose another --listen") from None


def _list(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _flag(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").lower()
    if value not in YES + NO:
        raise usage(f"{name} is {value!r}; it may be true or false")
    return value in YES


def _address(text: str) -> str:
    if text == "none":
        return ""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080, nor none")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of at least 0")
    return value
