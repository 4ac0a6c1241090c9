"""Whatever a client sends, it gets an answer that is its own fault or none: never an error of the server.

Objects of every kind with parts of them replaced, dropped or made up at random, by a seed; a failure prints the seed.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.server import ApiServer
from disttrain.local.server.errors import ApiError
from disttrain.local.server.handlers import Body, Handlers
from disttrain.local.server.target import parse
from local.server.conftest import CRDS, PODS, WIDGETS, pod, widget, widget_crd

JUNK: list[Any] = [
    None, 1, -1, 2**70, 1.5, True, "", "x", "☃", [], [None], ["x"], [1], [{}], {}, {"a": None}, {"a": {"b": []}},
    {"name": 1},
    [[1]], "2026-01-01T00:00:00Z", {"$patch": "delete"}, {"$patch": "replace"},
]  # fmt: skip
NAMESPACE = "/api/v1/namespaces/default"
MERGE, STRATEGIC, OPERATIONS = (
    f"application/{kind}+json" for kind in ("merge-patch", "strategic-merge-patch", "json-patch")
)


def full_pod() -> dict[str, Any]:
    """A pod with a part of everything that the server reads."""
    whole = pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    whole["metadata"] |= {
        "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["a/b"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}],
    }  # fmt: skip
    whole["spec"]["containers"][0] |= {
        "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}},
        "ports": [{"containerPort": 1}], "volumeMounts": [{"name": "v", "mountPath": "/x"}],
    }  # fmt: skip
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}
    whole["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "restartCount": 1, "state": ended, "lastState": ended}],
    }
    return whole


@cache
def objects() -> list[tuple[dict[str, Any], str]]:
    """One of each kind, and where it lives."""
    service = {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"name": "x", "port": 80}]}}
    event = {
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}, "count": 1,
        "source": {"component": "me"},
        "lastTimestamp": "2026-01-01T00:00:00Z", "message": "m",
    }  # fmt: skip
    node = {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    parts = [{"name": "a", "env": [{"name": "X"}]}]
    custom = widget("a", replicas=2, tags=["a"], parts=parts, map={"a": 1}, free={"x": 1}, when="2026-01-01T00:00:00Z")
    found: list[tuple[dict[str, Any], str]] = [(full_pod(), PODS), (custom, WIDGETS), (widget_crd(), CRDS)]
    for kind, path, body in (
        ("Service", f"{NAMESPACE}/services", service),
        ("Event", f"{NAMESPACE}/events", event),
        ("Secret", f"{NAMESPACE}/secrets", {"data": {"a": "Yg=="}, "stringData": {"b": "c"}}),
        ("Node", "/api/v1/nodes", node),
        ("Namespace", "/api/v1/namespaces", {}),
    ):
        found.append(({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, **body}, path))
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*path, key))


def spoiled(value: Any, chance: random.Random) -> Any:
    """A copy with one to three parts of it changed."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice([1, 1, 2, 3])):
        *above, last = chance.choice([path for path in places(value) if path] or [("nothing",)])
        inner = value
        for key in above:
            inner = inner[key]
        what = chance.random()
        if what < 0.7 and last != "nothing":
            inner[last] = copy.deepcopy(chance.choice(JUNK))
        elif what < 0.85 and last != "nothing":
            del inner[last]
        elif isinstance(inner, dict):
            inner["made-up"] = copy.deepcopy(chance.choice(JUNK))
    return value


def request(chance: random.Random) -> tuple[str, str, Any, str]:
    """Method, path, body and media type of one random request."""
    obj, path = chance.choice(objects())
    name = f"{path}/{obj['metadata']['name']}"
    part = chance.choice(["", "/status"])
    fresh = f"n{chance.randrange(10**9)}"
    operation = {
        "op": chance.choice(["add", "remove", "replace", "test", "move", "copy"]), "from": "/spec",
        "value": chance.choice(JUNK),
        "path": "/" + "/".join(map(str, chance.choice(list(places(obj))))),
    }  # fmt: skip
    options = {"preconditions": {"uid": "x"}, "gracePeriodSeconds": 1, "propagationPolicy": "Foreground"}
    scale = {"spec": {"replicas": 3}, "metadata": {"resourceVersion": "1"}}
    return chance.choice(
        [
            ("POST", path, obj, "application/json"),
            (
                "POST",
                path,
                spoiled({**obj, "metadata": {**obj["metadata"], "name": fresh}}, chance),
                "application/json",
            ),
            (
                "POST",
                path,
                spoiled({**obj, "metadata": {**obj["metadata"], "name": fresh}}, chance),
                "application/json",
            ),
            ("PUT", name + part, spoiled(obj, chance), "application/json"),
            ("PATCH", name + part, spoiled(obj, chance), MERGE),
            ("PATCH", name + part, spoiled(obj, chance), STRATEGIC),
            ("PATCH", name, spoiled([operation], chance), OPERATIONS),
            ("PATCH", f"{name}/scale", spoiled(scale, chance), MERGE),
            ("DELETE", name, spoiled(options, chance), "application/json"),
            ("GET", path, None, ""),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
async def test_no_request_breaks_the_server(tmp_path: Path, seed: int) -> None:
    async with ApiServer(tmp_path, "token") as server:
        handlers = Handlers(server.objects)
        chance = random.Random(seed)
        codes: Counter[int] = Counter()
        for _ in range(600):
            method, path, body, media = request(chance)
            query = chance.choice([{}, {}, {"fieldValidation": "Strict"}, {"dryRun": "All"}])
            accept = chance.choice(["", "application/json;as=Table;v=v1;g=meta.k8s.io"])
            data = b"" if body is None else json.dumps(body).encode()
            try:
                answer = handlers.handle(parse(server.types, method, path, query), Body(data, media), accept)
                json.loads(answer.body)
                codes[answer.status] += 1
            except ApiError as error:
                json.dumps(error.status())
                codes[error.code] += 1
        assert set(codes) <= {200, 201, 400, 403, 404, 409, 415, 422}
        assert codes[200] > 50  # not everything was refused
        assert codes[201] > 10
