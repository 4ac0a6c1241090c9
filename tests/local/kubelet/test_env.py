"""Environment, expansion and quantities."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.kubelet import env, quantity
from disttrain.local.kubelet.env import ConfigError
from local.kubelet.conftest import Cluster, state

Json = dict[str, Any]

POD: Json = {
    "metadata": {
        "name": "p",
        "namespace": "default",
        "uid": "u-1",
        "labels": {"a/b": "c"},
        "annotations": {"note": "n"},
    },
    "spec": {"nodeName": "box", "containers": []},
    "status": {"podIP": "127.64.0.9", "podIPs": [{"ip": "127.64.0.9"}], "hostIP": "127.0.0.1"},
}
OBJECTS: dict[tuple[str, str, str], Json] = {
    ("configmaps", "default", "conf"): {
        "data": {"lr": "0.1"},
        "binaryData": {"raw": base64.b64encode(b"xyz").decode()},
    },
    ("secrets", "default", "key"): {"data": {"token": base64.b64encode(b"s3cret").decode()}},
}


def get(kind: str, namespace: str, name: str) -> Json | None:
    return OBJECTS.get((kind, namespace, name))


def of(*variables: Json, **container: Any) -> dict[str, str]:
    return env.of_container(
        POD, {"name": "main", "env": list(variables)} | container, {"cpu": "4", "memory": "8Gi"}, get
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$", "$"),
        ("$(NO)", "$(NO)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$()", "$()"),
        ("$($(A))", "$($(A))"),
    ],
)
def test_expand(text: str, expanded: str) -> None:
    assert env.expand(text, {"A": "1", "B": "2"}) == expanded


def test_values_see_what_stands_before_them() -> None:
    assert of({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}, {"name": "A", "value": "3"}) == {
        "A": "3",
        "B": "12",
    }
    assert of({"name": "A", "value": "$(B)"}, {"name": "B"}) == {"A": "$(B)", "B": ""}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['a/b']", "c"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "n"),
        ("spec.nodeName", "box"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.64.0.9"),
        ("status.podIPs", "127.64.0.9"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_field_ref(path: str, value: str) -> None:
    assert of({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}) == {"X": value}


def test_an_unknown_field_is_told_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"fieldPath 'spec.x' is not known here; known: metadata.name, "):
        of({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}})


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "limits.memory"}, str(8 << 30)),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "1"),
    ],
)
def test_resource_field_ref(ref: Json, value: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"cpu": "250m", "memory": "1e6"}}
    assert of({"name": "X", "valueFrom": {"resourceFieldRef": ref}}, resources=resources) == {"X": value}


def test_config_maps_and_secrets() -> None:
    config = {"configMapKeyRef": {"name": "conf", "key": "lr"}}
    secret = {"secretKeyRef": {"name": "key", "key": "token"}}
    optional = {"configMapKeyRef": {"name": "none", "key": "lr", "optional": True}}
    got = of(
        {"name": "A", "valueFrom": config}, {"name": "B", "valueFrom": secret}, {"name": "C", "valueFrom": optional}
    )
    assert got == {"A": "0.1", "B": "s3cret"}
    sources = [{"configMapRef": {"name": "conf"}, "prefix": "C_"}, {"secretRef": {"name": "none", "optional": True}}]
    assert of({"name": "C_lr", "value": "$(C_raw)"}, envFrom=sources) == {"C_lr": "xyz", "C_raw": "xyz"}


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "lr"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "none", "key": "lr"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "conf", "key": "no"}}, "couldn't find key no in ConfigMap default/conf"),
        ({"secretKeyRef": {"name": "key", "key": "no"}}, "couldn't find key no in Secret default/key"),
    ],
)
def test_what_is_missing_is_told_in_the_kubelets_words(variable: Json, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        of({"name": "X", "valueFrom": variable})
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("500m", 0.5),
        ("1Ki", 1024),
        ("2Gi", 2 << 30),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        (".5", 0.5),
        (3, 3),
    ],
)
def test_quantities(text: str | int, number: float) -> None:
    assert quantity.parse(text) == number


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gb", "--1"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.parse(text)


def test_little_is_inherited_and_the_interpreter_comes_first(tmp_path: Path) -> None:
    machine = {"PATH": "/bin", "HOME": "/home/me", "AWS_SECRET_ACCESS_KEY": "no", "VIRTUAL_ENV": "/other"}
    assert env.inherited(machine, None) == {
        "PATH": "/bin",
        "HOME": "/home/me",
        "VIRTUAL_ENV": "/other",
        "PYTHONUNBUFFERED": "1",
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    got = env.inherited(machine, tmp_path / "bin" / "python")
    assert got["PATH"] == f"{tmp_path}/bin:/bin"
    assert got["VIRTUAL_ENV"] == str(tmp_path)


@pytest.mark.parametrize(
    ("own", "cores", "pods", "threads"),
    [({}, 8, 1, 8), ({}, 8, 3, 2), ({}, 2, 3, 1), ({"DISTTRAIN_WORLD_SIZE": "4"}, 8, 1, 2)],
)
def test_threads(own: dict[str, str], cores: int, pods: int, threads: int) -> None:
    assert env.worker_threads(POD, own, cores, pods) == threads


async def test_all_of_it_in_a_real_pod(either: Cluster) -> None:
    await either.client.post(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"lr": "0.1"}},
    )
    variables = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "lr"}}},
        {"name": "BOTH", "value": "$(IP)/$(LR)"},
    ]
    await either.run(
        "all", "sh", "-c", "echo $(BOTH) $NODE $1 $HOSTNAME $OMP_NUM_THREADS", "-", env=variables, args=["$(LR)"]
    )
    pod = await either.over("all")
    ip, node = pod["status"]["podIP"], pod["spec"]["nodeName"]
    words = either.log("all").split()
    assert words[:4] == [f"{ip}/0.1", node, "0.1", "all"]
    assert int(words[4]) >= 1


async def test_a_missing_config_map_is_waited_for(either: Cluster) -> None:
    variables = [{"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "lr"}}}]
    await either.run("waits", "sh", "-c", "echo $LR", env=variables)
    pod = await either.until("waits", lambda pod: "CreateContainerConfigError" in str(state(pod)))
    assert state(pod) == {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "late" not found'}}
    assert pod["status"]["phase"] == "Pending"
    await either.client.post(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"lr": "0.2"}},
    )
    await either.over("waits")
    assert either.log("waits") == "0.2\n"
