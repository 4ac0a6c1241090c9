"""What goes by itself: the owned, the contents of namespaces and types, old events."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from disttrain.local.server import ApiServer
from disttrain.local.server.collector import Collector
from disttrain.local.server.objects import Write
from disttrain.local.server.resources import PODS as POD_TYPE
from local.server.conftest import CRDS, PODS, WIDGETS, Client, eventually, pod, widget, widget_crd

MAPS = "/api/v1/namespaces/default/configmaps"
SPACES = "/api/v1/namespaces"


async def until_gone(client: Client, path: str) -> None:
    async def gone() -> bool:
        return (await client.call("GET", path))[0] == 404

    await eventually(gone)


def owned(body: dict[str, Any], *owners: dict[str, Any], block: bool = False) -> dict[str, Any]:
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block,
        }
        for owner in owners
    ]  # fmt: skip
    return body


async def test_the_owned_go_with_their_owner(widgets: Client) -> None:
    owner = await widgets.ok("POST", WIDGETS, widget())
    first = await widgets.ok("POST", PODS, owned(pod("a"), owner))
    await widgets.ok("POST", PODS, owned(pod("b"), first))  # and so on down the line
    await widgets.ok("POST", PODS, pod("mine"))
    await widgets.ok("DELETE", f"{WIDGETS}/w")
    await until_gone(widgets, f"{PODS}/a")
    await until_gone(widgets, f"{PODS}/b")
    await widgets.ok("GET", f"{PODS}/mine")


async def test_one_owner_is_enough_to_stay(widgets: Client) -> None:
    one, two = [await widgets.ok("POST", WIDGETS, widget(name)) for name in ("one", "two")]
    await widgets.ok("POST", PODS, owned(pod("a"), one, two))
    await widgets.ok("DELETE", f"{WIDGETS}/one")
    await widgets.ok("POST", PODS, owned(pod("late"), one))
    await until_gone(widgets, f"{PODS}/late")  # made after its owner went
    await widgets.ok("GET", f"{PODS}/a")
    await widgets.ok("DELETE", f"{WIDGETS}/two")
    await until_gone(widgets, f"{PODS}/a")


async def test_a_namesake_is_no_owner(widgets: Client) -> None:
    owner = await widgets.ok("POST", WIDGETS, widget())
    await widgets.ok("POST", PODS, owned(pod("a"), owner))
    await widgets.ok("DELETE", f"{WIDGETS}/w")
    again = await widgets.ok("POST", WIDGETS, widget())
    await widgets.ok("POST", PODS, owned(pod("b"), again))
    await until_gone(widgets, f"{PODS}/a")
    await widgets.ok("GET", f"{PODS}/b")


async def test_orphans_stay(widgets: Client) -> None:
    owner = await widgets.ok("POST", WIDGETS, widget())
    await widgets.ok("POST", PODS, owned(pod("a"), owner))
    await widgets.ok("DELETE", f"{WIDGETS}/w", {"propagationPolicy": "Orphan"})
    await until_gone(widgets, f"{WIDGETS}/w")
    assert "ownerReferences" not in (await widgets.ok("GET", f"{PODS}/a"))["metadata"]


async def test_in_the_foreground_the_owner_goes_last(widgets: Client) -> None:
    owner = await widgets.ok("POST", WIDGETS, widget())
    body = owned(pod("a"), owner, block=True)
    body["metadata"]["finalizers"] = ["example.dev/hold"]
    await widgets.ok("POST", PODS, body)
    marked = await widgets.ok("DELETE", f"{WIDGETS}/w?propagationPolicy=Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def is_marked() -> bool:
        return "deletionTimestamp" in (await widgets.ok("GET", f"{PODS}/a"))["metadata"]

    await eventually(is_marked)
    await widgets.ok("GET", f"{WIDGETS}/w")
    await widgets.merge(f"{PODS}/a", {"metadata": {"finalizers": None}})
    await until_gone(widgets, f"{WIDGETS}/w")


async def test_a_namespace_takes_its_contents_along(client: Client) -> None:
    await client.ok("POST", SPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["example.dev/hold"]}}
    await client.ok("POST", f"{SPACES}/other/configmaps", held)
    await client.ok("POST", f"{SPACES}/other/pods", pod("a"))
    marked = await client.ok("DELETE", f"{SPACES}/other")
    assert marked["status"]["phase"] == "Terminating"
    await until_gone(client, f"{SPACES}/other/pods/a")
    code, answer = await client.call("POST", f"{SPACES}/other/pods", pod("late"))
    assert code == 403
    assert "because it is being terminated" in answer["message"]
    assert answer["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await client.merge(f"{SPACES}/other/configmaps/c", {"metadata": {"finalizers": None}})
    await until_gone(client, f"{SPACES}/other")
    code, _ = await client.call("DELETE", f"{SPACES}/default")
    assert code == 403


async def test_a_type_takes_its_objects_along(widgets: Client) -> None:
    await widgets.ok("POST", WIDGETS, widget())
    await widgets.ok("DELETE", f"{CRDS}/widgets.example.dev")
    await until_gone(widgets, f"{CRDS}/widgets.example.dev")
    assert (await widgets.call("GET", WIDGETS))[0] == 404
    await widgets.ok("POST", CRDS, widget_crd())
    assert (await widgets.ok("GET", WIDGETS))["items"] == []


async def test_events_are_kept_for_an_hour(server: ApiServer, client: Client) -> None:
    path = "/api/v1/namespaces/default/events"
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    for name, last in (("old", datetime.now(UTC) - timedelta(hours=2)), ("new", datetime.now(UTC))):
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about}
        await client.ok("POST", path, event | {"lastTimestamp": last.strftime("%Y-%m-%dT%H:%M:%SZ")})
    server.collector.sweep(datetime.now(UTC))
    assert [item["metadata"]["name"] for item in (await client.ok("GET", path))["items"]] == ["new"]


async def test_a_stop_while_work_comes_in(server: ApiServer, client: Client) -> None:
    owner = await client.ok("POST", PODS, pod("owner"))
    collector = Collector(server.objects, server.types)
    running = asyncio.create_task(collector.run())
    for _ in range(3):
        await asyncio.sleep(0)
    server.objects.create(POD_TYPE, "default", owned(pod("a"), owner), Write())
    running.cancel()
    await asyncio.wait({running}, timeout=5)
    assert running.cancelled()
