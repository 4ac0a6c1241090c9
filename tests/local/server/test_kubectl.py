"""Plain kubectl against the server: what a user types."""

from __future__ import annotations

import asyncio
import json

import yaml

from local.server.conftest import Client, Kubectl, pod, widget, widget_crd


async def test_a_pod_from_apply_to_delete(kubectl: Kubectl) -> None:
    manifest = pod("one")
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one created\n"
    manifest["metadata"]["labels"] = {"colour": "green"}
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one configured\n"
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one unchanged\n"
    assert await kubectl("get", "pods", "-l", "colour=green", "-o", "name") == "pod/one\n"
    assert "condition met" in await kubectl("wait", "pod/one", "--for=jsonpath={.status.phase}=Pending", "--timeout=5s")
    assert "Pending" in await kubectl("describe", "pod", "one")
    assert "deleted" in await kubectl("delete", "pod", "one")
    assert "not found" in await kubectl("get", "pod", "one", code=1)


async def test_lists_in_a_service_are_merged_as_apply_means_it(kubectl: Kubectl) -> None:
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": "None", "selector": {"x": "y"}, "ports": ports},
    }  # fmt: skip
    await kubectl("apply", "-f", "-", stdin=json.dumps(service))
    service["spec"]["ports"] = [{"name": "c", "port": 3}, {"name": "a", "port": 1}]  # type: ignore[index]
    await kubectl("apply", "-f", "-", stdin=json.dumps(service))
    live = json.loads(await kubectl("get", "service", "s", "-o", "json"))
    assert sorted(port["name"] for port in live["spec"]["ports"]) == ["a", "c"]
    assert "ClusterIP" in await kubectl("get", "services")


async def test_a_custom_type(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(widget_crd()))
    assert "condition met" in await kubectl(
        "wait", "crd/widgets.example.dev", "--for=condition=Established", "--timeout=5s"
    )
    manifest = json.dumps(widget(note="abc"))
    assert await kubectl("apply", "-f", "-", stdin=manifest) == "widget.example.dev/w created\n"
    assert await kubectl("apply", "-f", "-", stdin=manifest) == "widget.example.dev/w unchanged\n"
    lines = (await kubectl("get", "wd")).splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "COUNT", "AGE"]
    assert lines[1].split()[:3] == ["w", "small", "1"]
    assert (await kubectl("get", "wd", "-o", "wide")).splitlines()[0].split()[-1] == "NOTE"
    assert "widget.example.dev/w" in await kubectl("get", "all")
    assert "Note:" in await kubectl("describe", "widget", "w")
    assert await kubectl("scale", "widget", "w", "--replicas=4") == "widget.example.dev/w scaled\n"
    assert await kubectl("get", "widget", "w", "-o", "jsonpath={.spec.replicas}") == "4"
    refused = await kubectl("scale", "widget", "w", "--replicas=40", code=1)
    assert "should be less than or equal to 10" in refused
    assert (
        await kubectl("patch", "widget", "w", "--type=merge", "-p", '{"spec":{"note":"xyz"}}')
        == "widget.example.dev/w patched\n"
    )
    await kubectl("patch", "widget", "w", "--type=json", "-p", '[{"op":"replace","path":"/spec/note","value":"ab"}]')
    await kubectl("label", "widget", "w", "colour=red")
    await kubectl("annotate", "widget", "w", "why=because")
    assert "configured" in await kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
    difference = await kubectl("diff", "-f", "-", stdin=manifest, code=1)
    assert "+  note: abc" in difference
    explained = await kubectl("explain", "widget.spec")
    assert "What is wanted." in explained
    assert "How large." in explained
    assert "enum: small, large" in explained
    await kubectl("delete", "widget", "w")
    assert "No resources found" in await kubectl("get", "widgets")
    await kubectl("delete", "crd", "widgets.example.dev")


async def test_refusals_as_a_user_reads_them(widgets: Client, kubectl: Kubectl) -> None:
    words = await kubectl("apply", "-f", "-", stdin=json.dumps(widget(sise="x")), code=1)
    assert 'strict decoding error: unknown field "spec.sise"' in words
    words = await kubectl("apply", "-f", "-", stdin=json.dumps(widget(size="x")), code=1)
    assert 'spec.size: Unsupported value: "x": supported values: "small", "large"' in words
    words = await kubectl("apply", "-f", "-", stdin=json.dumps(widget(min=3, max=1)), code=1)
    assert words.startswith('The Widget "w" is invalid: spec.min: Forbidden: min is larger than max')


async def test_a_list_of_manifests(kubectl: Kubectl) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]}
    assert await kubectl("create", "-f", "-", stdin=json.dumps(listed)) == "pod/a created\npod/b created\n"
    listed["items"] = [pod("c", hostnam="x")]
    words = await kubectl("create", "-f", "-", stdin=json.dumps(listed), code=1)
    assert 'unknown field "spec.hostnam"' in words


async def test_get_all_of_nothing(kubectl: Kubectl) -> None:
    assert await kubectl("get", "all") == "No resources found in default namespace.\n"


async def test_watching(widgets: Client, kubectl: Kubectl) -> None:
    await widgets.ok("POST", "/apis/example.dev/v1/namespaces/default/widgets", widget())
    watching = asyncio.create_task(kubectl("get", "widgets", "-w", "--request-timeout=4s"))
    waiting = asyncio.create_task(kubectl("wait", "widget/w", "--for=jsonpath={.status.state}=Done", "--timeout=20s"))
    await widgets.merge("/apis/example.dev/v1/namespaces/default/widgets/w/status", {"status": {"state": "Done"}})
    assert "condition met" in await waiting
    deleting = asyncio.create_task(kubectl("wait", "widget/w", "--for=delete", "--timeout=20s"))
    await kubectl("scale", "widget", "w", "--replicas=7")
    shown = await watching
    assert shown.splitlines()[0].split() == ["NAME", "SIZE", "COUNT", "AGE"]
    await kubectl("delete", "widget", "w")
    await deleting


async def test_a_generator_falls_on_protobuf_and_says_so(kubectl: Kubectl) -> None:
    words = await kubectl("create", "namespace", "other", code=1)
    assert "does not take protobuf" in words
    made = await kubectl("create", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
    assert made == "namespace/other created\n"
    await kubectl("run", "p", "--image=x", "-n", "other")
    assert "deleted" in await kubectl("delete", "namespace", "other")


async def test_what_is_served(kubectl: Kubectl) -> None:
    assert "disttrain-local" in await kubectl("version")
    listed = await kubectl("api-resources", "-o", "name")
    assert {"pods", "services", "leases.coordination.k8s.io"} <= set(listed.split())
    assert "<[]Container>" in await kubectl("explain", "pod.spec.containers")
