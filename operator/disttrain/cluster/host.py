"""kopf, in a thread and an event loop of its own: it watches the jobs, and nothing else.

Two habits of kopf ask for that: an ERROR event of the watch other than 410 ends it, and as it ends it cancels every
task of its event loop. So it is started again with back-off, while the control loop goes on beside it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
from msgspec import MsgspecError, json

from ..api.constants import API_VERSION, GROUP, PLURAL, VERSION
from ..api.types import Base
from .errors import ApiError, NotFound
from .informer import SILENCE
from .jobs import AnyJob, convert_job
from .login import Login
from .transport import Api, open_session

log = logging.getLogger(__name__)

Seen = Callable[[str | None, AnyJob], None]
"""Told of each event: its type (None for what a list shows, else ADDED, MODIFIED or DELETED) and the job."""

LAST_BACKOFF = 30.0
CRD_SECONDS = 2.0


def import_kopf() -> Any:
    """kopf without the `kubernetes` package, which it imports where it finds it: 20 MB and 0.4 s for type checks.

    None in `sys.modules` is Python's own way to say that a module is not to be had.
    """
    if "kubernetes" in sys.modules or "kopf" in sys.modules:
        import kopf

        return kopf
    sys.modules["kubernetes"] = None  # type: ignore[assignment]
    try:
        import kopf
    finally:
        del sys.modules["kubernetes"]
    return kopf


class _Named(Base):
    name: str


class _Groups(Base):
    groups: list[_Named]


class _Resources(Base):
    resources: list[_Named]


class KopfHost:
    """Runs kopf until cancelled. `seen` and `started`, told of each start, are called in the control loop's thread."""

    def __init__(
        self,
        login: Login,
        api: Api,
        seen: Seen,
        namespaces: Sequence[str] = (),
        *,
        started: Callable[[], None],
        silence: float = SILENCE,
    ) -> None:
        self._login = login
        self._api = api
        self._seen = seen
        self._namespaces = list(namespaces)
        self._started = started
        self._silence = silence
        self._main = asyncio.get_running_loop()
        self._theirs: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._sessions: list[aiohttp.ClientSession] = []
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Keeps kopf running until cancelled."""
        failures = 0
        while True:
            await self._await_crd()
            began = self._main.time()
            self._ended.clear()
            thread = threading.Thread(target=self._thread, name="kopf", daemon=True)
            thread.start()
            self._started()
            try:
                await self._ended.wait()
            except asyncio.CancelledError:
                self.restart()
                await asyncio.wait_for(self._ended.wait(), 1.5)
                raise
            failures = 0 if self._main.time() - began > 60 else failures + 1
            seconds = min(2.0**failures, LAST_BACKOFF) * random.uniform(0.8, 1.2)
            log.warning("the watch of jobs has ended (%s); again in %.0f s", self._failure or "asked to", seconds)
            await asyncio.sleep(seconds)

    def restart(self) -> None:
        """Ends kopf; `run` starts it again."""
        if self._theirs is not None and self._task is not None:
            try:
                self._theirs.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:
                pass  # its loop has closed just now

    async def _await_crd(self) -> None:
        """Waits for the CRD: kopf, with its own look-out switched off, would never notice that it comes later.

        A group that was made just now may be served before it is listed, and kopf goes by the lists.
        """
        said = False
        while True:
            try:
                groups = json.decode(await self._api.call("GET", "/apis"), type=_Groups).groups
                if any(group.name == GROUP for group in groups):
                    path = f"/apis/{API_VERSION}"
                    resources = json.decode(await self._api.call("GET", path), type=_Resources).resources
                    if any(resource.name == PLURAL for resource in resources):
                        return
            except NotFound:
                pass
            except (ApiError, MsgspecError) as error:
                log.warning("%s", error)
            if not said:
                log.warning("the API server knows no %s: waiting for the CRD %s.%s", API_VERSION, PLURAL, GROUP)
            said = True
            await asyncio.sleep(CRD_SECONDS * random.uniform(0.8, 1.2))

    def _thread(self) -> None:
        self._failure = None
        try:
            asyncio.run(self._operate())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            self._theirs = self._task = None
            try:
                self._main.call_soon_threadsafe(self._ended.set)
            except RuntimeError:
                pass  # the control loop is gone already

    async def _operate(self) -> None:
        kopf = import_kopf()
        registry = kopf.OperatorRegistry()
        kopf.on.login(id="login", registry=registry)(self._log_in)
        kopf.on.event(GROUP, VERSION, PLURAL, id="seen", registry=registry)(self._event)
        self._theirs = asyncio.get_running_loop()
        # Cancelled, not asked to stop: it holds nothing that is worth its second of good-byes.
        self._task = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings(kopf, self._silence),
                standalone=True,
                identity="disttrain",  # else it asks for the user's name, which a container's user may lack
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
            )
        )
        try:
            await self._task
        finally:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            while self._sessions:
                await self._sessions.pop().close()

    async def _log_in(self, **_: Any) -> Any:
        """A session of our own, which we can close. Asked for again after a 401, so the token may have been renewed."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._login.renew(), self._main))
        session = open_session(self._login.credentials, headers=self._login.credentials.headers())
        self._sessions.append(session)
        return import_kopf().AiohttpSession(
            server=self._login.credentials.server,
            default_namespace=self._login.credentials.namespace,
            aiohttp_session=session,
        )

    async def _event(self, event: Any, **_: Any) -> None:
        self._main.call_soon_threadsafe(self._seen, event["type"], convert_job(event["object"]))


def settings(kopf: Any, silence: float) -> Any:
    """kopf's settings; `silence` as in `informer`. Each differs from its default for the reason beside it."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False  # events are ours
    chosen.peering.standalone = True  # a Lease decides, not kopf's peering
    chosen.scanning.disabled = True  # no rights on CRDs and namespaces
    chosen.watching.server_timeout = 270  # below what load balancers allow
    chosen.watching.connect_timeout = 5
    chosen.watching.inactivity_timeout = silence
    chosen.watching.chunk_size = 500  # a list in one piece doubles our memory for a moment
    chosen.networking.request_timeout = 30
    chosen.queueing.idle_timeout = 0.5  # each job has two tasks for so long after an event
    chosen.queueing.exit_timeout = 0.2
    chosen.process.ultimate_exiting_timeout = None  # it would kill the whole process
    return chosen
