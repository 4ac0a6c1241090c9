"""Calls to the API server: bytes in, bytes out. Errors are those of `errors`.

No client-side rate limit: whoever calls bounds its calls in number at once, the API server's own fairness does the
rest, and its Retry-After is obeyed by all calls together.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Literal, Protocol, Self

import aiohttp
from yarl import URL

from .. import __version__
from .errors import NoAnswer, ServerError, TooManyRequests, Unauthorized, refused
from .login import Credentials, Login

Method = Literal["GET", "POST", "PATCH", "DELETE"]
MERGE = "application/merge-patch+json"
JSON = "application/json"

AGENT = f"disttrain/{__version__}"
TRIES = 4
"""How often a call that the API server turned away unprocessed (429, 503 with Retry-After) is made."""
MAX_PAUSE = 60.0


class Api(Protocol):
    """What the control loop needs of a transport."""

    async def call(self, method: Method, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        """The body of the answer. `path` carries its query, both quoted. Raises ApiError."""

    def watch(self, path: str, silence: float) -> AsyncIterator[bytes]:
        """Lines of a stream, until the server ends it or is silent for so many seconds. Raises ApiError."""


def open_session(credentials: Credentials, headers: dict[str, str] | None = None) -> aiohttp.ClientSession:
    """A session for the API server; `headers` go with every call."""
    secure = credentials.server.startswith("https")
    connector = aiohttp.TCPConnector(
        limit=0,
        ssl=credentials.tls() if secure else False,
        # Before this version of Python, a TLS connection that is closed in the middle of a watch is never let go.
        enable_cleanup_closed=sys.version_info < (3, 12, 7),
    )
    return aiohttp.ClientSession(
        connector=connector,
        # Compression costs the API server more than the bytes cost the network.
        headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": AGENT, **(headers or {})},
        proxy=credentials.proxy,
        trust_env=False,
    )


class Transport:
    """An aiohttp session with our credentials. `observe(verb, code)` is told of each answer, code 0 where none came."""

    def __init__(
        self,
        login: Login,
        *,
        timeout: float = 30.0,
        observe: Callable[[str, int], None] | None = None,
    ) -> None:
        self._login = login
        self._observe = observe or (lambda verb, code: None)
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=5)
        self._resume = 0.0
        self._server = login.credentials.server
        self._session = open_session(login.credentials)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, method: Method, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        """The body of the answer. `path` carries its query, both quoted. Raises ApiError."""
        renewed = False
        for last in (*[False] * (TRIES - 1), True):
            await self._pause()
            try:
                return await self._once(method, path, body, content_type)
            except TooManyRequests:
                if last:
                    raise
            except Unauthorized:
                if renewed or last:
                    raise
                renewed = True
                await self._login.renew()
        raise AssertionError("unreachable")

    async def _once(self, method: Method, path: str, body: bytes | None, content_type: str) -> bytes:
        headers = (await self._login.fresh()).headers()
        if body is not None:
            headers["Content-Type"] = content_type
        code = 0
        try:
            async with self._session.request(
                method,
                URL(self._server + path, encoded=True),
                data=body,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                code = answer.status
                content = await answer.read()
                if code < 300:
                    return content
                self._heed(answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            self._observe(method, code)
        raise self._error(answer, content)

    async def watch(self, path: str, silence: float) -> AsyncIterator[bytes]:
        """Lines of a stream, until the server ends it or is silent for so many seconds. Raises ApiError."""
        await self._pause()
        headers = (await self._login.fresh()).headers()
        code = 0
        try:
            async with self._session.get(
                URL(self._server + path, encoded=True),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=silence),
                allow_redirects=False,
                read_bufsize=1 << 20,
            ) as answer:
                code = answer.status
                self._observe("WATCH", code)
                if code >= 300:
                    self._heed(answer)
                    raise self._error(answer, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line
                if rest:  # a log's last line may have no newline
                    yield rest
        except Unauthorized:
            await self._login.renew()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not code:
                self._observe("WATCH", 0)
            raise NoAnswer(f"WATCH {path}: {error or type(error).__name__}") from error

    async def _pause(self) -> None:
        """Waits until the API server wants to hear of us again."""
        clock = asyncio.get_running_loop().time
        while (rest := self._resume - clock()) > 0:  # noqa: ASYNC110 -- it may be put off meanwhile
            await asyncio.sleep(rest)

    def _heed(self, answer: aiohttp.ClientResponse) -> None:
        """Makes all calls wait as long as the answer says, and a little more so that they do not return at once."""
        if answer.status not in (429, 503):
            return
        try:
            seconds = float(answer.headers.get("Retry-After", "1" if answer.status == 429 else "0"))
        except ValueError:
            seconds = 1.0
        pause = min(seconds, MAX_PAUSE) * random.uniform(1.0, 1.2)
        self._resume = max(self._resume, asyncio.get_running_loop().time() + pause)

    @staticmethod
    def _error(answer: aiohttp.ClientResponse, content: bytes) -> Exception:
        error = refused(answer.status, content)
        if answer.status == 503 and "Retry-After" in answer.headers:
            return TooManyRequests(503, error.reason, error.message)
        if 300 <= answer.status < 400:
            return ServerError(answer.status, "Redirect", f"redirected to {answer.headers.get('Location')}")
        return error
