"""The cluster as a daemon, and what is left when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disttrain.local import cluster
from disttrain.local.client import Client
from disttrain.local.cluster import ClusterError, LocalCluster, Options
from local.kubelet.conftest import PODS, Cluster, left, marked, wait_for

Json = dict[str, Any]
QUICK = Options(backoff=0.1)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    cluster.down(folder, timeout=5)


def pod(name: str, *command: str, **spec: Any) -> Json:
    main = {"name": "main", "image": "none", "command": list(command)}
    body = {"restartPolicy": "Never", "containers": [main]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def phase(client: Client, name: str, *wanted: str) -> Json:
    found: Json = {}

    async def reached() -> bool:
        found.update(await client.get(f"{PODS}/{name}"))
        return found["status"]["phase"] in wanted

    await wait_for(reached)
    return found


async def test_up_status_down(state: Path) -> None:
    assert not cluster.status(state).running
    now = await asyncio.to_thread(cluster.up, state, QUICK)
    assert now.running
    assert now.kubeconfig is not None
    assert now.pods == {}
    assert [mode(state), mode(now.kubeconfig), mode(state / "token")] == [0o700, 0o600, 0o600]
    again = await asyncio.to_thread(cluster.up, state, QUICK)
    assert (again.pid, again.url) == (now.pid, now.url)
    async with Client(now.url, (state / "token").read_text()) as client:
        await client.post(PODS, pod("one", "sleep", "60"))
        await phase(client, "one", "Running")
    assert cluster.status(state).pods == {"Running": 1}
    assert await asyncio.to_thread(cluster.down, state)
    assert not cluster.status(state).running
    assert not await asyncio.to_thread(cluster.down, state)


async def test_a_stopped_cluster_reports_its_pods_and_keeps_everything(state: Path) -> None:
    now = await asyncio.to_thread(cluster.up, state, QUICK)
    token = (state / "token").read_text()
    async with Client(now.url, token) as client:
        await client.post(
            PODS, pod("one", "bash", "-c", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        )
        await phase(client, "one", "Running")
        log = next((state / "pods").glob("default_one_*/main.log"))

        async def is_up() -> bool:
            return "up" in log.read_text()

        await wait_for(is_up)
    await asyncio.to_thread(cluster.down, state)
    assert log.read_text() == "up\nsaved\n"
    now = await asyncio.to_thread(cluster.up, state, QUICK)
    assert (state / "token").read_text() == token
    async with Client(now.url, token) as client:
        found = (await client.get(f"{PODS}/one"))["status"]
    assert (found["phase"], found["reason"]) == ("Failed", "Terminated")
    assert found["message"] == "Pod was terminated in response to imminent node shutdown."
    assert {"DisruptionTarget": "TerminationByKubelet"}.items() <= {
        c["type"]: c.get("reason") for c in found["conditions"]
    }.items()
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_killed_daemon_leaves_no_process_and_its_pods_count_as_lost(state: Path) -> None:
    word = uuid.uuid4().hex
    beside = [sys.executable, "-c", "import time; time.sleep(100)", word]
    now = await asyncio.to_thread(cluster.up, state, QUICK, [beside])
    async with Client(now.url, (state / "token").read_text()) as client:
        tree = f"setsid bash -c 'sleep 100; true' {word} & trap '' TERM; sleep 100; true"
        await client.post(PODS, pod("one", "bash", "-c", tree, word))
        await phase(client, "one", "Running")
    await left(word, 3)
    assert now.pid is not None
    os.kill(now.pid, signal.SIGKILL)
    await left(word, 0)
    assert not cluster.status(state).running
    now = await asyncio.to_thread(cluster.up, state, QUICK)
    async with Client(now.url, (state / "token").read_text()) as client:
        found = (await phase(client, "one", "Failed"))["status"]
    assert found["reason"] == "Terminated"
    assert found["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


async def test_a_killed_daemon_leaves_no_process_without_namespaces_either(state: Path) -> None:
    word = uuid.uuid4().hex
    now = await asyncio.to_thread(cluster.up, state, Options(isolation="mapping"))
    assert now.isolation == "none: asked for"
    async with Client(now.url, (state / "token").read_text()) as client:
        hidden = f"(setsid env -i $(command -v bash) -c 'sleep 100; true' {word} &)"
        tree = f"{hidden}; setsid bash -c 'sleep 100; true' {word} & wait"
        await client.post(PODS, pod("one", "bash", "-c", tree, word))
        await phase(client, "one", "Running")
    await left(word, 3)
    assert now.pid is not None
    os.kill(now.pid, signal.SIGKILL)
    await left(word, 0)


async def test_commands_beside_it_are_restarted_and_end_with_it(state: Path) -> None:
    word = uuid.uuid4().hex
    script = "import sys, time; print(sys.argv[2:], flush=True); time.sleep(100)"
    command = [sys.executable, "-c", script, word, "{kubeconfig}", "{pid}"]
    now = await asyncio.to_thread(cluster.up, state, QUICK, [command])
    said = f"{[str(now.kubeconfig), str(now.pid)]}\n"

    async def ran(times: int) -> bool:
        return (state / "0.log").read_text() == said * times

    await wait_for(lambda: ran(1))
    os.kill(marked(word)[0], signal.SIGKILL)
    await wait_for(lambda: ran(2))
    await asyncio.to_thread(cluster.down, state)
    assert marked(word) == []


def test_two_at_once_start_one(state: Path) -> None:
    found: list[cluster.Status] = []
    threads = [threading.Thread(target=lambda: found.append(cluster.up(state, QUICK))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({now.pid for now in found}) == 1


def test_a_start_that_fails_says_why(state: Path) -> None:
    state.mkdir()
    (state / "pods").write_text("in the way")
    with pytest.raises(ClusterError, match=r"did not start: .*pods.* \(all of it: .*daemon.log\)"):
        cluster.up(state, QUICK)
    assert not cluster.status(state).running


async def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, QUICK) as one:
        assert one.kubeconfig.read_text().count(one.url) == 1
        with pytest.raises(ClusterError, match=rf"in use by process {os.getpid()}"):
            async with LocalCluster(tmp_path, QUICK):
                pass
        assert not cluster.status(tmp_path).running, "no daemon has it"
    async with LocalCluster(tmp_path, QUICK):
        pass


async def test_the_machine_is_a_node_that_is_ready(cluster: Cluster) -> None:
    (node,) = (await cluster.client.get("/api/v1/nodes"))["items"]
    assert [(c["type"], c["status"]) for c in node["status"]["conditions"]] == [("Ready", "True")]
    assert int(node["status"]["allocatable"]["cpu"]) >= 1
    assert node["status"]["allocatable"]["memory"].endswith("Ki")
