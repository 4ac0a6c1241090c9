"""Create, read, update, patch and delete over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from local.server.conftest import PODS, Client, pod

SPACES = "/api/v1/namespaces"
MAPS = "/api/v1/namespaces/default/configmaps"
JSON_PATCH = "application/json-patch+json"


def config(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_what_the_server_adds(client: Client) -> None:
    made = await client.ok("POST", PODS, pod("a"))
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"].endswith("Z")
    assert len(metadata["uid"]) == 36
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert await client.ok("GET", f"{PODS}/a") == made


async def test_versions_only_grow_and_a_write_of_nothing_makes_none(client: Client) -> None:
    first = await client.ok("POST", MAPS, config(a="1"))
    other = await client.ok("POST", MAPS, config("d"))
    assert int(other["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    _, same = await client.merge(f"{MAPS}/c", {"data": {"a": "1"}})
    assert same == first
    _, changed = await client.merge(f"{MAPS}/c", {"data": {"a": "2"}})
    assert int(changed["metadata"]["resourceVersion"]) > int(other["metadata"]["resourceVersion"])


async def test_generated_names_differ(client: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    names = {(await client.ok("POST", MAPS, body))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_conflicts(client: Client) -> None:
    made = await client.ok("POST", MAPS, config(a="1"))
    code, answer = await client.call("POST", MAPS, config())
    assert (code, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'configmaps "c" already exists'
    await client.merge(f"{MAPS}/c", {"data": {"a": "2"}})
    code, answer = await client.call("PUT", f"{MAPS}/c", made)
    assert (code, answer["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer["message"]
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    code, _ = await client.merge(f"{MAPS}/c", stale)
    assert code == 409
    code, answer = await client.merge(f"{MAPS}/c", {"metadata": {"uid": "another"}})
    assert code == 409
    assert "UID in precondition: another" in answer["message"]
    assert (await client.ok("GET", f"{MAPS}/c"))["data"] == {"a": "2"}


async def test_an_unconditional_put_is_a_replacement(client: Client) -> None:
    await client.ok("POST", MAPS, config(a="1"))
    await client.ok("PUT", f"{MAPS}/c", config(b="2"))
    assert (await client.ok("GET", f"{MAPS}/c"))["data"] == {"b": "2"}


async def test_a_json_patch_whose_test_fails(client: Client) -> None:
    await client.ok("POST", MAPS, config(a="1"))
    operations = [{"op": "test", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/a"}]
    code, _ = await client.call("PATCH", f"{MAPS}/c", operations, JSON_PATCH)
    assert code == 422
    operations[0]["value"] = "1"
    await client.ok("PATCH", f"{MAPS}/c", operations, JSON_PATCH)
    assert not (await client.ok("GET", f"{MAPS}/c")).get("data")


@pytest.mark.parametrize(
    ("media", "words"),
    [
        ("application/apply-patch+yaml", "does not take server-side apply"),
        ("application/vnd.kubernetes.protobuf", "does not take protobuf"),
        ("text/plain", "unknown format - accepted media types include: application/json-patch+json"),
    ],
)
async def test_media_that_are_not_taken(client: Client, media: str, words: str) -> None:
    await client.ok("POST", MAPS, config())
    code, answer = await client.call("PATCH", f"{MAPS}/c", {}, media)
    assert (code, answer["reason"]) == (415, "UnsupportedMediaType")
    assert words in answer["message"]


async def test_protobuf_bodies_are_named(client: Client) -> None:
    code, answer = await client.call("POST", MAPS, {}, "application/vnd.kubernetes.protobuf")
    assert code == 415
    assert "protobuf" in answer["message"]


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    made = await client.ok("POST", f"{PODS}?dryRun=All", pod("a"))
    assert made["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "resourceVersion" not in made["metadata"]
    assert (await client.call("GET", f"{PODS}/a"))[0] == 404
    real = await client.ok("POST", PODS, pod("a"))
    await client.ok("DELETE", f"{PODS}/a?dryRun=All")
    await client.ok("DELETE", f"{PODS}/a", {"dryRun": ["All"]})  # as kubectl says it
    await client.ok("DELETE", PODS, {"dryRun": ["All"]})
    code, answer = await client.call("DELETE", f"{PODS}/a", {"dryRun": ["Some"]})
    assert (code, answer["reason"]) == (422, "Invalid")
    _, patched = await client.merge(f"{PODS}/a?dryRun=All", {"metadata": {"labels": {"x": "y"}}})
    assert patched["metadata"]["labels"] == {"x": "y"}
    assert await client.ok("GET", f"{PODS}/a") == real


async def test_a_body_without_its_kind(client: Client) -> None:
    """Typed clients leave it out: the path says what it is. A body of another kind is refused."""
    made = await client.ok("POST", MAPS, {"metadata": {"name": "c"}})
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    code, answer = await client.call("POST", MAPS, pod("a"))
    assert code == 400
    assert "cannot be handled as a ConfigMap" in answer["message"]
    for body in ([1], "x", None):
        code, answer = await client.call("POST", MAPS, body)
        assert (code, answer["reason"]) == (400, "BadRequest")


async def test_missing_things(client: Client) -> None:
    code, answer = await client.call("GET", f"{PODS}/none")
    assert (code, answer["message"]) == (404, 'pods "none" not found')
    assert answer["details"] == {"name": "none", "kind": "pods"}
    code, answer = await client.call("POST", "/api/v1/namespaces/nowhere/pods", pod("a"))
    assert (code, answer["message"]) == (404, 'namespaces "nowhere" not found')
    for path in ("/api/v1/namespaces/default/cronjobs", "/apis/batch/v1/jobs", "/nothing", "/api/v1/pods/x"):
        code, answer = await client.call("GET", path)
        assert (code, answer["message"]) == (404, "the server could not find the requested resource"), path


@pytest.mark.parametrize("sub", ["exec", "attach", "portforward"])
async def test_what_is_left_out_says_so(client: Client, sub: str) -> None:
    await client.ok("POST", PODS, pod("a"))
    code, answer = await client.call("POST", f"{PODS}/a/{sub}", {})
    assert (code, answer["message"]) == (501, f"the one-machine cluster does not serve pods/{sub}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [  # the words as a kube-apiserver 1.34 has them
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "c"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
         'spec.containers[1].name: Duplicate value: "c"'),
        ({"restartPolicy": "Foo"},
         'spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"'),
        ({"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}]},
         'spec.containers[0].volumeMounts[0].name: Not found: "v"'),
        ({"containers": [{"name": "c", "image": "x", "env": [{"name": ""}]}]},
         "spec.containers[0].env[0].name: Required value"),
    ],
)  # fmt: skip
async def test_pods_that_make_no_sense(client: Client, change: dict[str, Any], expected: str) -> None:
    code, answer = await client.call("POST", PODS, pod("a", **change))
    assert (code, answer["message"]) == (422, f'Pod "a" is invalid: {expected}')
    assert answer["details"]["causes"][0]["field"] == expected.split(": ")[0]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"activeDeadlineSeconds": "x"},
         "json: cannot unmarshal string into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64"),
        ({"containers": [{"name": "c", "image": "x", "env": [{"name": "A", "value": 1}]}]},
         "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string"),
        ({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "abc"}}}]},
         "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
    ],
)  # fmt: skip
async def test_pods_of_the_wrong_types(client: Client, spec: dict[str, Any], expected: str) -> None:
    code, answer = await client.call("POST", PODS, pod("a", **spec))
    assert (code, answer["message"]) == (400, f'Pod in version "v1" cannot be handled as a Pod: {expected}')


async def test_unknown_fields(client: Client) -> None:
    body = pod("a", containers=[{"name": "c", "image": "x", "comand": ["y"]}], foo=1)
    code, answer = await client.call("POST", f"{PODS}?fieldValidation=Strict", body)
    assert code == 400
    assert answer["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error:'
        ' unknown field "spec.containers[0].comand", unknown field "spec.foo"'
    )
    async with client.session.post(client.url + PODS, json=body) as response:
        assert response.status == 201
        assert response.headers.getall("Warning") == [
            '299 - "unknown field \\"spec.containers[0].comand\\""',
            '299 - "unknown field \\"spec.foo\\""',
        ]
        assert "foo" not in (await response.json())["spec"]
    async with client.session.post(
        f"{client.url}{PODS}?fieldValidation=Ignore", json={**body, "metadata": {"name": "b"}}
    ) as response:
        assert response.status == 201
        assert "Warning" not in response.headers


async def test_a_pod_is_what_it_was_created_as(client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    code, answer = await client.merge(f"{PODS}/a", {"spec": {"restartPolicy": "Never"}})
    assert code == 422
    assert "pod updates may not change fields other than" in answer["message"]
    _, changed = await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["generation"] == 1


async def bind(client: Client, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "here"}
    await client.ok(
        "POST",
        f"{PODS}/{name}/binding",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target},
    )


async def test_status_and_the_rest_are_apart(client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    await client.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})
    await client.merge(f"{PODS}/a", {"status": {"phase": "Failed"}})
    now = await client.ok("GET", f"{PODS}/a")
    assert now["status"]["phase"] == "Running"
    assert "nodeName" not in now["spec"]
    assert now["metadata"]["generation"] == 1


async def test_deletion_of_a_pod_waits_for_its_node(client: Client) -> None:
    await client.ok("POST", PODS, pod("a"))
    gone = await client.ok("DELETE", f"{PODS}/a")  # it never reached a node
    assert gone["kind"] == "Pod"
    assert (await client.call("GET", f"{PODS}/a"))[0] == 404
    await client.ok("POST", PODS, pod("b"))
    await bind(client, "b")
    marked = await client.ok("DELETE", f"{PODS}/b")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await client.ok("DELETE", f"{PODS}/b"))["metadata"]["resourceVersion"] == marked["metadata"][
        "resourceVersion"
    ]
    code, answer = await client.call("POST", PODS, pod("b"))
    assert (code, answer["message"]) == (409, 'object is being deleted: pods "b" already exists')
    shorter = await client.ok("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    await client.ok("DELETE", f"{PODS}/b?gracePeriodSeconds=0")
    assert (await client.call("GET", f"{PODS}/b"))[0] == 404
    await client.ok("POST", PODS, pod("c"))
    await bind(client, "c")
    await client.merge(f"{PODS}/c/status", {"status": {"phase": "Succeeded"}})
    await client.ok("DELETE", f"{PODS}/c")  # it has ended: nobody is to be waited for
    assert (await client.call("GET", f"{PODS}/c"))[0] == 404


async def test_preconditions_of_a_deletion(client: Client) -> None:
    made = await client.ok("POST", MAPS, config())
    code, answer = await client.call("DELETE", f"{MAPS}/c", {"preconditions": {"uid": "other"}})
    assert code == 409
    assert "the UID in the precondition (other) does not match the UID in record" in answer["message"]
    code, _ = await client.call("DELETE", f"{MAPS}/c", {"preconditions": {"resourceVersion": "1"}})
    assert code == 409
    uid = made["metadata"]["uid"]
    status = await client.ok("DELETE", f"{MAPS}/c", {"preconditions": {"uid": uid}})
    assert status["details"] == {"name": "c", "kind": "configmaps", "uid": uid}


async def test_finalizers_hold(client: Client) -> None:
    body = config()
    body["metadata"]["finalizers"] = ["a.b/c"]
    await client.ok("POST", MAPS, body)
    marked = await client.ok("DELETE", f"{MAPS}/c")
    assert marked["metadata"]["deletionTimestamp"]
    code, answer = await client.merge(f"{MAPS}/c", {"metadata": {"finalizers": ["a.b/c", "x.y/z"]}})
    assert code == 422
    assert (
        'no new finalizers can be added if the object is being deleted, found new finalizers []string{"x.y/z"}'
        in answer["message"]
    )
    await client.merge(f"{MAPS}/c", {"metadata": {"finalizers": None}})
    assert (await client.call("GET", f"{MAPS}/c"))[0] == 404


async def test_delete_many(client: Client) -> None:
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = config(name)
        body["metadata"]["labels"] = {"colour": colour}
        await client.ok("POST", MAPS, body)
    listed = await client.ok("DELETE", f"{MAPS}?labelSelector=colour%3Dred")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert [item["metadata"]["name"] for item in (await client.ok("GET", MAPS))["items"]] == ["c"]


async def test_pages(client: Client) -> None:
    for index in range(7):
        await client.ok("POST", MAPS, config(f"c{index}"))
    names, token, pages = [], "", 0
    while True:
        page = await client.ok("GET", f"{MAPS}?limit=3" + (f"&continue={token}" if token else ""))
        names += [item["metadata"]["name"] for item in page["items"]]
        pages += 1
        if pages == 1:
            version = page["metadata"]["resourceVersion"]
            assert page["metadata"]["remainingItemCount"] == 4
            await client.ok("POST", MAPS, config("zz"))  # a newcomer shows up, or comes by the watch; nothing is missed
        assert page["metadata"]["resourceVersion"] == version
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert pages == 3
    assert names[:7] == [f"c{index}" for index in range(7)]
    code, answer = await client.call("GET", f"{MAPS}?limit=3&continue=nonsense")
    assert (code, answer["reason"]) == (400, "BadRequest")


async def test_lists_of_a_namespace_and_of_all(client: Client) -> None:
    await client.ok("POST", SPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await client.ok("POST", MAPS, config("a"))
    await client.ok("POST", "/api/v1/namespaces/other/configmaps", config("b"))
    listed = await client.ok("GET", "/api/v1/configmaps")
    assert listed["kind"] == "ConfigMapList"
    assert [item["metadata"]["namespace"] for item in listed["items"]] == ["default", "other"]
    only = await client.ok("GET", "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dother")
    assert [item["metadata"]["name"] for item in only["items"]] == ["b"]


async def test_a_version_of_the_future(client: Client) -> None:
    code, answer = await client.call("GET", f"{MAPS}?resourceVersion=99999")
    assert (code, answer["reason"]) == (504, "Timeout")
    assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_metadata_alone(client: Client) -> None:
    await client.ok("POST", MAPS, config(a="1"))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
    listed = await client.ok("GET", MAPS, Accept=accept)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}
    code, _ = await client.call("GET", MAPS, Accept="text/html")
    assert code == 406


async def test_secrets_are_encoded(client: Client) -> None:
    path = "/api/v1/namespaces/default/secrets"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    made = await client.ok("POST", path, body)
    assert (made["data"], made["type"]) == ({"a": "Yg=="}, "Opaque")
    assert "stringData" not in made
    code, _ = await client.call("POST", path, {**body, "metadata": {"name": "t"}, "data": {"a": "%%"}})
    assert code == 400


async def test_names_and_labels_are_checked(client: Client) -> None:
    code, answer = await client.call("POST", PODS, pod("A_b"))
    assert code == 422
    assert "a lowercase RFC 1123 subdomain must consist of" in answer["message"]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "9lives"}, "spec": {"clusterIP": "None"}}
    code, answer = await client.call("POST", "/api/v1/namespaces/default/services", service)
    assert code == 422
    assert "a DNS-1035 label must consist of" in answer["message"]
    labelled = pod("a")
    labelled["metadata"]["labels"] = {"x": "b c"}
    code, answer = await client.call("POST", PODS, labelled)
    assert "a valid label must be an empty string or consist of" in answer["message"]
    labelled["metadata"]["labels"] = {"x/y/z": "b"}
    code, answer = await client.call("POST", PODS, labelled)
    assert code == 422


async def test_many_at_once(client: Client) -> None:
    """Requests that come together are committed together, and each gets its own version."""
    made = await asyncio.gather(*(client.ok("POST", MAPS, config(f"c{index}")) for index in range(100)))
    assert len({one["metadata"]["resourceVersion"] for one in made}) == 100


async def test_who_may_do_what(client: Client) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
    assert (await client.ok("POST", path, review))["status"]["allowed"] is True
