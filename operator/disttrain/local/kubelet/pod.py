"""One pod's life on the machine: volumes, sandbox, init containers, containers, restarts, probes, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from disttrain.local.kubelet import container, hosts, probes, status, volumes
from disttrain.local.kubelet.container import Unsupported
from disttrain.local.kubelet.env import ConfigError
from disttrain.local.kubelet.node import HOST, Node
from disttrain.local.kubelet.report import Reporter, delete_object
from disttrain.local.kubelet.sandbox import Sandbox, StartError
from disttrain.local.kubelet.status import ContainerStatus
from disttrain.local.kubelet.terminal import message, rotate

Json = dict[str, Any]
log = logging.getLogger(__name__)

UNSUPPORTED = "UnsupportedPodSpec"
_EPOCH = "1970-01-01T00:00:00Z"
_START_ERROR = 128  # what containerd reports for a command that cannot be run
_SHM_SIZE = "size=64m"  # what containerd gives a pod that mounts none
_HEALTHY_SECONDS = 600  # a container that ran as long starts its back-off anew


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodWorker:
    """Runs one pod until it is over or deleted.

    `run` is the whole life; `update` brings news of the object; `stop` ends it gracefully. A pod with a
    deletionTimestamp is stopped and its object deleted; one that was deleted for good is killed at once (`stop(0)`).
    """

    def __init__(self, pod: Json, node: Node) -> None:
        self.pod = pod
        self.over = False
        self._node = node
        self.address = node.addresses.get(pod["metadata"]["uid"] if node.isolated else hosts.key(pod))
        self._folder = folder(node, pod)
        self._run = self._folder / "run"
        self._sandbox: Sandbox | None = None
        self._volumes: dict[str, volumes.Volume] = {}
        self._started_at = now()
        spec = pod["spec"]
        self._inits = [
            ContainerStatus(c, sidecar=c.get("restartPolicy") == "Always") for c in spec.get("initContainers") or []
        ]
        creating = {"waiting": {"reason": "PodInitializing" if self._inits else "ContainerCreating"}}
        self._mains = [ContainerStatus(c, creating) for c in spec["containers"]]
        self._why: tuple[str, str] | None = None
        self._stopping = asyncio.Event()
        self._deadline = 0.0  # loop time at which what is left is killed
        self._deadline_moved = asyncio.Event()
        self._report = Reporter(node.client, pod, self._status)

    @property
    def ready(self) -> bool:
        return not self.over and all(c.ready for c in self._mains)

    @property
    def grace(self) -> float:
        """The pod's own grace period, seconds."""
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    @property
    def gone(self) -> bool:
        """Whether the object is not there any more."""
        return self._report.gone

    # --- news from outside

    def update(self, pod: Json) -> None:
        """The object changed."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self.stop(pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    def deleted(self) -> None:
        """The object is gone: what runs has no grace left."""
        self._report.gone = True
        self.stop(0)

    def stop(self, grace: float | None = None, why: tuple[str, str] | None = None) -> None:
        """SIGTERM now, SIGKILL after `grace` seconds (None: the pod's own); a later call can only shorten the time."""
        grace = self.grace if grace is None else grace
        deadline = asyncio.get_running_loop().time() + grace
        if not self._stopping.is_set():
            self._why = self._why or why
            self._deadline = deadline
            self._stopping.set()
        elif deadline < self._deadline:
            self._deadline = deadline
        self._deadline_moved.set()

    def config_changed(self) -> None:
        if self._volumes:
            volumes.refresh(self.pod, self._run / "volumes", self._node.config)

    # --- the whole life

    async def run(self) -> None:
        """Returns when nothing of the pod is left, its last status is written and, if need be, its object deleted."""
        writer = asyncio.create_task(self._report.run())
        try:
            await self._live()
        except Exception as error:
            log.exception("pod %s", self.pod["metadata"]["name"])
            self._why = self._why or ("InternalError", f"the one-machine kubelet failed: {error!r}")
        finally:
            if self._sandbox is not None:
                await self._sandbox.close()
            self._volumes = {}  # a change of their objects comes too late
            await asyncio.to_thread(shutil.rmtree, self._run, ignore_errors=True)
            self.over = True
            self._report.finish()
            self._node.hosts_changed()
            try:
                await writer
            finally:
                writer.cancel()
        log.info("pod %s is over: %s", self.pod["metadata"]["name"], self._describe())
        if self.pod["metadata"].get("deletionTimestamp") and not self._report.gone:
            await delete_object(self._node.client, self.pod)

    async def _live(self) -> None:
        work = asyncio.create_task(self._work())
        stop = asyncio.create_task(self._stopping.wait())
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        try:
            done, _ = await asyncio.wait({work, stop}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                words = "Pod was active on the node longer than the specified deadline"
                self.stop(why=("DeadlineExceeded", words))
            if not work.done():
                await self._stop_containers(work)
            await work
        finally:
            stop.cancel()
            if not work.done():
                work.cancel()

    async def _work(self) -> None:
        unsupported = volumes.unknown(self.pod)
        for spec in [c.spec for c in self._inits + self._mains]:
            unsupported = unsupported or probes.unsupported(spec)
        if unsupported:
            self._refuse((self._inits + self._mains)[0], unsupported)
            return
        asyncio.get_running_loop().call_later(0.1, self._report.changed)  # "creating", if it takes that long
        if not await self._prepare():
            return
        self._node.hosts_changed()
        await asyncio.sleep(0)  # the hosts file is written before what comes next
        policy = self.pod["spec"].get("restartPolicy", "Always")
        sidecars: list[asyncio.Task[None]] = []
        try:
            for init in self._inits:
                if init.sidecar:
                    sidecars.append(asyncio.create_task(self._keep_running(init, "Always")))
                    while not init.started and not await self._pause(0.02):
                        pass
                else:
                    await self._keep_running(init, "OnFailure" if policy != "Never" else "Never")
                    if self._stopping.is_set() or (init.terminated or {}).get("exitCode") != 0:
                        return
            for main in self._mains:
                main.wait("ContainerCreating")
            await asyncio.gather(*(self._keep_running(main, policy) for main in self._mains))
        finally:
            if sidecars:
                self.stop()
                await asyncio.gather(*sidecars)

    async def _prepare(self) -> bool:
        """Volumes, hosts file and sandbox; False if the pod is to stop before."""
        node, run = self._node, self._run
        for name in ("volumes", "termination", "staging", "shm"):
            (run / name).mkdir(parents=True, exist_ok=True)
        hosts.write(run / "hosts", "")
        while True:
            try:
                self._volumes = volumes.prepare(
                    self.pod, run / "volumes", node.folder / "volumes", node.config, isolated=node.isolated
                )
                tmpfs = [(v.path, v.tmpfs) for v in self._volumes.values() if v.tmpfs is not None]
                if node.isolated:
                    tmpfs.append((run / "shm", f"mode=1777,{_SHM_SIZE}"))
                self._sandbox = await node.zygote.sandbox(hosts.hostname(self.pod), tmpfs)
                return True
            except (ConfigError, StartError) as error:
                for each in self._mains:
                    each.wait("ContainerCreating", str(error))
                self._report.changed()
                if await self._pause_for_config():
                    return False

    def _refuse(self, which: ContainerStatus, words: str) -> None:
        which.end(_START_ERROR, "StartError", _EPOCH, now(), words)
        self._why = (UNSUPPORTED, words)
        self.stop(0)

    # --- containers

    async def _keep_running(self, one: ContainerStatus, policy: str) -> None:
        """Run a container, again and again as its restart policy says, until it is done or the pod stops."""
        loop = asyncio.get_running_loop()
        delay = 0.0
        while not self._stopping.is_set():
            began = loop.time()
            code = await self._run_once(one)
            self._report.changed()
            if code is None or self._stopping.is_set() or self._why or not status.may_restart(policy, code):
                return
            if loop.time() - began > _HEALTHY_SECONDS:
                delay = 0.0
            if delay:
                pod = "{name}_{namespace}({uid})".format_map(self.pod["metadata"])
                words = f"back-off {delay:g}s restarting failed container={one.name} pod={pod}"
                one.wait("CrashLoopBackOff", words)
                self._report.changed()
                if await self._pause(delay):
                    return
            first = self._node.options.backoff
            delay = min(max(first, delay * 2), first * 30)
            one.restarts += 1
            rotate(self._log(one))

    async def _run_once(self, one: ContainerStatus) -> int | None:
        """One run; the exit code, or None if it was not to be."""
        assert self._sandbox is not None
        message_file = self._run / "termination" / one.name
        message_file.write_bytes(b"")
        message_file.chmod(0o666)
        while True:
            try:
                pod = self.pod | {"status": (self.pod.get("status") or {}) | _addresses(self.address)}
                process = container.plan(pod, one.spec, self._node, self._volumes, self._run, message_file)
                break
            except ConfigError as error:
                one.wait("CreateContainerConfigError", str(error))
                self._report.changed()
                if await self._pause_for_config():
                    return None
            except Unsupported as error:
                self._refuse(one, str(error))
                return None
        staging = self._run / "staging" / one.name
        staging.mkdir(exist_ok=True)
        try:
            exited = await self._sandbox.start(
                one.name, process.argv, process.env, process.cwd, self._log(one), process.mounts, staging
            )
        except StartError as error:
            one.container_id = ""
            one.end(_START_ERROR, "StartError", _EPOCH, now(), str(error))
            return _START_ERROR
        one.run(started := now(), f"disttrain://{self.pod['metadata']['uid']}/{one.name}/{one.restarts}")
        probing = self._probe(one)
        self._report.changed()
        code = await exited
        probing.stop()
        words = message(message_file, self._log(one), one.spec, code)
        one.end(code, "Completed" if code == 0 else "Error", started, now(), words)
        return code

    def _probe(self, one: ContainerStatus) -> probes.Probing:
        sandbox = self._sandbox
        assert sandbox is not None

        async def once(probe: Json) -> bool:
            return await probes.check(probe, one.spec, self.address, partial(sandbox.exec, one.name))

        def started() -> None:
            one.started = True

        def ready(passed: bool) -> None:
            one.ready = passed
            self._report.changed()
            self._node.hosts_changed()

        return probes.Probing(one.spec, once, started=started, ready=ready, failed=lambda: self._restart(one))

    def _restart(self, one: ContainerStatus) -> None:
        """A probe gave the container up: SIGTERM, and SIGKILL after the pod's grace."""
        if self._sandbox is not None and one.running:
            self._sandbox.signal(one.name, signal.SIGTERM)
            run = one.state

            def kill() -> None:
                if self._sandbox is not None and one.state is run:
                    self._sandbox.kill(one.name)

            asyncio.get_running_loop().call_later(self.grace, kill)

    async def _stop_containers(self, work: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        names = [c.name for c in self._inits + self._mains]
        ending = [asyncio.create_task(self._end(c)) for c in self._inits + self._mains]
        while not work.done() and (left := self._deadline - loop.time()) > 0:
            self._deadline_moved.clear()
            moved = asyncio.create_task(self._deadline_moved.wait())
            await asyncio.wait({work, moved}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
        for task in ending:
            task.cancel()
        while not work.done():
            if self._sandbox is not None:  # also what was just about to start
                for name in names:
                    self._sandbox.kill(name)
            await asyncio.wait({work}, timeout=0.2)

    async def _end(self, one: ContainerStatus) -> None:
        """The preStop hook, for which the grace period counts already, then SIGTERM."""
        hook = (one.spec.get("lifecycle") or {}).get("preStop") or {}
        if self._sandbox is None:
            return
        if one.running and "exec" in hook:
            with contextlib.suppress(TimeoutError):
                await self._sandbox.exec(one.name, hook["exec"]["command"], timeout=3600)
        elif one.running and "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])
        self._sandbox.signal(one.name, signal.SIGTERM)

    async def _pause(self, seconds: float) -> bool:
        """Sleep; True, at once, if the pod is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _pause_for_config(self) -> bool:
        changed = asyncio.create_task(self._node.changed.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({changed, stopping}, timeout=2, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        stopping.cancel()
        return self._stopping.is_set()

    def _log(self, one: ContainerStatus) -> Path:
        return self._folder / f"{one.name}.log"

    def _describe(self) -> str:
        ends = ((c.name, c.terminated) for c in self._inits + self._mains)
        return ", ".join(f"{name} ended with {end['exitCode']}" for name, end in ends if end) or "nothing ran"

    def _status(self, written: Json) -> Json:
        conditions = (written or self.pod.get("status") or {}).get("conditions") or []
        return status.build(
            self.pod | {"status": {"conditions": conditions}},
            self._inits,
            self._mains,
            now=now(),
            start_time=self._started_at,
            host=HOST,
            address=self.address,
            sandboxed=self._sandbox is not None,
            over=self.over,
            why=self._why,
        )


def folder(node: Node, pod: Json) -> Path:
    """Where a pod's logs and, while it runs, its other files are."""
    metadata = pod["metadata"]
    return node.folder / "pods" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


def _addresses(address: str) -> Json:
    return {"podIP": address, "podIPs": [{"ip": address}], "hostIP": HOST, "hostIPs": [{"ip": HOST}]}


__all__ = ["UNSUPPORTED", "PodWorker", "folder", "now"]
