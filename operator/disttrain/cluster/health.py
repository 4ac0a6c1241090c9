"""/healthz, /readyz and /metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web

from .metrics import Metrics


class HealthServer:
    """The server, on `listen` (HOST:PORT; port 0 takes any free one, then in `port`).

    Alive means that no stream has been silent for longer than its bound; `silent()` names those that are, with their
    seconds. Ready means that the caches are full.
    """

    def __init__(
        self, listen: str, metrics: Metrics, *, silent: Callable[[], Mapping[str, float]], ready: Callable[[], bool]
    ) -> None:
        self._listen = listen
        self._metrics = metrics
        self._silent = silent
        self._ready = ready
        self.port = 0
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._text),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def __aenter__(self) -> Self:
        host, port = parse_listen(self._listen)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        silent = self._silent()
        if silent:
            words = ", ".join(f"{name} has been silent for {seconds:.0f} s" for name, seconds in silent.items())
            return web.Response(status=503, text=f"{words}\n")
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        if not self._ready():
            return web.Response(status=503, text="the caches are not full yet\n")
        return web.Response(text="ok\n")

    async def _text(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, [HOST]:PORT or :PORT. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {listen!r} is no HOST:PORT, such as 127.0.0.1:8080 or :8080")
    return host.strip("[]"), int(port)
