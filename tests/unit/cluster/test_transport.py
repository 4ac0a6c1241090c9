"""Calls over HTTP against a small server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from disttrain.cluster import errors
from disttrain.cluster.errors import ApiError, NoAnswer, Refused
from disttrain.cluster.login import REREAD_SECONDS, Credentials, Login
from disttrain.cluster.transport import MERGE, Transport

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status(code: int, reason: str = "", headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "the server's words"}
    return web.json_response(body, status=code, headers=headers)


@asynccontextmanager
async def serving(handler: Handler, login: Callable[[str], Login] | None = None) -> AsyncIterator[Transport]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        made = login(url) if login else Login(Credentials(server=url, token="secret"))
        async with Transport(made, timeout=5, observe=lambda verb, code: calls.append((verb, code))) as transport:
            yield transport
    finally:
        await runner.cleanup()
        calls.clear()


calls: list[tuple[str, int]] = []


async def test_a_call() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["User-Agent"].startswith("disttrain/")
        assert request.headers["Content-Type"] == MERGE
        assert request.raw_path == "/api/v1/x%2Fy?a=b%20c"
        return web.Response(body=b"answer:" + await request.read())

    async with serving(handler) as api:
        assert await api.call("PATCH", "/api/v1/x%2Fy?a=b%20c", b"body", MERGE) == b"answer:body"
        assert calls == [("PATCH", 200)]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.Invalid),
        (422, "Invalid", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (500, "InternalError", errors.ServerError),
        (503, "", errors.ServerError),
        (302, "", errors.ServerError),
    ],
)
async def test_errors(code: int, reason: str, kind: type[Refused]) -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(code, reason)

    async with serving(handler) as api:
        with pytest.raises(Refused) as caught:
            await api.call("GET", "/")
        assert type(caught.value) is kind
        assert caught.value.code == code


async def test_an_error_that_is_no_status() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>bad gateway</html>\n")

    async with serving(handler) as api:
        with pytest.raises(errors.ServerError, match="502: <html>bad gateway</html>"):
            await api.call("GET", "/")


@pytest.mark.parametrize("code", [429, 503])
async def test_turned_away_calls_come_back_and_all_wait(code: int) -> None:
    times: list[float] = []
    clock = asyncio.get_running_loop().time

    async def handler(request: web.Request) -> web.Response:
        times.append(clock())
        if len(times) == 1:
            return status(code, headers={"Retry-After": "0.3"})
        return web.Response(text=await request.text())

    async with serving(handler) as api:
        first = asyncio.create_task(api.call("POST", "/", b"a"))
        while not times:  # noqa: ASYNC110 -- the server has no event for it
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert await api.call("POST", "/", b"b") == b"b"
        assert await first == b"a"
        assert times[1] - times[0] >= 0.25


async def test_turned_away_for_good() -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(429, "TooManyRequests", headers={"Retry-After": "0"})

    async with serving(handler) as api:
        with pytest.raises(errors.TooManyRequests):
            await api.call("GET", "/")
        assert len(calls) == 4


async def test_a_lost_answer() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(handler) as api:
        with pytest.raises(NoAnswer):
            await api.call("POST", "/", b"")
        assert calls[0] == ("POST", 0)


async def test_nobody_there() -> None:
    async with Transport(Login(Credentials(server="http://127.0.0.1:9"))) as api:
        with pytest.raises(NoAnswer, match="GET /x"):
            await api.call("GET", "/x")
        with pytest.raises(NoAnswer, match="WATCH /x"):
            async for _ in api.watch("/x", 1):
                pass


async def test_a_token_that_ran_out_is_renewed_once() -> None:
    tokens = iter(["second", "third"])

    async def handler(request: web.Request) -> web.Response:
        good = request.headers["Authorization"] == "Bearer second"
        return web.Response(text="ok") if good else status(401, "Unauthorized")

    def login(url: str) -> Login:
        made = Login(Credentials(server=url, token="first"), lambda: Credentials(server=url, token=next(tokens)))
        made._due -= REREAD_SECONDS / 2
        return made

    async with serving(handler, login) as api:
        assert await api.call("GET", "/") == b"ok"


async def test_a_stream_is_cut_into_lines() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in (b'{"a', b'":1}\n{"b":2}\n', b"{", b"}" * 300_000 + b"\n"):
            await answer.write(part)
            await asyncio.sleep(0.01)
        return answer

    async with serving(handler) as api:
        lines = [line async for line in api.watch("/", 5)]
        assert lines == [b'{"a":1}', b'{"b":2}', b"{" + b"}" * 300_000]


async def test_a_silent_stream_is_given_up() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"{}\n")
        await asyncio.sleep(30)
        return answer

    async with serving(handler) as api:
        lines = api.watch("/", 0.1)
        assert await anext(lines) == b"{}"
        with pytest.raises(NoAnswer):
            await anext(lines)


async def test_a_stream_that_is_refused() -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(410, "Expired")

    async with serving(handler) as api:
        with pytest.raises(errors.Gone):
            async for _ in api.watch("/", 1):
                pass


def test_the_hierarchy_is_the_one_drawn() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+)  +\w", errors.__doc__ or "", re.MULTILINE)
    parents = {0: Exception}
    for indent, name in drawn:
        kind = getattr(errors, name)
        assert kind.__bases__ == (parents[len(indent)],)
        parents[len(indent) + 4] = kind
    there = {one.__name__ for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ApiError)}
    assert {name for _, name in drawn} == there


def test_secrets_are_not_printed() -> None:
    shown = repr(Credentials(server="https://api", token="t0ken", password="passw", key=b"k3y", certificate=b"c3rt"))
    assert "https://api" in shown
    assert not any(word in shown for word in ("t0ken", "passw", "k3y", "c3rt"))
