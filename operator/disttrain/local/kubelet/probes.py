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
    """Why a probe or hook of this container cannot be run here, "" if all can."""
    hooks = container.get("lifecycle") or {}
    for kind, asked, known in (
        *((kind, container.get(kind), ("exec", "tcpSocket")) for kind in KINDS),
        ("lifecycle.postStart", hooks.get("postStart"), ()),
        ("lifecycle.preStop", hooks.get("preStop"), ("exec", "sleep")),
    ):
        if asked and not any(name in asked for name in known):
            what = next((name for name in ("exec", "httpGet", "grpc", "tcpSocket", "sleep") if name in asked), "none")
            return (
                f'container "{container["name"]}": {kind} is of kind {what}; one machine has '
                f"{' and '.join(known) or 'none'} there (an exec of a few lines of Python does what httpGet does)"
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


class Probing:
    """The probes of one run of a container: `started` is said once, `ready` at each change, `failed` to give it up."""

    def __init__(
        self,
        container: Json,
        once: Callable[[Json], Awaitable[bool]],
        *,
        started: Callable[[], None],
        ready: Callable[[bool], None],
        failed: Callable[[], None],
    ) -> None:
        self._container, self._once = container, once
        self._started, self._ready, self._failed = started, ready, failed
        self._tasks: list[asyncio.Task[None]] = []
        if "startupProbe" in container:
            self._follow("startupProbe", self._startup, passed=False)
        else:
            self._startup(True)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _startup(self, passed: bool) -> None:
        if not passed:
            self._failed()
            return
        self.stop()  # the startup probe has done its work
        self._started()
        if "readinessProbe" in self._container:
            self._follow("readinessProbe", self._ready, passed=False)
        else:
            self._ready(True)
        if "livenessProbe" in self._container:
            self._follow("livenessProbe", lambda alive: None if alive else self._failed(), passed=True)

    def _follow(self, kind: str, tell: Callable[[bool], None], *, passed: bool) -> None:
        probe = self._container[kind]
        self._tasks.append(asyncio.create_task(follow(probe, lambda: self._once(probe), tell, passed=passed)))
