"""A small API server in memory, which writes down every call, and whatever else the tests of the control loop share."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from disttrain.api.constants import API_VERSION, KIND
from disttrain.api.plan import Event, Manifest
from disttrain.api.types import Status
from disttrain.cluster.errors import AlreadyExists, Conflict, NotFound
from disttrain.cluster.jobs import AnyJob
from disttrain.cluster.transport import JSON, Method

JOB = "/apis/disttrain.dev/v1alpha1/namespaces/team/disttrainjobs/digits"
PODS = "/api/v1/namespaces/team/pods"
SERVICES = "/api/v1/namespaces/team/services"
UID = "11111111-2222-3333-4444-555555555555"


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        else:
            target[name] = value


class FakeApi:
    """Objects by path. `before` may raise in place of a call, `after` instead of an answer."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda call: None
        self.after: Callable[[str], None] = lambda call: None
        self.pause: Callable[[str], asyncio.Future[None] | None] = lambda call: None
        self.answers: dict[str, str] = {}
        """Texts by path, such as those of logs."""
        self._versions = itertools.count(100)
        self._uids = itertools.count(1)

    def add(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Puts an object there, as if somebody else had made it."""
        stored: dict[str, Any] = json.loads(json.dumps(body))
        meta = stored.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        meta.setdefault("namespace", "team")
        meta["name"] = path.rpartition("/")[2]
        self.touch(stored)
        self.objects[path] = stored
        return stored

    def touch(self, stored: dict[str, Any]) -> None:
        """A new resourceVersion."""
        stored["metadata"]["resourceVersion"] = str(next(self._versions))

    async def call(self, method: Method, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        bare, _, query = path.partition("?")
        strict = " strict" if "fieldValidation=Strict" in query else ""
        content = json.loads(body) if body else {}
        name = content["metadata"]["name"] if method == "POST" else ""
        call = (
            f"{method} {bare.removeprefix('/api/v1/namespaces/team/').replace(JOB, 'job')}{'/' if name else ''}{name}"
        )
        self.calls.append(call + strict)
        if (paused := self.pause(call)) is not None:
            await paused
        self.before(call)
        await asyncio.sleep(0)
        answer = self._answer(method, bare, content)
        self.after(call)
        return answer

    def _answer(self, method: Method, path: str, content: dict[str, Any]) -> bytes:
        if path in self.answers:
            return self.answers[path].encode()
        if method == "POST":
            name = content["metadata"]["name"]
            if f"{path}/{name}" in self.objects:
                raise AlreadyExists(409, "AlreadyExists", f'"{name}" already exists')
            return json.dumps(self.add(f"{path}/{name}", content)).encode()
        path = path.removesuffix("/status")
        if path == "/apis/disttrain.dev/v1alpha1/disttrainjobs":
            items = [one for where, one in self.objects.items() if "/disttrainjobs/" in where]
            meta = {"resourceVersion": str(next(self._versions))}
            return json.dumps({"metadata": meta, "items": items}).encode()
        stored = self.objects.get(path)
        if stored is None:
            raise NotFound(404, "NotFound", f"{path} not found")
        meta = stored["metadata"]
        if method == "PATCH":
            wanted = content.get("metadata", {})
            for guard in ("uid", "resourceVersion"):
                if wanted.get(guard, meta[guard]) != meta[guard]:
                    raise Conflict(409, "Conflict", f"{guard} is {meta[guard]}")
            merge(stored, content)
            self.touch(stored)
        elif method == "DELETE":
            if content["preconditions"]["uid"] != meta["uid"]:
                raise Conflict(409, "Conflict", f"uid is {meta['uid']}")
            meta["deletionTimestamp"] = "2027-01-15T08:00:30Z"
            self.touch(stored)
        return json.dumps(stored).encode()

    async def watch(self, path: str, silence: float) -> AsyncIterator[bytes]:
        raise NotImplementedError
        yield b""


def job(name: str = "digits", *, uid: str = UID, **spec: Any) -> dict[str, Any]:
    """A job as the API sends it."""
    template = {"spec": {"containers": [{"name": "train", "image": "img", "command": ["torchrun", "train.py"]}]}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "team", "uid": uid, "generation": 1, "resourceVersion": "7"},
        "spec": {"framework": "pytorch", "worker": {"replicas": 3}, "template": template, **spec},
    }


def pod(
    name: str = "digits-worker-0",
    *,
    uid: str = "p0",
    version: int = 10,
    owner: str = UID,
    job_uid: str = UID,
    labels: Mapping[str, str] | None = None,
    **status: Any,
) -> Manifest:
    """A pod as the API sends it; `status` in wire form."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {
                "disttrain.dev/job": "digits",
                "disttrain.dev/job-uid": job_uid,
                "disttrain.dev/role": "worker",
                "disttrain.dev/index": name.split("-")[2] if name.count("-") > 1 else "0",
                "disttrain.dev/round": "1",
                "disttrain.dev/live": "true",
                **(labels or {}),
            },
            "ownerReferences": [{"kind": KIND, "name": "digits", "uid": owner, "controller": True}],
        },
        "spec": {"containers": [{"name": "train"}], "nodeName": "n1"},
        "status": {"phase": "Running", **status},
    }


class Recorder:
    """Keeps the events' reasons."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, job: AnyJob, event: Event) -> None:
        self.reasons.append(event.reason)


class Meter:
    """Keeps the states written."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def status(self, job: AnyJob, old: Status, new: Status) -> None:
        self.states.append(new.state or "")

    def passed(self, seconds: float) -> None:
        pass


async def until(holds: Callable[[], object]) -> None:
    """Lets the event loop run until something is so."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 -- whatever it is, it has no event
            await asyncio.sleep(0.001)
