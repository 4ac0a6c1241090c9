"""Devices, probes, sidecars, what is refused, a kubelet's end and its client's patience."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.client import Change, Client
from disttrain.local.kubelet import kubelet as kubelet_module
from disttrain.local.kubelet import node
from disttrain.local.kubelet.kubelet import Kubelet, Options
from disttrain.local.server import ApiServer, Rule
from local.kubelet.conftest import PODS, Cluster, state, wait_for

Json = dict[str, Any]


def asks(resource: str, count: int = 1) -> Json:
    return {"resources": {"limits": {resource: str(count)}}}


def scheduled(pod: Json) -> tuple[str, str]:
    found = {c["type"]: (c["status"], c.get("reason", "")) for c in pod["status"].get("conditions", [])}
    return found.get("PodScheduled", ("", ""))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "example.com/asic"])
async def test_a_device_that_is_not_there_keeps_a_pod_pending_and_offers_cpu(cluster: Cluster, resource: str) -> None:
    await cluster.run("wants", "true", **asks(resource, 8))
    pod = await cluster.until("wants", lambda pod: scheduled(pod)[0] == "False")
    assert scheduled(pod) == ("False", "Unschedulable")
    assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)
    words = pod["status"]["conditions"][0]["message"]
    assert words == (
        f"0/1 nodes are available: 1 Insufficient {resource}. 8 asked for, this machine has 0. "
        "With --cpu the job runs here without accelerators."
    )
    await cluster.delete("wants")
    await cluster.gone("wants")


async def test_with_cpu_devices_do_not_matter(tmp_path: Path) -> None:
    async with Cluster(tmp_path, Options(cpu=True)) as cluster:
        await cluster.run("wants", "true", **asks("nvidia.com/gpu", 8))
        assert (await cluster.over("wants"))["status"]["phase"] == "Succeeded"


async def test_gpus_are_shared_out_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "capacity", lambda: {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"})
    async with Cluster(tmp_path, Options()) as cluster:
        script = "echo $CUDA_VISIBLE_DEVICES; sleep 60"
        await cluster.run("one", "sh", "-c", script, **asks("nvidia.com/gpu", 1))
        assert await cluster.logged("one", "\n") == "0\n"
        await cluster.run("two", "sh", "-c", script, **asks("nvidia.com/gpu", 2))
        pod = await cluster.until("two", lambda pod: scheduled(pod)[0] == "False")
        assert "2 asked for, this machine has 2 of which 1 are free" in pod["status"]["conditions"][0]["message"]
        await cluster.delete("one")
        assert await cluster.logged("two", "\n") == "0,1\n"


async def test_a_gated_pod_is_not_placed(cluster: Cluster) -> None:
    await cluster.run("gated", "true", spec={"schedulingGates": [{"name": "queue"}]})
    pod = await cluster.until("gated", lambda pod: scheduled(pod)[0] == "False")
    assert scheduled(pod) == ("False", "SchedulingGated")
    assert "nodeName" not in pod["spec"]


async def test_readiness_by_exec(either: Cluster, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1, "failureThreshold": 1}
    await either.run("probed", "sleep", "60", readinessProbe=probe)
    pod = await either.running("probed")
    assert pod["status"]["containerStatuses"][0]["ready"] is False
    flag.touch()
    await either.until("probed", lambda pod: pod["status"]["containerStatuses"][0]["ready"])
    flag.unlink()
    pod = await either.until("probed", lambda pod: not pod["status"]["containerStatuses"][0]["ready"])
    conditions = {c["type"]: c for c in pod["status"]["conditions"]}
    assert conditions["Ready"]["reason"] == "ContainersNotReady"
    assert conditions["Ready"]["message"] == "containers with unready status: [main]"


async def test_readiness_by_socket_on_the_pods_own_address(cluster: Cluster) -> None:
    serve = "import socket, os, time; s = socket.create_server((os.environ['IP'], 2222)); time.sleep(60)"
    await cluster.run(
        "serves",
        "python3",
        "-c",
        serve,
        env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ports=[{"name": "ssh", "containerPort": 2222}],
        readinessProbe={"tcpSocket": {"port": "ssh"}, "periodSeconds": 1},
    )
    await cluster.until("serves", lambda pod: pod["status"].get("containerStatuses", [{}])[0].get("ready"))


async def test_liveness_restarts_and_startup_holds_it_off(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "second"
    probe = {"exec": {"command": ["test", "-e", str(mark)]}, "periodSeconds": 1, "failureThreshold": 1}
    script = f"echo run; if [ -e {mark}.1 ]; then touch {mark}; fi; touch {mark}.1; sleep 60"
    await cluster.run("live", "sh", "-c", script, spec={"restartPolicy": "Always"}, livenessProbe=probe)
    pod = await cluster.until("live", lambda pod: pod["status"].get("containerStatuses", [{}])[0].get("restartCount"))
    last = (await cluster.until("live", lambda pod: "running" in state(pod)))["status"]["containerStatuses"][0][
        "lastState"
    ]
    assert last["terminated"]["exitCode"] == 143
    assert pod["status"]["phase"] == "Running"


async def test_an_http_probe_is_refused_with_what_would_do(cluster: Cluster) -> None:
    await cluster.run("http", "true", readinessProbe={"httpGet": {"path": "/", "port": 80}})
    message = (await cluster.over("http"))["status"]["message"]
    assert message.startswith('container "main": readinessProbe is of kind httpGet; one machine has exec and tcpSocket')


async def test_a_sidecar_does_not_hold_up_the_end(either: Cluster) -> None:
    sidecar = {
        "name": "mesh",
        "image": "x",
        "restartPolicy": "Always",
        "command": ["bash", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"],
    }
    await either.run("meshed", "sh", "-c", "sleep 0.3; echo done", spec={"initContainers": [sidecar]})
    pod = await either.over("meshed")
    assert pod["status"]["phase"] == "Succeeded"
    assert either.log("meshed") == "done\n"
    assert either.log("meshed", "mesh") == "up\nbye\n"


async def test_maps_put_folders_of_the_machine_into_the_pod(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "f").write_text("text\n")
    for isolation in ("auto", "mapping"):
        maps = {"/dt-app": source}
        async with Cluster(tmp_path / isolation, Options(maps=maps, isolation=isolation)) as cluster:
            await cluster.run("mapped", "sh", "-c", "cat f /dt-app/f; cat $WHERE", workingDir="/dt-app", env=[
                {"name": "WHERE", "value": "/dt-app/f"}
            ])  # fmt: skip
            await cluster.over("mapped")
            assert cluster.log("mapped") == "text\n" * 3


async def test_a_mapped_pod_finds_its_message_file_and_addresses_for_names(mapped: Cluster) -> None:
    variables = [{"name": "MASTER", "value": "digits-worker-0.digits.default.svc"}]
    where = {"hostname": "digits-worker-0", "subdomain": "digits"}
    script = "echo words > $DISTTRAIN_TERMINATION_LOG; echo $MASTER"
    await mapped.run("m", "sh", "-c", script, spec=where, env=variables)
    pod = await mapped.over("m")
    assert state(pod)["terminated"]["message"] == "words\n"
    assert mapped.log("m") == pod["status"]["podIP"] + "\n"


async def test_failing_calls_and_lost_watches_lose_nothing(cluster: Cluster) -> None:
    faults = cluster.api.faults
    await cluster.run("first", "sleep", "60")
    await cluster.running("first")
    faults.add(Rule(action="error", verb="patch", resource="pods/status", code=500, count=2))
    faults.add(Rule(action="close_after", resource="pods/binding", count=1))
    faults.add(Rule(action="drop_watch", resource="pods", count=1))
    await cluster.delete("first", grace=0)
    await cluster.run("second", "sh", "-c", "echo ran")
    pod = await cluster.over("second")
    assert pod["status"]["phase"] == "Succeeded"
    assert cluster.log("second") == "ran\n"
    await wait_for(lambda: no_workers(cluster))


async def no_workers(cluster: Cluster) -> bool:
    return not cluster.kubelet._workers


async def test_a_pod_deleted_while_nobody_watched_is_ended(cluster: Cluster) -> None:
    await cluster.run("unseen", "sleep", "60")
    await cluster.running("unseen")
    freeze = cluster.api.faults.add(Rule(action="error", verb="watch", resource="pods", count=-1))
    cluster.api.faults.add(Rule(action="drop_watch", resource="pods", count=1))
    await cluster.delete("unseen", grace=0)
    cluster.api.faults.rules.remove(freeze)
    await wait_for(lambda: no_workers(cluster))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[tuple[ApiServer, Client]]:
    async with ApiServer(tmp_path, "t", log_length=10) as server, Client(server.url, "t") as client:
        yield server, client


async def test_a_watch_tells_after_a_gap_what_happened_in_it(api: tuple[ApiServer, Client]) -> None:
    server, client = api
    path = "/api/v1/namespaces/default/configmaps"
    seen: list[tuple[str, str]] = []

    def told(change: Change) -> tuple[str, str]:
        return change.kind, (change.object.get("metadata") or {}).get("name", "")

    async def follow() -> None:
        async for change in client.watch("/api/v1/configmaps"):
            seen.append(told(change))

    def config(name: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    for name in ("stays", "goes", "changes"):
        await client.post(path, config(name))
    task = asyncio.create_task(follow())

    async def synced() -> bool:
        return ("SYNCED", "") in seen

    await wait_for(synced)
    seen.clear()
    # No watch is let in while the objects change, more often than the server remembers.
    refuse = server.faults.add(Rule(action="error", verb="(watch|list)", resource="configmaps", count=-1))
    server.faults.add(Rule(action="drop_watch", resource="configmaps", count=1))
    await client.delete(f"{path}/goes")
    for turn in range(20):
        await client.patch(f"{path}/changes", {"data": {"turn": str(turn)}})
    await client.post(path, config("comes"))
    server.faults.rules.remove(refuse)
    await wait_for(synced)
    assert sorted(seen[:-1]) == [("ADDED", "comes"), ("DELETED", "goes"), ("MODIFIED", "changes")]
    seen.clear()
    await client.delete(f"{path}/stays")

    async def deleted() -> bool:
        return seen == [("DELETED", "stays")]

    await wait_for(deleted)
    task.cancel()


async def test_a_pod_runs_a_moment_after_it_is_made(cluster: Cluster) -> None:
    """No budget is held here, which a busy machine would break; see docs for figures. An order of magnitude is."""
    took = []
    for turn in range(5):
        began = time.time()
        await cluster.run(f"quick-{turn}", "date", "+%s.%N")
        await cluster.over(f"quick-{turn}")
        took.append(float(cluster.log(f"quick-{turn}")) - began)
    assert sorted(took)[2] < 0.5


async def test_stopping_lets_pods_end_in_their_own_way(tmp_path: Path) -> None:
    async with ApiServer(tmp_path, "secret") as server, Client(server.url, "secret") as client:
        kubelet = Kubelet(server.url, "secret", tmp_path)
        await kubelet.start()
        script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        main = {"name": "main", "image": "x", "command": ["bash", "-c", script]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [main]}}
        await client.post(PODS, body)

        def logs() -> list[str]:
            return [file.read_text() for file in tmp_path.glob("pods/default_p_*/main.log")]

        async def up() -> bool:
            return logs() == ["up\n"]

        await wait_for(up)
        await kubelet.stop()
        pod = await client.get(f"{PODS}/p")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    assert logs() == ["up\nsaved\n"]


async def test_a_pre_stop_hook_comes_before_sigterm(either: Cluster) -> None:
    script = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > $WHERE"]}}}
    where = [{"name": "WHERE", "value": str(either.folder / "hook")}]
    await either.run("hooked", "bash", "-c", script, lifecycle=hook, env=where)
    await either.logged("hooked", "up")
    await either.delete("hooked")
    await either.gone("hooked")
    assert (either.folder / "hook").read_text() == "hook\n"
    assert either.log("hooked") == "up\nterm\n"


async def test_a_hook_that_is_not_known_is_refused(cluster: Cluster) -> None:
    await cluster.run("hook", "true", lifecycle={"postStart": {"exec": {"command": ["true"]}}})
    message = (await cluster.over("hook"))["status"]["message"]
    assert message.startswith('container "main": lifecycle.postStart is of kind exec; one machine has none there')


async def test_the_kubelet_goes_on_after_the_pods_parent_process_died(either: Cluster) -> None:
    await either.run("victim", "sleep", "60")
    await either.running("victim")
    either.kubelet._node.zygote._process.kill()
    if either.kubelet._node.isolated:
        pod = await either.over("victim")
        assert state(pod)["terminated"]["exitCode"] == 137
    await either.run("next", "echo", "fine")
    await either.over("next")
    assert either.log("next") == "fine\n"


async def test_stopping_does_not_wait_for_an_api_that_takes_no_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_module, "_REPORT_SECONDS", 0.5)
    async with Cluster(tmp_path, Options()) as cluster:
        await cluster.run("p", "sleep", "60", spec={"terminationGracePeriodSeconds": 1})
        await cluster.running("p")
        cluster.api.faults.add(Rule(action="error", verb="patch", resource="pods/status", count=-1))
        began = time.monotonic()
        await cluster.kubelet.stop()
        assert time.monotonic() - began < 5
        cluster.api.faults.clear()
        await cluster.start_kubelet()
        pod = await cluster.over("p")
    assert pod["status"]["reason"] == "Terminated"


async def test_a_second_ctrl_c_cuts_the_grace_short(either: Cluster) -> None:
    await either.run("stubborn", "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await either.logged("stubborn", "up")
    began = time.monotonic()
    stopping = asyncio.create_task(either.kubelet.stop())
    await asyncio.sleep(0)
    either.kubelet.kill()
    await stopping
    assert time.monotonic() - began < 5
    assert (await either.over("stubborn"))["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    await either.start_kubelet()  # for the fixture to stop


async def test_the_hosts_of_the_manifest_are_in_the_file(cluster: Cluster) -> None:
    aliases = [{"ip": "10.1.2.3", "hostnames": ["store", "store.lan"]}]
    await cluster.run("aliased", "getent", "hosts", "store.lan", spec={"hostAliases": aliases})
    await cluster.over("aliased")
    assert cluster.log("aliased").split()[0] == "10.1.2.3"


async def test_a_new_kubelet_takes_up_what_it_finds(either: Cluster) -> None:
    await either.run("done", "true")
    done = await either.over("done")
    await either.run("asked-to-go", "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await either.logged("asked-to-go", "up")
    stopping = asyncio.create_task(either.kubelet.stop())
    await asyncio.sleep(0)
    either.kubelet.kill()
    await stopping
    await either.delete("asked-to-go", grace=30)
    await either.run("new", "echo", "hello")
    await either.start_kubelet()
    await either.over("new")
    assert either.log("new") == "hello\n"
    await either.gone("asked-to-go")
    assert await either.pod("done") == done


async def test_a_startup_probe_has_no_say_after_the_start(cluster: Cluster, tmp_path: Path) -> None:
    flag, tries = tmp_path / "flag", tmp_path / "tries"
    once = f"echo >> {tries}; test -e {flag}"
    probe = {"exec": {"command": ["sh", "-c", once]}, "periodSeconds": 1, "failureThreshold": 3}
    await cluster.run("slow", "sleep", "60", startupProbe=probe)
    pod = await cluster.running("slow")
    assert (state(pod)["running"] is not None, pod["status"]["containerStatuses"][0]["started"]) == (True, False)
    flag.touch()
    pod = await cluster.until("slow", lambda pod: pod["status"]["containerStatuses"][0]["started"])
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    count = tries.read_text()
    await asyncio.sleep(1.5)
    assert tries.read_text() == count
