"""The kubelet: takes every pod of the one-machine API and runs it here.

It is scheduler and kubelet in one. A pod is bound to the one node as soon as it is seen, unless it asks for a device
that the machine does not have. CPU and memory are not counted, and node selectors and affinities not looked at: there
is no other node.

It holds everything that it started: when it ends, however it ends, all pods end. On `stop` each has its grace period;
they are reported as a real kubelet reports pods at a node's shutdown (phase Failed, reason `Terminated`,
DisruptionTarget). Pods that an earlier kubelet left running are reported the same when the next one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from disttrain.api.constants import LABEL_JOB
from disttrain.local.client import ApiError, Change, Client, insist
from disttrain.local.kubelet import hosts, node, sandbox, status
from disttrain.local.kubelet.hosts import Peer
from disttrain.local.kubelet.node import Node, Options
from disttrain.local.kubelet.pod import PodWorker, folder, now
from disttrain.local.kubelet.report import delete_object, path_of

Json = dict[str, Any]
log = logging.getLogger(__name__)

_REPORT_SECONDS = 10.0  # for the last reports, when the kubelet stops
_CONFIG = ("configmaps", "secrets", "services")


class Kubelet:
    """An async context manager. `state` is the cluster's folder: logs go to `state/pods`, claims to `state/volumes`."""

    def __init__(self, url: str, token: str, state: Path, options: Options | None = None) -> None:
        self._client = Client(url, token)
        self._state = state
        self._options = options or Options()
        self._config: dict[tuple[str, str, str], Json] = {}  # kind, namespace, name
        self._pending: dict[str, Json] = {}  # uid -> pod that has no place yet
        self._workers: dict[str, PodWorker] = {}
        self._done: set[str] = set()  # uids of pods that are over; the watch may still tell of their earlier days
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._hosts_due = False
        self._stopping = False
        self.why_not_isolated = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register the node and start following the API; returns when all pods that were there are taken up."""
        async with contextlib.AsyncExitStack() as undo:
            await undo.enter_async_context(self._client)
            if self._options.isolation == "mapping":
                zygote, self.why_not_isolated = await sandbox.Zygote.start("plain"), "asked for"
            else:
                zygote, self.why_not_isolated = await sandbox.detect()
            undo.push_async_callback(zygote.stop)
            undo.push_async_callback(self._stop_following)
            self._node = Node(
                client=self._client,
                zygote=zygote,
                folder=self._state,
                options=self._options,
                capacity=node.capacity(),
                config=lambda kind, namespace, name: self._config.get((kind, namespace, name)),
                hosts_changed=self._hosts_changed,
                pods_of_job=self._pods_of_job,
            )
            for name in ("pods", "volumes"):
                (self._state / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            await self._register()
            for kind in _CONFIG:  # before the pods: what a pod names is then known if it is there
                await self._follow(f"/api/v1/{kind}", partial(self._config_change, kind))
            await self._follow("/api/v1/pods", self._pod_change)
            self._resources = undo.pop_all()

    async def stop(self) -> None:
        """Stop all pods gracefully, report their end and let go of everything."""
        self._stopping = True
        longest = 0.0
        for worker in self._workers.values():
            worker.stop(why=status.SHUTDOWN)
            longest = max(longest, worker.grace)
        if self._tasks:
            # An API that takes no more reports is not waited for: the next kubelet reports the pods as lost.
            await asyncio.wait(self._tasks, timeout=longest + _REPORT_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._resources.aclose()

    def kill(self) -> None:
        """SIGKILL to all that runs: cuts short a `stop` that is under way."""
        for worker in self._workers.values():
            worker.stop(0, why=status.SHUTDOWN)

    async def _stop_following(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, path: str, handle: Callable[[Change], None]) -> None:
        """Start a watch; returns when it has told what there was."""
        synced = asyncio.Event()

        async def follow() -> None:
            async for change in self._client.watch(path):
                if change.kind == "SYNCED":
                    synced.set()
                    continue
                try:
                    handle(change)
                except Exception:
                    log.exception("%s of %s", change.kind, change.object["metadata"]["name"])

        watch = asyncio.create_task(follow())
        self._watches.append(watch)
        await synced.wait()

    async def _register(self) -> None:
        manifest = node.manifest(self._node, now())
        name = self._node.name
        try:
            await self._client.post("/api/v1/nodes", manifest)
        except ApiError as error:
            if error.code != 409:
                raise
        await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": manifest["status"]})

    # --- news

    def _config_change(self, kind: str, change: Change) -> None:
        metadata = change.object["metadata"]
        key = (kind, metadata["namespace"], metadata["name"])
        if change.kind == "DELETED":
            self._config.pop(key, None)
        else:
            self._config[key] = change.object
        if kind == "services":
            self._hosts_changed()
            return
        for worker in self._workers.values():
            if worker.pod["metadata"]["namespace"] == metadata["namespace"]:
                worker.config_changed()
        self._node.changed.set()
        self._node.changed = asyncio.Event()

    def _pod_change(self, change: Change) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if change.kind == "DELETED":
            self._pending.pop(uid, None)
            self._done.discard(uid)
            if worker is not None:
                worker.deleted()
        elif worker is not None:
            before = worker.pod["metadata"]
            worker.update(pod)
            if before.get("labels") != pod["metadata"].get("labels"):
                self._hosts_changed()
                worker.config_changed()
        elif uid in self._done:
            if pod["metadata"].get("deletionTimestamp"):
                self._spawn(delete_object(self._client, pod))
        elif uid in self._pending or not pod["spec"].get("nodeName"):
            self._place(pod)
        elif pod["spec"]["nodeName"] == self._node.name and not self._stopping:
            self._take_up(pod)

    def _place(self, pod: Json) -> None:
        """Bind a new pod here, or say why there is no place for it."""
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp") or self._stopping:
            return
        if pod["spec"].get("schedulingGates"):
            self._pending[uid] = pod
            self._spawn(self._report(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"))
        elif lack := self._node.lacking(pod):
            self._pending[uid] = pod
            self._spawn(self._report(pod, "Unschedulable", lack))
        else:
            self._pending.pop(uid, None)
            self._start(pod, bind=True)

    async def _report(self, pod: Json, reason: str, message: str) -> None:
        new = status.unschedulable(pod, reason, message, now())
        old = (pod.get("status") or {}).get("conditions") or []
        if [{**c, "lastTransitionTime": None} for c in old] != [
            {**c, "lastTransitionTime": None} for c in new["conditions"]
        ]:
            await self._patch_status(pod, new)

    async def _patch_status(self, pod: Json, new: Json) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": new}
        await insist(lambda: self._client.patch(f"{path_of(pod)}/status", body))

    def _take_up(self, pod: Json) -> None:
        """A pod that is bound here and that this kubelet does not know: an earlier one had it, or a client bound it."""
        current = pod.get("status") or {}
        every = [*(current.get("containerStatuses") or []), *(current.get("initContainerStatuses") or [])]
        begun = any("waiting" not in (one.get("state") or {"waiting": {}}) for one in every)
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            self._done.add(uid)
            self._spawn(delete_object(self._client, pod))
        elif current.get("phase") in ("Succeeded", "Failed"):
            self._done.add(uid)
        elif begun:
            self._done.add(uid)
            self._spawn(self._patch_status(pod, status.lost(pod, now())))
        else:
            self._start(pod, bind=False)

    def _start(self, pod: Json, *, bind: bool) -> None:
        self._node.take_gpus(pod)
        worker = self._workers[pod["metadata"]["uid"]] = PodWorker(pod, self._node)
        self._spawn(self._run(worker, bind=bind))

    async def _run(self, worker: PodWorker, *, bind: bool) -> None:
        uid = worker.pod["metadata"]["uid"]
        try:
            if not bind or await self._bind(worker.pod):
                await worker.run()
                if not worker.gone:
                    self._done.add(uid)
        except Exception:
            log.exception("pod %s", worker.pod["metadata"]["name"])
        finally:
            del self._workers[uid]
            self._node.addresses.release(uid)
            self._node.release_gpus(uid)
            self._hosts_changed()
            for pod in list(self._pending.values()):
                self._place(pod)

    async def _bind(self, pod: Json) -> bool:
        """Put the pod on this node; False if it is not there any more."""
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node.name},
        }
        path = path_of(pod)
        if not await insist(lambda: self._client.post(f"{path}/binding", binding)):
            # Gone, or bound already: by a call of ours whose answer was lost, say.
            found: Json = {}

            async def look() -> Json:
                found.update(await self._client.get(path))
                return found

            if not await insist(look) or found["metadata"]["uid"] != metadata["uid"]:
                return False
            if found["spec"].get("nodeName") != self._node.name:
                return False
        pod["spec"]["nodeName"] = self._node.name
        return True

    # --- names

    def _pods_of_job(self, pod: Json) -> int:
        labels = pod["metadata"].get("labels") or {}
        job, namespace = labels.get(LABEL_JOB), pod["metadata"]["namespace"]
        if job is None:
            return 1
        return sum(
            1
            for worker in self._workers.values()
            if worker.pod["metadata"]["namespace"] == namespace
            and (worker.pod["metadata"].get("labels") or {}).get(LABEL_JOB) == job
        )

    def _hosts_changed(self) -> None:
        """Rewrite the hosts files once everything that is known now has been taken in."""
        if not self._hosts_due:
            self._hosts_due = True
            asyncio.get_running_loop().call_soon(self._write_hosts)

    def _write_hosts(self) -> None:
        self._hosts_due = False
        services: dict[str, list[Json]] = {}
        for (kind, namespace, _), service in self._config.items():
            if kind == "services":
                services.setdefault(namespace, []).append(service)
        peers: dict[str, list[tuple[Peer, list[str]]]] = {}
        for worker in self._workers.values():
            if not worker.over:
                namespace = worker.pod["metadata"]["namespace"]
                peer = Peer(worker.pod, worker.address, worker.ready)
                listed = hosts.published(peer, services.get(namespace, []))
                peers.setdefault(namespace, []).append((peer, listed))
        for group in peers.values():
            for peer, _ in group:
                file = folder(self._node, peer.pod) / "run" / "hosts"
                if file.exists():
                    with contextlib.suppress(OSError):
                        hosts.write(file, hosts.render(peer, group))


__all__ = ["Kubelet", "Options"]
