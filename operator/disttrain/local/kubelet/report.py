"""What the API is told of a pod: its status whenever that changed, and its deletion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aiohttp

from disttrain.local.client import ApiError, Client, insist

Json = dict[str, Any]
log = logging.getLogger(__name__)


class Reporter:
    """Keeps a pod's status in the API at what `build` says; changes during a write go into the next one.

    `build` gets the status that was written last, empty at first.
    """

    def __init__(self, client: Client, pod: Json, build: Callable[[Json], Json]) -> None:
        self._client, self._pod, self._build = client, pod, build
        self._news = asyncio.Event()
        self._written: Json = {}
        self._last = False
        self.gone = False
        """The object is not there any more: nothing is written."""

    def changed(self) -> None:
        """There is something new to tell."""
        self._news.set()

    def finish(self) -> None:
        """What is to tell now is the last."""
        self._last = True
        self._news.set()

    async def run(self) -> None:
        """Returns when the last status is written."""
        pause = 0.05
        while True:
            await self._news.wait()
            self._news.clear()
            last, new = self._last, self._build(self._written)
            if new != self._written and not self.gone:
                try:
                    body = {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": new}
                    await self._client.patch(f"{path_of(self._pod)}/status", body)
                    self._written, pause = new, 0.05
                except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                    if isinstance(error, ApiError) and error.code == 404:
                        self.gone = True
                    log.info("status of pod %s: %s", self._pod["metadata"]["name"], error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 2.0)
                    self._news.set()
                    continue
            if last:
                return


def path_of(pod: Json) -> str:
    """The pod's path in the API."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def delete_object(client: Client, pod: Json) -> None:
    """Take the object of a pod that is no more out of the API; another of its name is left alone."""
    options: Json = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    await insist(lambda: client.delete(path_of(pod), options))
