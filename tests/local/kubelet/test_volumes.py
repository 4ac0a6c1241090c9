"""Volumes where the manifest says, and nothing of them on the machine."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.kubelet import mapping
from local.kubelet.conftest import Cluster, state

Json = dict[str, Any]
CONFIG = "/api/v1/namespaces/default/configmaps"


def config(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def volume(name: str, **source: Any) -> Json:
    return {"name": name} | source


def mount(name: str, path: str, **more: Any) -> Json:
    return {"name": name, "mountPath": path} | more


def there(*paths: str) -> list[str]:
    """Those that this machine has."""
    return [path for path in paths if Path(path).exists()]


async def test_mount_points_that_the_machine_lacks_appear_in_the_pod_alone(cluster: Cluster) -> None:
    top, deep = f"/dt-{uuid.uuid4().hex}", f"/etc/dt-{uuid.uuid4().hex}/a/b"
    await cluster.run(
        "mounts",
        "sh",
        "-c",
        f"echo 1 > {top}/f && echo 2 > {deep}/f && cat {top}/f {deep}/f && test -e /etc/passwd && pwd",
        spec={"volumes": [volume("one", emptyDir={}), volume("two", emptyDir={})]},
        volumeMounts=[mount("one", top), mount("two", deep)],
        workingDir=top,
    )
    assert (await cluster.over("mounts"))["status"]["phase"] == "Succeeded", cluster.log("mounts")
    assert cluster.log("mounts") == f"1\n2\n{top}\n"
    assert there(top, deep, str(Path(deep).parents[1])) == []


async def test_an_empty_dir_is_shared_by_the_containers_and_gone_after(either: Cluster) -> None:
    inits = [
        {
            "name": "first",
            "image": "x",
            "command": ["sh", "-c", "echo hello > /scratch/f"],
            "volumeMounts": [mount("s", "/scratch")],
        }
    ]
    await either.run(
        "shares",
        "cat",
        "/scratch/f",
        spec={"volumes": [volume("s", emptyDir={})], "initContainers": inits},
        volumeMounts=[mount("s", "/scratch")],
    )
    await either.over("shares")
    assert either.log("shares") == "hello\n"
    (folder,) = (either.folder / "pods").glob("default_shares_*")
    assert sorted(f.name for f in folder.iterdir()) == ["first.log", "main.log"]


async def test_memory_is_a_tmpfs_with_its_limit(cluster: Cluster) -> None:
    await cluster.run(
        "memory",
        "sh",
        "-c",
        "stat -f -c '%T %b %S' /dev/shm /fast; head -c 3000000 /dev/zero > /fast/x",
        spec={"volumes": [volume("s", emptyDir={"medium": "Memory", "sizeLimit": "2Mi"})]},
        volumeMounts=[mount("s", "/fast")],
    )
    assert (await cluster.over("memory"))["status"]["phase"] == "Failed"
    shm, fast, *rest = cluster.log("memory").splitlines()
    kind, blocks, size = shm.split()
    assert (kind, int(blocks) * int(size)) == ("tmpfs", 64 << 20)
    kind, blocks, size = fast.split()
    assert (kind, int(blocks) * int(size)) == ("tmpfs", 2 << 20)
    assert "No space left" in str(rest)


async def test_mounts_in_one_another_and_beside(cluster: Cluster) -> None:
    """None hides another, whatever their order and depth."""
    names = [
        "/dt-x",
        "/dt-x/in/side",
        "/etc/dt-y/deep/er",
        "/etc/ssl/certs/dt-z",
        "/dev/shm",
        "/usr/local/dt/a",
        "/usr/dt",
    ]
    volumes = [volume(f"v{n}", emptyDir={}) for n in range(len(names))]
    mounts = [mount(f"v{n}", path) for n, path in enumerate(names)]
    script = "for d in " + " ".join(names) + "; do echo $d > $d/own; done; "
    script += "for d in " + " ".join(names) + "; do cat $d/own; done; ls -d /usr/bin /etc/passwd /etc/ssl/certs"
    await cluster.run("nest", "sh", "-c", script, spec={"volumes": volumes}, volumeMounts=mounts[::-1])
    assert (await cluster.over("nest"))["status"]["phase"] == "Succeeded", cluster.log("nest")
    assert cluster.log("nest").split() == [*names, "/etc/passwd", "/etc/ssl/certs", "/usr/bin"]
    assert there("/dt-x", "/etc/dt-y", "/etc/ssl/certs/dt-z", "/usr/local/dt", "/usr/dt", "/dev/shm/own") == []


async def test_shared_memory_is_the_pods_own(cluster: Cluster) -> None:
    name = uuid.uuid4().hex
    both = {"volumes": [volume("shm", emptyDir={"medium": "Memory"})]}
    await cluster.run("a", "touch", f"/dev/shm/{name}", spec=both, volumeMounts=[mount("shm", "/dev/shm")])
    assert (await cluster.over("a"))["status"]["phase"] == "Succeeded"
    assert there(f"/dev/shm/{name}") == []


async def test_config_maps_and_secrets_are_files(either: Cluster) -> None:
    await either.client.post(CONFIG, config("conf", hostfile="a slots=1\n", **{"run.sh": "#!/bin/sh\necho ran\n"}))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    secret["data"] = {"id": base64.b64encode(b"private").decode()}
    await either.client.post("/api/v1/namespaces/default/secrets", secret)
    items = [{"key": "run.sh", "path": "bin/run", "mode": 0o755}]
    await either.run(
        "files",
        "sh",
        "-c",
        "cat /etc/dt/hostfile; /opt/dt/bin/run; ls /opt/dt; cat /keys/id; stat -L -c %a /keys/id",
        spec={
            "volumes": [
                volume("c", configMap={"name": "conf"}),
                volume("i", configMap={"name": "conf", "items": items}),
                volume("s", secret={"secretName": "keys", "defaultMode": 0o400}),
            ]
        },
        volumeMounts=[mount("c", "/etc/dt"), mount("i", "/opt/dt"), mount("s", "/keys")],
    )
    assert (await either.over("files"))["status"]["phase"] == "Succeeded", either.log("files")
    assert either.log("files") == "a slots=1\nran\nbin\nprivate400\n"


async def test_a_changed_config_map_reaches_the_pod_in_one_step(either: Cluster) -> None:
    await either.client.post(CONFIG, config("live", one="1", two="1"))
    await either.run(
        "watches",
        "bash",
        "-c",
        "echo up; cd /conf; while [ -e one ]; do sleep 0.01; done; cat two; ls",
        spec={"volumes": [volume("c", configMap={"name": "live"})]},
        volumeMounts=[mount("c", "/conf")],
    )
    await either.logged("watches", "up")
    await either.client.patch(f"{CONFIG}/live", {"data": {"one": None, "two": "2", "three": "3"}})
    await either.over("watches")
    assert either.log("watches") == "up\n2three\ntwo\n"


async def test_labels_and_annotations_are_files_and_follow_changes(cluster: Cluster) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    projected = {"sources": [{"downwardAPI": {"items": items}}]}
    await cluster.run(
        "labels",
        "bash",
        "-c",
        "cat /info/labels; echo; until grep -q new /info/labels; do sleep 0.01; done; cat /info/labels",
        labels={"a": "old"},
        spec={"volumes": [volume("i", projected=projected)]},
        volumeMounts=[mount("i", "/info")],
    )
    await cluster.logged("labels", 'a="old"')
    await cluster.client.patch("/api/v1/namespaces/default/pods/labels", {"metadata": {"labels": {"a": "new"}}})
    await cluster.over("labels")
    assert cluster.log("labels") == 'a="old"\na="new"'


async def test_a_claim_is_a_folder_that_outlives_pods(either: Cluster) -> None:
    claim = {"volumes": [volume("c", persistentVolumeClaim={"claimName": "runs"})]}
    at = [mount("c", "/checkpoints", subPath="job")]
    await either.run("writer", "sh", "-c", "echo state > /checkpoints/last", spec=claim, volumeMounts=at)
    await either.over("writer")
    await either.run("reader", "sh", "-c", "cat /checkpoints/last", spec=claim, volumeMounts=at)
    await either.over("reader")
    assert either.log("reader") == "state\n"
    assert (either.folder / "volumes" / "default_runs" / "job" / "last").read_text() == "state\n"


async def test_read_only_and_sub_path_of_one_file(cluster: Cluster) -> None:
    await cluster.client.post(CONFIG, config("conf", only="text"))
    await cluster.run(
        "one",
        "sh",
        "-c",
        "cat /etc/dt.conf; echo x > /data/f || echo refused",
        spec={"volumes": [volume("c", configMap={"name": "conf"}), volume("e", emptyDir={})]},
        volumeMounts=[mount("c", "/etc/dt.conf", subPath="only"), mount("e", "/data", readOnly=True)],
    )
    await cluster.over("one")
    assert cluster.log("one").startswith("text")
    assert cluster.log("one").endswith("refused\n")


async def test_a_missing_secret_is_waited_for(cluster: Cluster) -> None:
    spec = {"volumes": [volume("s", secret={"secretName": "late"})]}
    await cluster.run("waits", "cat", "/s/k", spec=spec, volumeMounts=[mount("s", "/s")])
    pod = await cluster.until("waits", lambda pod: "message" in state(pod).get("waiting", {}))
    words = 'MountVolume.SetUp failed for volume "s" : secret "late" not found'
    assert state(pod) == {"waiting": {"reason": "ContainerCreating", "message": words}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "late"},
        "data": {"k": base64.b64encode(b"v").decode()},
    }
    await cluster.client.post("/api/v1/namespaces/default/secrets", secret)
    await cluster.over("waits")
    assert cluster.log("waits") == "v"


async def test_an_unknown_volume_is_named(cluster: Cluster) -> None:
    await cluster.run("nfs", "true", spec={"volumes": [volume("d", nfs={"server": "s", "path": "/"})]})
    pod = await cluster.over("nfs")
    assert pod["status"]["message"].startswith('volume "d" is of type nfs; on one machine there are emptyDir, ')


async def test_a_working_directory_that_is_not_there_names_the_way_out(either: Cluster) -> None:
    await either.run("image", "true", workingDir="/dt-app")
    pod = await either.over("image")
    assert pod["status"]["message"].endswith("Say which folder stands for it: --map /dt-app=./dt-app")


async def test_without_namespaces_a_path_that_nothing_names_is_refused_with_the_way_out(mapped: Cluster) -> None:
    spec = {"volumes": [volume("d", emptyDir={})]}
    await mapped.run("hidden", "true", spec=spec, volumeMounts=[mount("d", "/dt-data")])
    pod = await mapped.over("hidden")
    assert "mounts volumes at /dt-data" in pod["status"]["message"]
    assert pod["status"]["message"].endswith("--map /dt-data=./dt-data")


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("/data", "/home/me/d"),
        ("/data/x.bin", "/home/me/d/x.bin"),
        ("--data=/data/x", "--data=/home/me/d/x"),
        ("/data:/data/sub", "/home/me/d:/tmp/s"),
        ("/database", "/database"),
        ("/my/data", "/my/data"),
        ("x/data", "x/data"),
        ("/data-2", "/data-2"),
        ("see '/data'", "see '/home/me/d'"),
    ],
)
def test_substitution_by_prefix(text: str, local: str) -> None:
    assert mapping.substitute(text, {"/data": Path("/home/me/d"), "/data/sub": Path("/tmp/s")}) == local
