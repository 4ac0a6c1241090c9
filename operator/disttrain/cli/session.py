"""A one-machine cluster for one run, in this process, with the real operator beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ..api import crd
from ..local.client import ApiError, Client
from ..local.cluster import ClusterError, LocalCluster, Options
from . import children
from .console import CliError
from .manifest import Manifest

Object = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Session:
    """What a run does with its cluster."""

    def __init__(
        self, client: Client, operator: asyncio.subprocess.Process, folder: Path, why_not_isolated: str
    ) -> None:
        self.client = client
        self.operator = operator
        self.pods = folder / "pods"
        """The kubelet's folder of logs."""
        self.why_not_isolated = why_not_isolated
        """Why pods have no mount namespaces, empty where they have."""

    async def apply(self, manifest: Manifest) -> Object:
        """Makes everything in the manifest; returns the job. Raises CliError with the API server's own words."""
        for item in manifest.others:
            await self._create(item)
        return await self._create(manifest.job)

    async def _create(self, item: Object) -> Object:
        name = item["metadata"]["name"]
        try:
            return await self.client.call("POST", await self._collection(item), item, fieldValidation="Strict")
        except ApiError as error:
            raise CliError(f"{item['kind']} {name} was refused: {error.message or error}") from None

    async def _collection(self, item: Object) -> str:
        """The path to POST to, by the server's own list of what it serves."""
        version, kind = str(item["apiVersion"]), item["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            served = (await self.client.get(root))["resources"]
        except ApiError:
            served = []
        found = next((one for one in served if one["kind"] == kind and "/" not in one["name"]), None)
        if found is None:
            raise CliError(
                f"{kind} {item['metadata']['name']} (apiVersion {version}) is not known to the one-machine cluster: "
                "leave it out of the manifest here"
            )
        if not found["namespaced"]:
            return f"{root}/{found['name']}"
        namespace = item["metadata"].get("namespace") or "default"
        await self._namespace(namespace)
        return f"{root}/namespaces/{namespace}/{found['name']}"

    async def _namespace(self, name: str) -> None:
        wanted: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await self.client.post("/api/v1/namespaces", wanted)
        except ApiError as error:
            if error.code != 409:
                raise CliError(f"namespace {name} was refused: {error.message or error}") from None

    async def stop_pods(self, *, now: bool = False) -> float:
        """Asks all pods to end, or kills them; returns the longest grace that one has, in seconds."""
        longest = 0.0
        for pod in (await self.client.get("/api/v1/pods"))["items"]:
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            longest = max(longest, float(pod["spec"].get("terminationGracePeriodSeconds", 30)))
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            try:
                await self.client.delete(path, {"gracePeriodSeconds": 0} if now else {})
            except ApiError as error:
                if error.code != 404:
                    raise
        return longest


@asynccontextmanager
async def private_cluster(folder: Path, log: Path, options: Options) -> AsyncIterator[Session]:
    """A cluster with its state in `folder`; the operator's output goes to `log`.

    At the end everything is stopped at once: whoever wants the pods to end gracefully stops them before.
    """
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(LocalCluster(folder, options))
        except (ClusterError, OSError) as error:
            raise CliError(f"the one-machine cluster did not start: {error}") from error
        client = await stack.enter_async_context(Client(cluster.url, cluster.token))
        await install_crd(client)
        operator = await children.start_operator(cluster.kubeconfig, log)
        session = Session(client, operator, folder, cluster.kubelet.why_not_isolated)
        stack.push_async_callback(session.stop_pods, now=True)
        stack.push_async_callback(children.stop, operator)  # before the pods, which it would replace
        yield session


async def install_crd(client: Client) -> None:
    """Installs the CRD of this version, also over that of another."""
    wanted = crd.definition()
    path = f"{CRDS}/{wanted['metadata']['name']}"
    try:
        await client.post(CRDS, wanted)
    except ApiError as error:
        if error.code != 409:
            raise CliError(f"the CRD was refused: {error}") from error
        found = await client.get(path)
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await client.call("PUT", path, wanted)
