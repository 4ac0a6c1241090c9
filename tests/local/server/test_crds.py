"""Custom types over HTTP."""

from __future__ import annotations

from typing import Any

from local.server.conftest import CRDS, WIDGETS, Client, widget, widget_crd

NOT_CHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)


async def test_a_type_is_served_once_it_is_defined(client: Client) -> None:
    assert (await client.call("GET", WIDGETS))[0] == 404
    made = await client.ok("POST", CRDS, widget_crd())
    conditions = {condition["type"]: condition["status"] for condition in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert (await client.ok("GET", WIDGETS))["kind"] == "WidgetList"
    groups = await client.ok("GET", "/apis")
    assert "example.dev" in [group["name"] for group in groups["groups"]]
    listed = (await client.ok("GET", "/apis/example.dev/v1"))["resources"]
    assert [entry["name"] for entry in listed] == ["widgets", "widgets/status", "widgets/scale"]
    assert (listed[0]["shortNames"], listed[0]["categories"]) == (["wd"], ["all"])
    assert (listed[2]["group"], listed[2]["kind"]) == ("autoscaling", "Scale")


async def test_aggregated_discovery(widgets: Client) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    found = await widgets.ok("GET", "/apis", Accept=accept)
    assert found["kind"] == "APIGroupDiscoveryList"
    group = next(item for item in found["items"] if item["metadata"]["name"] == "example.dev")
    (resource,) = group["versions"][0]["resources"]
    assert (resource["resource"], resource["scope"]) == ("widgets", "Namespaced")
    assert [sub["subresource"] for sub in resource["subresources"]] == ["status", "scale"]
    core = await widgets.ok("GET", "/api", Accept=accept)
    assert "pods" in [entry["resource"] for entry in core["items"][0]["versions"][0]["resources"]]


async def test_the_schema_is_published(widgets: Client) -> None:
    index = await widgets.ok("GET", "/openapi/v3")
    url = index["paths"]["apis/example.dev/v1"]["serverRelativeURL"]
    document = await widgets.ok("GET", url)
    kind = {"group": "example.dev", "version": "v1", "kind": "Widget"}
    schema = document["components"]["schemas"]["dev.example.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [kind]
    assert schema["properties"]["spec"]["properties"]["size"]["description"] == "How large."
    operations = document["paths"]["/apis/example.dev/v1/namespaces/{namespace}/widgets/{name}"]
    names = {parameter["name"] for parameter in operations["patch"]["parameters"]}
    assert {"fieldValidation", "dryRun"} <= names
    assert operations["patch"]["x-kubernetes-group-version-kind"] == kind
    _, crd = await widgets.merge(f"{CRDS}/widgets.example.dev", {"metadata": {"labels": {"x": "y"}}})
    assert crd["metadata"]["generation"] == 1


async def test_defaults_and_pruning(widgets: Client) -> None:
    made = await widgets.ok("POST", WIDGETS, widget(parts=[{"name": "a", "odd": 1}], odd=2))
    assert made["spec"] == {
        "size": "small", "replicas": 1, "parts": [{"name": "a", "weight": 3}], "nested": {"a": {"b": 5}},
    }  # fmt: skip
    code, answer = await widgets.call("POST", f"{WIDGETS}?fieldValidation=Strict", widget("x", odd=2, nested={"z": 1}))
    assert (code, answer["message"]) == (
        400,
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error:'
        ' unknown field "spec.nested.z", unknown field "spec.odd"',
    )
    code, answer = await widgets.call(
        "PATCH", f"{WIDGETS}/w?fieldValidation=Strict", {"spec": {"odd": 1}}, "application/merge-patch+json"
    )
    assert code == 422
    assert answer["message"].endswith('strict decoding error: unknown field "spec.odd"')


async def test_what_is_refused(widgets: Client) -> None:
    code, answer = await widgets.call("POST", WIDGETS, widget(size="x", replicas=0))
    assert code == 422
    assert answer["message"] == (
        'Widget.example.dev "w" is invalid: [spec.size: Unsupported value: "x": supported values: "small", "large",'
        " spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1,"
        f" {NOT_CHECKED}]"
    )
    assert answer["details"]["kind"] == "Widget"
    assert answer["details"]["causes"][0] == {
        "reason": "FieldValueNotSupported",
        "message": 'Unsupported value: "x": supported values: "small", "large"',
        "field": "spec.size",
    }
    code, answer = await widgets.call("POST", WIDGETS, widget(min=3, max=1))
    assert answer["message"] == 'Widget.example.dev "w" is invalid: spec.min: Forbidden: min is larger than max'
    env = [{"name": "X_A", "value": 1}]
    code, answer = await widgets.call("POST", WIDGETS, widget(parts=[{"name": "a", "env": env}]))
    assert answer["message"].endswith("is invalid: spec.parts[0].env[0].name: Forbidden: X_A is reserved")
    code, answer = await widgets.call("POST", WIDGETS, widget("a-name-that-is-too-long"))
    assert '<nil>: Invalid value: "object": metadata.name: a-name-that-is-too-long has 23' in answer["message"]
    assert (await widgets.ok("GET", WIDGETS))["items"] == []


async def test_immutable_fields(widgets: Client) -> None:
    await widgets.ok("POST", WIDGETS, widget())
    code, answer = await widgets.merge(f"{WIDGETS}/w", {"spec": {"size": "large"}})
    assert (code, answer["message"]) == (
        422,
        'Widget.example.dev "w" is invalid: spec: Invalid value: "object": size is immutable',
    )


async def test_a_put_of_a_custom_object_needs_a_version(widgets: Client) -> None:
    made = await widgets.ok("POST", WIDGETS, widget())
    code, answer = await widgets.call("PUT", f"{WIDGETS}/w", widget(replicas=2))
    assert code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer["message"]
    made["spec"]["replicas"] = 2
    assert (await widgets.ok("PUT", f"{WIDGETS}/w", made))["metadata"]["generation"] == 2


async def test_the_status_subresource(widgets: Client) -> None:
    body = widget()
    body["status"] = {"state": "made up"}
    made = await widgets.ok("POST", WIDGETS, body)
    assert "status" not in made
    patch = {"status": {"state": "x", "odd": 1}, "spec": {"replicas": 7}, "metadata": {"labels": {"a": "b"}}}
    code, changed = await widgets.merge(f"{WIDGETS}/w/status", patch)
    assert code == 200
    assert changed["status"] == {"state": "x"}
    assert changed["spec"] == made["spec"]
    assert changed["metadata"]["generation"] == 1
    assert "labels" not in changed["metadata"]
    _, same = await widgets.merge(f"{WIDGETS}/w", {"status": {"state": "y"}})
    assert same == changed


async def test_the_scale_subresource(widgets: Client) -> None:
    await widgets.ok("POST", WIDGETS, widget())
    await widgets.merge(f"{WIDGETS}/w/status", {"status": {"replicas": 3, "selector": "a=b"}})
    scale = await widgets.ok("GET", f"{WIDGETS}/w/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 3, "selector": "a=b"})
    _, scaled = await widgets.merge(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})
    assert scaled["spec"] == {"replicas": 4}
    assert (await widgets.ok("GET", f"{WIDGETS}/w"))["spec"]["replicas"] == 4
    code, answer = await widgets.merge(f"{WIDGETS}/w/scale", {"spec": {"replicas": 40}})
    assert code == 422
    assert "spec.replicas in body should be less than or equal to 10" in answer["message"]
    code, _ = await widgets.call("PUT", f"{WIDGETS}/w/scale", scale)
    assert code == 409  # of an old version
    assert (await widgets.call("GET", "/api/v1/namespaces/default/pods/x/scale"))[0] == 404


async def test_a_stricter_type_does_not_stop_what_runs(widgets: Client) -> None:
    await widgets.ok("POST", WIDGETS, widget(replicas=9, note="abc"))
    crd = await widgets.ok("GET", f"{CRDS}/widgets.example.dev")
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["replicas"]["maximum"] = 5
    properties["note"]["maxLength"] = 2
    await widgets.ok("PUT", f"{CRDS}/widgets.example.dev", crd)
    code, _ = await widgets.merge(f"{WIDGETS}/w/status", {"status": {"state": "still fine"}})
    assert code == 200
    code, answer = await widgets.merge(f"{WIDGETS}/w", {"spec": {"replicas": 8}})
    assert code == 422
    assert "spec.replicas" in answer["message"]
    assert "spec.note" not in answer["message"]
    assert (await widgets.call("POST", WIDGETS, widget("v", replicas=9)))[0] == 422


async def test_definitions_that_make_no_sense(client: Client) -> None:
    crd = widget_crd()
    crd["metadata"]["name"] = "gadgets.example.dev"
    code, answer = await client.call("POST", CRDS, crd)
    assert code == 422
    assert 'must be spec.names.plural+"."+spec.group' in answer["message"]
    crd = widget_crd()
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [{"rule": "self.metadata.name =="}]
    code, answer = await client.call("POST", CRDS, crd)
    assert code == 422
    assert "compilation failed" in answer["message"]
    crd = widget_crd()
    crd["spec"]["versions"][0]["storage"] = False
    code, answer = await client.call("POST", CRDS, crd)
    assert "must have exactly one version marked as storage version" in answer["message"]
