"""`disttrain-horovodrun`: horovodrun with the flags that it needs and takes from no environment.

    disttrain-horovodrun python -m disttrain_training.horovod.train_torch
    disttrain-horovodrun --mpi --fusion-threshold-mb 32 python train.py
    disttrain-horovodrun --min-np 2 --max-np 8 python train.py

Adds `-np` and the hosts; to an elastic training (`--min-np`, `--max-np`) the discovery script and a cool-down, without
which a host that failed once is shut out for good; and the network interface where it is known. What is given wins.
Prints the command that comes of it, hands signals on and exits with horovodrun's code.

Output is passed on as it comes, but for progress lines: they lose horovodrun's `[0]<stdout>:`, so that they begin with
their mark, and the final one is left as the container's termination message. Standard library only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..progress import MARK, leave_termination_message

BOOLEAN = frozenset(
    [
        "-v", "--version", "-cb", "--check-build", "--disable-cache", "--verbose", "--autotune",
        "--no-autotune", "--tcp", "--stall-check", "--no-stall-check", "--gloo", "--mpi", "--jsrun",
        "-prefix-timestamp", "--prefix-output-with-timestamp", "--log-with-timestamp",
        "--log-without-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp",
        "--hierarchical-allreduce", "--no-hierarchical-allreduce", "--hierarchical-allgather",
        "--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce", "--timeline-mark-cycles",
        "--no-timeline-mark-cycles", "--mpi-threads-disable", "--no-mpi-threads-disable", "-h", "--help",
    ]
)  # fmt: skip
"""Flags of horovodrun 0.28 that take no value; all others take one, --blacklist-cooldown-range two."""
COUNT = {"-np", "--num-proc"}
ELASTIC = {"--min-np", "--min-num-proc", "--max-np", "--max-num-proc", "--host-discovery-script"}
HOSTS = {"-H", "--hosts", "-hostfile", "--hostfile", "--host-discovery-script"}
INTERFACE = {"--network-interface", "--network-interfaces"}
COOLDOWN_SECONDS = ("5", "30")
_PREFIXED = re.compile(rb"\[\d+(?:,\d+)?\]<stdout>:\s*(?=" + MARK.encode() + rb")")


class Refused(Exception):
    """Why it cannot be run; the message says what would do."""


def split(arguments: Sequence[str]) -> tuple[set[str], list[str]]:
    """The flags given, without values, and the command behind them."""
    flags: set[str] = set()
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        flag, equals, _ = rest.pop(0).partition("=")
        if flag == "--":
            break
        flags.add(flag)
        if not equals and flag not in BOOLEAN:
            del rest[: 2 if flag == "--blacklist-cooldown-range" else 1]
    return flags, rest


def missing(flags: set[str], environ: Mapping[str, str]) -> list[str]:
    """What is to be put before the flags given. Raises Refused outside a job, where hosts are not given."""
    added: list[str] = []
    if not flags & COUNT:
        added += ["-np", _get(environ, "DISTTRAIN_WORLD_SIZE", "-np")]
    if flags & ELASTIC:
        if "--host-discovery-script" not in flags:
            added += ["--host-discovery-script", _get(environ, "DISTTRAIN_DISCOVERY_SCRIPT", "--host-discovery-script")]
        if "--blacklist-cooldown-range" not in flags:
            added += ["--blacklist-cooldown-range", *COOLDOWN_SECONDS]
    elif not flags & HOSTS:
        added += ["-H", hosts(Path(_get(environ, "DISTTRAIN_HOSTFILE", "-H")))]
    if not flags & INTERFACE and (interface := environ.get("HOROVOD_GLOO_IFACE") or container_interface()):
        added += ["--network-interface", interface]
    if "--disable-cache" not in flags:
        added.append("--disable-cache")  # of hosts that were once reached: a pod's are new
    return added


def hosts(file: Path) -> str:
    """`host:slots,...` of a hostfile in either format: `host slots=N` or `host:N`."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    return ",".join(re.sub(r"\s+slots=", ":", line) for line in lines if line and not line.startswith("#"))


def container_interface(classes: Path = Path("/sys/class/net")) -> str:
    """eth0 where there is one: what a pod's interface is called everywhere. Else horovodrun finds out by itself."""
    return "eth0" if (classes / "eth0").exists() else ""


def relay(source: IO[bytes], sink: IO[bytes]) -> str:
    """Copies line by line. Returns the JSON of the last final progress line, empty where there was none."""
    final = ""
    for given in source:
        line = _PREFIXED.sub(b"", given, count=1)
        sink.write(line)
        sink.flush()
        if line.startswith(MARK.encode()) and b'"final":true' in line:
            final = line[len(MARK) :].decode(errors="replace").strip()
    return final


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Returns horovodrun's exit code, 128 + N after signal N."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    program = environ.get("DISTTRAIN_HOROVODRUN") or shutil.which("horovodrun", path=environ.get("PATH"))
    if program is None:
        print("disttrain-horovodrun: there is no horovodrun in PATH: install horovod", file=sys.stderr)
        return 127
    flags, command = split(given)
    try:
        added = missing(flags, environ) if command else []
    except Refused as refused:
        print(f"disttrain-horovodrun: {refused}", file=sys.stderr)
        return 2
    whole = [program, *added, *given]
    print("disttrain-horovodrun:", shlex.join(["horovodrun", *whole[1:]]), flush=True)
    with subprocess.Popen(whole, stdout=subprocess.PIPE, env=dict(environ)) as process:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: process.send_signal(number))
        assert process.stdout is not None
        if final := relay(process.stdout, sys.stdout.buffer):
            leave_termination_message(final, environ)
        code = process.wait()
    return code if code >= 0 else 128 - code


def _get(environ: Mapping[str, str], name: str, flag: str) -> str:
    if value := environ.get(name):
        return value
    raise Refused(f"{name} is not set, as it is in the launcher of a job: give {flag}")


def script() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    script()
