"""A connection to the cluster that kubectl would talk to."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from ..api.constants import API_VERSION, LABEL_JOB_UID, PLURAL
from ..cluster.errors import ApiError, NoAnswer, NotFound, Refused
from ..cluster.login import LoginError, login
from ..cluster.transport import Transport
from .console import CliError

Object = dict[str, Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which cluster, and which namespace of it."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help="default: the context's")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: as kubectl, $KUBECONFIG or ~/.kube/config")
    parser.add_argument("--context", help="of the kubeconfig; default: its current one")


@dataclass(frozen=True)
class Connection:
    """An open connection; `namespace` is the one asked for."""

    api: Transport
    server: str
    namespace: str

    async def get(self, path: str, **query: str) -> Object:
        """An object or a list. Raises ApiError."""
        found: Object = json.loads(await self.api.call("GET", f"{path}?{urlencode(query)}" if query else path))
        return found

    def jobs_path(self, name: str = "", *, everywhere: bool = False) -> str:
        """The path of the jobs, or of one."""
        place = "" if everywhere else f"/namespaces/{self.namespace}"
        return f"/apis/{API_VERSION}{place}/{PLURAL}" + (f"/{name}" if name else "")

    async def job(self, name: str) -> Object:
        """A job. Raises CliError where there is none."""
        try:
            return await self.get(self.jobs_path(name))
        except NotFound:
            have = ", ".join(item["metadata"]["name"] for item in (await self.jobs())[:20]) or "none"
            raise CliError(f"namespace {self.namespace} has no job {name}; it has: {have}") from None

    async def jobs(self, *, everywhere: bool = False) -> list[Object]:
        """All jobs of the namespace, or of all. Raises CliError where the cluster does not know them."""
        try:
            items: list[Object] = (await self.get(self.jobs_path(everywhere=everywhere)))["items"]
        except NotFound:
            raise CliError(
                f"the cluster at {self.server} knows no DistTrainJob: install its CRD and operator, or choose another "
                "cluster with --context or --kubeconfig"
            ) from None
        return items

    async def pods(self, job: Object) -> list[Object]:
        """The pods of a job, of all rounds."""
        path = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        items: list[Object] = (await self.get(path, labelSelector=f"{LABEL_JOB_UID}={job['metadata']['uid']}"))["items"]
        return items


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[Connection]:
    """Connects as the options say. What goes wrong with a call inside becomes a CliError."""
    try:
        credentials = login(options.kubeconfig, options.context)
    except LoginError as error:
        raise CliError(f"{error}; `disttrain local up` starts a cluster on this machine") from None
    server = credentials.credentials.server
    namespace = options.namespace or credentials.credentials.namespace
    async with Transport(credentials) as api:
        try:
            yield Connection(api, server, namespace)
        except NoAnswer as error:
            raise CliError(f"the API server at {server} does not answer ({error}): check that it runs") from None
        except Refused as error:
            raise CliError(f"the API server at {server} refused: {error.message}") from None
        except ApiError as error:
            raise CliError(f"the API server at {server}: {error}") from None
