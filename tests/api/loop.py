"""The operator in the test's own process, and calls in one namespace, with a stand-in for the kubelet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from api.jobs import Manifest, job
from disttrain.cluster.errors import NotFound
from disttrain.cluster.login import login
from disttrain.cluster.transport import MERGE, Transport
from disttrain.main import Operator, Options

JOBS = "/apis/disttrain.dev/v1alpha1/namespaces/{}/disttrainjobs"


class Client:
    """Calls in one namespace."""

    def __init__(self, api: Transport, namespace: str, kubeconfig: str) -> None:
        self.api = api
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = JOBS.format(namespace)

    async def post(self, path: str, body: Manifest) -> Manifest:
        answer: Manifest = json.loads(await self.api.call("POST", path, json.dumps(body).encode()))
        return answer

    async def get(self, path: str) -> Manifest:
        answer: Manifest = json.loads(await self.api.call("GET", path))
        return answer

    async def apply(self, manifest: Manifest) -> Manifest:
        return await self.post(self.jobs, manifest)

    async def patch(self, path: str, **body: Any) -> None:
        await self.api.call("PATCH", path, json.dumps(body).encode(), MERGE)

    async def delete(self, path: str) -> None:
        await self.api.call("DELETE", path, b'{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}')

    async def status(self, name: str = "digits") -> Manifest:
        status: Manifest = (await self.get(f"{self.jobs}/{name}")).get("status", {})
        return status

    async def pods(self, job_name: str = "digits") -> dict[str, Manifest]:
        found = await self.get(f"{self.core}/pods?labelSelector=disttrain.dev/job%3D{job_name}")
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def condition(self, kind: str, name: str = "digits") -> Manifest:
        listed = (await self.status(name)).get("conditions", [])
        return next((one for one in listed if one["type"] == kind), {"status": ""})

    async def runs(self, *names: str) -> None:
        """Does what a kubelet would: the pods run and are ready."""
        for name in names:
            main = {"name": "train", "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
            await self.patch(
                f"{self.core}/pods/{name}/status",
                status={
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [main | {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
                },
            )

    async def ends(self, name: str, code: int) -> None:
        """The pod's main container ends."""
        main = {"name": "train", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
        await self.patch(
            f"{self.core}/pods/{name}/status",
            status={
                "phase": "Failed" if code else "Succeeded",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [main | {"state": {"terminated": {"exitCode": code, "reason": "Error"}}}],
            },
        )


async def eventually(holds: Callable[[], Awaitable[object]], seconds: float = 15) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 -- the API server has no event for it
            await asyncio.sleep(0.02)


async def found(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except NotFound:
        return False
    return True


class Running:
    """An operator in this process."""

    def __init__(self, client: Client, **options: Any) -> None:
        chosen = Options(listen="127.0.0.1:0", progress_seconds=0, namespaces=(client.namespace,), **options)
        self.stop = asyncio.Event()
        self.operator = Operator(chosen, login(client.kubeconfig))
        self.task = asyncio.create_task(self.operator.run(self.stop))

    def calls(self, verb: str, code: int) -> float:
        labels = {"verb": verb, "code": str(code)}
        return self.operator.metrics.registry.get_sample_value("disttrain_api_calls_total", labels) or 0

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(5):
            await self.task


async def begun(client: Client, number: int = 3) -> None:
    await client.apply(job(worker={"replicas": number}))
    await eventually(lambda: has_pods(client, number))


async def has_pods(client: Client, number: int, round_: int = 1) -> bool:
    pods = [
        one
        for one in (await client.pods()).values()
        if one["metadata"]["labels"]["disttrain.dev/round"] == str(round_)
        and "deletionTimestamp" not in one["metadata"]
    ]
    return len(pods) == number


async def is_state(client: Client, state: str) -> bool:
    return (await client.status()).get("state") == state


async def reason(client: Client, kind: str, word: str) -> bool:
    return (await client.condition(kind)).get("reason") == word
