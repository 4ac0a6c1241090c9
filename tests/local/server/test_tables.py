"""Tables: the cells of each type, ages, and the JSONPath of printer columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from disttrain.local.server import ApiServer, tables
from disttrain.local.server.columns import TABLES, duration
from disttrain.local.server.resources import BUILT_IN
from local.server.conftest import WIDGETS, Client, widget

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MADE = {"name": "x", "creationTimestamp": "2026-01-01T23:59:00Z"}


def row(resource: str, obj: dict[str, Any]) -> list[Any]:
    """The cells that are shown without -o wide."""
    columns, cells = TABLES[resource]
    shown = cells({"metadata": MADE, **obj}, NOW)
    assert len(shown) == len(columns)
    return [cell for column, cell in zip(columns, shown, strict=True) if not column.priority]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"), (0, "0s"), (119, "119s"), (120, "2m"), (190, "3m10s"), (600, "10m"), 
        (10799, "179m"), (10800, "3h"),
        (5 * 3600 + 120, "5h2m"), (9 * 3600, "9h"), (47 * 3600, "47h"), (49 * 3600, "2d1h"), (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
    ],
)  # fmt: skip
def test_durations(seconds: int, expected: str) -> None:
    assert duration(seconds) == expected


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": "running" in state, "restartCount": 0, "state": state, **more}


@pytest.mark.parametrize(
    ("status", "ready", "shown", "restarts"),
    [
        ({"phase": "Pending"}, "0/1", "Pending", 0),
        ({"phase": "Running", "containerStatuses": [container({"running": {}})]}, "1/1", "Running", 0),
        ({"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]},
         "0/1", "ContainerCreating", 0),
        ({"phase": "Succeeded",
          "containerStatuses": [container({"terminated": {"exitCode": 0, "reason": "Completed"}})]},
         "0/1", "Completed", 0),
        ({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]},
         "0/1", "ExitCode:3", 0),
        ({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 137, "signal": 9}})]},
         "0/1", "Signal:9", 0),
        ({"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted", 0),
        ({"phase": "Pending", "initContainerStatuses": [container({"running": {}})]}, "0/1", "Init:0/1", 0),
        ({"phase": "Pending", "initContainerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}})]},
         "0/1", "Init:CrashLoopBackOff", 0),
        ({"phase": "Running", "containerStatuses": [
            container({"running": {}}, restartCount=2,
                      lastState={"terminated": {"finishedAt": "2026-01-01T23:58:30Z"}})]},
         "1/1", "Running", "2 (90s ago)"),
    ],
)  # fmt: skip
def test_pods(status: dict[str, Any], ready: str, shown: str, restarts: Any) -> None:
    obj = {"spec": {"containers": [{"name": "c"}]}, "status": status}
    assert row("pods", obj) == ["x", ready, shown, restarts, "60s"]


def test_a_pod_that_is_going() -> None:
    metadata = {**MADE, "deletionTimestamp": "2026-01-02T00:00:30Z"}
    assert row("pods", {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})[2] == "Terminating"


def test_others() -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 90, "nodePort": 30000}]
    service = {"spec": {"type": "ClusterIP", "clusterIP": "None", "ports": ports}}
    assert row("services", service) == ["x", "ClusterIP", "None", "<none>", "80/TCP,90:30000/TCP", "60s"]
    event = {
        "type": "Warning", "reason": "Why", "message": " words\n", "lastTimestamp": "2026-01-01T23:59:50Z",
        "involvedObject": {"kind": "Pod", "name": "p"},
    }  # fmt: skip
    assert row("events", event) == ["10s", "Warning", "Why", "pod/p", "words"]
    assert row("configmaps", {"data": {"a": "1"}, "binaryData": {"b": ""}}) == ["x", 2, "60s"]
    assert row("secrets", {"type": "Opaque", "data": {"a": ""}}) == ["x", "Opaque", 1, "60s"]
    assert row("namespaces", {"status": {"phase": "Active"}}) == ["x", "Active", "60s"]
    node = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"unschedulable": True}}
    assert row("nodes", node) == ["x", "Ready,SchedulingDisabled", "<none>", "60s", ""]


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda resource: resource.key)
async def test_every_type_has_a_table(client: Client, resource: Any) -> None:
    path = f"{resource.prefix}/{resource.plural}"
    found = await client.ok("GET", path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert found["kind"] == "Table"
    assert all(len(row["cells"]) == len(found["columnDefinitions"]) for row in found["rows"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.replicas", [2]),
        (".spec.nothing", []),
        (".spec.list[0].name", ["a"]),
        (".spec.list[*].name", ["a", "b"]),
        ('.spec.list[?(@.name=="b")].value', [7]),
        (".metadata.annotations.example\\.dev/x", ["y"]),
        (".metadata.annotations['example.dev/x']", ["y"]),
    ],
)
def test_json_path(path: str, expected: list[Any]) -> None:
    spec = {"replicas": 2, "list": [{"name": "a"}, {"name": "b", "value": 7}]}
    assert tables.lookup({"spec": spec, "metadata": {"annotations": {"example.dev/x": "y"}}}, path) == expected


async def test_printer_columns(server: ApiServer, widgets: Client) -> None:
    await widgets.ok("POST", WIDGETS, widget(note="abc"))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    found = await widgets.ok("GET", WIDGETS, Accept=accept)
    columns = [(column["name"], column["type"], column["priority"]) for column in found["columnDefinitions"]]
    assert columns == [
        ("Name", "string", 0), ("Size", "string", 0), ("Count", "integer", 0), ("Age", "date", 0),
        ("Note", "string", 1),
    ]  # fmt: skip
    name, size, count, age, note = found["rows"][0]["cells"]
    assert (name, size, count, note) == ("w", "small", 1, "abc")
    assert age.endswith("s")
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = await widgets.ok("GET", f"{WIDGETS}?includeObject=Object", Accept=accept)
    assert whole["rows"][0]["object"]["spec"]["size"] == "small"
