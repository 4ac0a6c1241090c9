"""Probes of kind exec and tcpSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]
Exec = Callable[[list[str], float], Awaitable[int]]
"""Runs a command in the container within some seconds; its exit code, or TimeoutError."""

KINDS = ("startupProbe", "readinessProbe", "livenessProbe")


def unsupported(container: Json) -> str:
    """Why a probe of this container cannot be run here, "" if all can."""
    for kind in KINDS:
        probe = container.get(kind)
        if probe and not ("exec" in probe or "tcpSocket" in probe):
            what = next((name for name in ("httpGet", "grpc") if name in probe), "none")
            return (
                f'container "{container["name"]}": {kind} is of kind {what}; one machine has exec and tcpSocket '
                "(an exec of a small Python script does what httpGet does)"
            )
    return ""


async def check(probe: Json, container: Json, address: str, execute: Exec) -> bool:
    """One try."""
    timeout = float(probe.get("timeoutSeconds") or 1)
    try:
        if "exec" in probe:
            return await execute(probe["exec"]["command"], timeout) == 0
        host = probe["tcpSocket"].get("host") or address
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(host, _port(probe["tcpSocket"]["port"], container))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
    except (OSError, TimeoutError, ValueError):
        return False


def _port(port: int | str, container: Json) -> int:
    for named in container.get("ports") or []:
        if named.get("name") == port:
            return int(named["containerPort"])
    return int(port)


async def follow(
    probe: Json, once: Callable[[], Awaitable[bool]], tell: Callable[[bool], None], *, passed: bool
) -> None:
    """Probe for ever; `tell` of each change of the verdict, which is `passed` at first, by the probe's thresholds.

    A failure is told again each time the failure threshold is reached anew.
    """
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    successes = failures = 0
    while True:
        if await once():
            successes, failures = successes + 1, 0
            if not passed and successes >= (probe.get("successThreshold") or 1):
                passed = True
                tell(True)
        else:
            successes, failures = 0, failures + 1
            if failures >= (probe.get("failureThreshold") or 3):
                passed, failures = False, 0
                tell(False)
        await asyncio.sleep(probe.get("periodSeconds") or 10)
