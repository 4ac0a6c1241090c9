"""The operator: wires kopf, the pod informer, the queue, the workers and the health server together."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from msgspec import MsgspecError

from .api.plan import Reconcile, Settings
from .cluster.controller import Controller
from .cluster.errors import ApiError
from .cluster.events import Recorder
from .cluster.health import HealthServer
from .cluster.host import KopfHost
from .cluster.informer import SILENCE, PodInformer
from .cluster.jobs import AnyJob, Key
from .cluster.lease import Lease, LeaseLost, identity
from .cluster.login import Login, login
from .cluster.metrics import Metrics
from .cluster.progress import ProgressReader
from .cluster.transport import Transport
from .cluster.workqueue import WorkQueue
from .reconcile import reconcile

log = logging.getLogger("disttrain")

RESYNC_SECONDS = 600.0
START_SECONDS = 3.0
"""How long kopf may take to start until what it has told is compared with a list."""
STOP_SECONDS = 10.0
"""How long the calls under way may take as the operator stops."""
POD_SILENCE = 240.0
JOB_SILENCE = 2 * RESYNC_SECONDS + 120
"""Seconds of silence of a stream after which /healthz says 503. Each resync checks the watch of jobs."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What whoever starts the operator chooses."""

    kubeconfig: str | None = None
    """Path of a kubeconfig; where absent $KUBECONFIG, the pod's service account or ~/.kube/config."""
    context: str | None = None
    namespaces: Sequence[str] = ()
    """Namespaces to look after; all where empty."""
    listen: str = "127.0.0.1:8080"
    """HOST:PORT of /healthz, /readyz and /metrics; empty: none."""
    workers: int = 24
    """Jobs that are worked on at once."""
    writes: int = 32
    """Calls that make, change or delete objects of jobs, at once."""
    progress_seconds: float = 30.0
    """Seconds between two looks at a running leader's log; 0: never."""
    silence_seconds: float = SILENCE
    """Seconds without any event or bookmark after which a watch is taken for dead and begun anew."""
    leader_elect: bool = False
    """Act only while this operator holds a lease, so that another may stand by."""
    lease_name: str = "disttrain"
    lease_namespace: str = ""
    """Empty: the namespace of the service account or context."""
    allot_ports: bool = False
    """Give every job ports of its own: several pods share one machine's addresses."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["plain", "json"] = "plain"


def run(options: Options) -> int:
    """Runs the operator until SIGINT, SIGTERM or the loss of its lease. Returns the exit code. Raises LoginError."""
    set_up_logging(options)
    credentials = login(options.kubeconfig, options.context)

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Operator(options, credentials).run(stop)

    try:
        asyncio.run(until_told())
    except LeaseLost as error:
        # Whoever runs it starts it anew: nothing that it believed while it led is carried into the time after.
        log.error("%s: ending", error)
        return 1
    return 0


class Operator:
    """The parts, and how they hold together. To be made within a running event loop."""

    def __init__(self, options: Options, credentials: Login, core: Reconcile = reconcile) -> None:
        self._options = options
        self._clock = asyncio.get_running_loop().time
        self._confirmed = self._clock()
        self._resync = asyncio.Event()
        self.metrics = Metrics()
        self.api = Transport(credentials, observe=self.metrics.call)
        self.queue: WorkQueue[Key] = WorkQueue()
        # On connections and pauses of its own: a busy API server's Retry-After to the workers must not cost the lease.
        self._lease_api = Transport(credentials, observe=self.metrics.call)
        self.lease: Lease | None = None
        if options.leader_elect:
            namespace = options.lease_namespace or credentials.credentials.namespace
            self.lease = Lease(self._lease_api, namespace, options.lease_name, identity(), time.time)
        self.recorder = Recorder(self.api, time.time)
        self.informer = PodInformer(
            self.api,
            lambda old, new: self.controller.pod_changed(old, new),
            lambda last, version: self.controller.pod_vanished(last, version),
            options.namespaces,
            silence=options.silence_seconds,
        )
        self.controller = Controller(
            self.api,
            self.informer.cache,
            self.queue,
            core,
            Settings(allot_ports=options.allot_ports, reads_progress=options.progress_seconds > 0),
            recorder=self.recorder,
            meter=self.metrics,
            now=time.time,
            writes=options.writes,
        )
        self.host = KopfHost(
            credentials,
            self.api,
            self._seen,
            options.namespaces,
            started=self._resync.set,
            silence=options.silence_seconds,
        )
        self.health: HealthServer | None = None
        if options.listen:
            self.health = HealthServer(
                options.listen, self.metrics, silent=self._silent, ready=lambda: self.informer.synced
            )
        self.metrics.watch(
            lambda: (record.job for record in self.controller.jobs.values()), lambda: len(self.queue), self._ages
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set; then ends once the calls under way are answered. Raises LeaseLost."""
        background = [self.informer.run(), self.host.run(), self._keep_synced(), self.recorder.run()]
        if self._options.progress_seconds > 0:
            reader = ProgressReader(self.api, self._options.progress_seconds, self.controller.progressed)
            self.controller.follower = reader
            background.append(reader.run())
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            await stack.enter_async_context(self._lease_api)
            if self.health:
                await stack.enter_async_context(self.health)
            tasks = [asyncio.create_task(one) for one in background]
            ending = asyncio.create_task(stop.wait())
            workers: list[asyncio.Task[None]] = []
            leading = asyncio.create_task(self._lead(workers))
            tasks.append(leading)
            await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping")
            self.controller.stop()
            failed = [task for task in tasks if task.done()]
            led = self.lease is not None and self.lease.held
            for task in (*tasks, ending):
                task.cancel()
            if workers:
                # Without the lease not one call more: another may have begun.
                _, late = await asyncio.wait(workers, timeout=0 if leading in failed else STOP_SECONDS)
                for task in late:
                    task.cancel()
            await asyncio.gather(*tasks, *workers, ending, return_exceptions=True)
            if self.lease and led:
                await self.lease.release()
            self.metrics.leads(False)
            try:
                async with asyncio.timeout(1):
                    await self.recorder.drain()
            except TimeoutError:
                log.info("some events were not sent")
            for task in failed:
                task.result()

    async def _lead(self, workers: list[asyncio.Task[None]]) -> None:
        """Starts the workers once the caches are full and the lease, if there is one, is ours. Raises LeaseLost."""
        # The caches first: on half of the pods a decision would be wrong.
        await self.informer.wait()
        holding: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if self.lease:
                await self.lease.acquire()
                holding = asyncio.create_task(self.lease.hold())
                looking = asyncio.create_task(self._look())
                await asyncio.wait([holding, looking], return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    looking.cancel()
                    await holding
            log.info("%d pods known; working", len(self.informer.cache))
            self.metrics.leads(True)
            workers += [asyncio.create_task(self.controller.work()) for _ in range(self._options.workers)]
            await holding
        finally:
            holding.cancel()

    async def _look(self) -> None:
        """Lists pods and jobs: the leader before may have written what our watches have not brought yet."""
        await self.informer.renew()
        while True:
            try:
                await self.controller.resync(self._options.namespaces, spread=0, grace=0)
                return
            except (ApiError, MsgspecError) as error:
                log.warning("list of jobs: %s", error)
                await asyncio.sleep(1)

    def _seen(self, kind: str | None, job: AnyJob) -> None:
        self._confirmed = self._clock()
        if kind == "DELETED":
            self.controller.vanished(job)
        else:
            self.controller.observe(job)

    async def _keep_synced(self) -> None:
        """Lists the jobs now and then: what the watch of them missed is made good, and a deaf watch is renewed."""
        while True:
            try:
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._resync.wait()
                    await asyncio.sleep(START_SECONDS)
            except TimeoutError:
                pass
            self._resync.clear()
            try:
                if not await self.controller.resync(self._options.namespaces, spread=RESYNC_SECONDS):
                    log.warning("the watch of jobs has missed changes: renewing it")
                    self.host.restart()
                self._confirmed = self._clock()
            except (ApiError, MsgspecError) as error:
                log.warning("list of jobs: %s", error)

    def _ages(self) -> Mapping[str, float]:
        return {"jobs": self._clock() - self._confirmed, **self.informer.ages()}

    def _silent(self) -> Mapping[str, float]:
        bound = {"jobs": JOB_SILENCE}
        return {name: age for name, age in self._ages().items() if age > bound.get(name, POD_SILENCE)}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(options: Options) -> None:
    """Logs to standard error. kopf is heard only when something is wrong: it has a line for each event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if options.log_format == "json"
        else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler], force=True)
    for name in ("kopf", "asyncio", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that signals are not its own
