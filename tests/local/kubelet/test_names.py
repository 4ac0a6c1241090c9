"""Names: every pod finds its live peers, by hosts file or by address, and real torch does too."""

from __future__ import annotations

import ipaddress
import re
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from disttrain.local.kubelet import hosts
from disttrain.local.kubelet.hosts import Addresses, Peer
from local.kubelet.conftest import PODS, Cluster, left

Json = dict[str, Any]
SERVICES = "/api/v1/namespaces/default/services"


def service(*, publish: bool = True) -> Json:
    spec = {
        "clusterIP": "None",
        "selector": {"app": "digits", "disttrain.dev/live": "true"},
        "publishNotReadyAddresses": publish,
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}, "spec": spec}


LIVE = {"app": "digits", "disttrain.dev/live": "true"}


def spec(index: int, **more: Any) -> Json:
    return {"hostname": f"digits-worker-{index}", "subdomain": "digits", **more}


def name(index: int) -> str:
    return f"digits-worker-{index}.digits.default.svc"


async def start(cluster: Cluster, index: int, *command: str, **container: Any) -> Json:
    return await cluster.run(f"digits-worker-{index}", *command, spec=spec(index), labels=LIVE, **container)


async def test_each_pod_has_a_host_name_and_an_address_that_is_its_own(cluster: Cluster) -> None:
    for index in (0, 1):
        await start(cluster, index, "sh", "-c", f"hostname; getent hosts {name(index)} $(hostname)")
        await cluster.over(f"digits-worker-{index}")
    first, second = (cluster.log(f"digits-worker-{i}").split() for i in (0, 1))
    assert first[0] == "digits-worker-0"
    assert first[1] != second[1]
    assert {ipaddress.ip_address(a) in ipaddress.ip_network("127.64.0.0/10") for a in (first[1], second[1])} == {True}
    assert first.count(first[1]) == 2, "by its long name and by its host name"


async def test_names_come_and_go_with_the_pods_within_a_moment(cluster: Cluster) -> None:
    await cluster.client.post(SERVICES, service())
    # Prints a line at each change of what the peer's name gives, with the time.
    watch = f"""
        last=x
        while sleep 0.01; do
            now=$(getent ahostsv4 {name(1)} | head -n1 | cut -d' ' -f1)
            if [ "$now" != "$last" ]; then echo "$(date +%s.%N) [$now]"; last=$now; fi
        done
    """
    await start(cluster, 0, "bash", "-c", watch)
    await cluster.logged("digits-worker-0", "[]\n")
    began = time.time()
    await start(cluster, 1, "sleep", "60")
    peer = (await cluster.running("digits-worker-1"))["status"]["podIP"]
    await cluster.logged("digits-worker-0", f"[{peer}]\n")
    unlived = time.time()
    await cluster.client.patch(f"{PODS}/digits-worker-1", {"metadata": {"labels": {"disttrain.dev/live": None}}})

    lines = (await cluster.logged("digits-worker-0", f"[{peer}]\n" + "", seconds=5)).splitlines()
    await cluster.until("digits-worker-0", lambda _: len(cluster.log("digits-worker-0").splitlines()) == 3)
    lines = cluster.log("digits-worker-0").splitlines()
    assert [line.split()[1] for line in lines] == ["[]", f"[{peer}]", "[]"]
    assert float(lines[1].split()[0]) - began < 1
    assert float(lines[2].split()[0]) - unlived < 1


async def test_a_replaced_pod_takes_the_name_over(cluster: Cluster) -> None:
    await cluster.client.post(SERVICES, service())
    await cluster.run("asks", "bash", "-c", f"while sleep 0.02; do getent hosts {name(1)}; done", labels=LIVE)
    await start(cluster, 1, "sleep", "60")
    old = (await cluster.running("digits-worker-1"))["status"]["podIP"]
    await cluster.logged("asks", old)
    await cluster.client.patch(f"{PODS}/digits-worker-1", {"metadata": {"labels": {"disttrain.dev/live": None}}})
    await cluster.run("digits-worker-1-r2", "sleep", "60", spec=spec(1), labels=LIVE)
    new = (await cluster.running("digits-worker-1-r2"))["status"]["podIP"]
    assert new != old
    await cluster.logged("asks", new)
    log = cluster.log("asks")
    assert old not in log[log.index(new) :]


def pod(index: int, namespace: str = "default", **labels: str) -> Json:
    metadata = {"name": f"p{index}", "namespace": namespace, "uid": f"u{index}", "labels": labels}
    return {"metadata": metadata, "spec": {"hostname": f"h{index}", "subdomain": "s"}}


def selecting(publish: bool, **selector: str) -> Json:
    return {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": selector, "publishNotReadyAddresses": publish},
    }


OF_SERVICE = ["s.default.svc.cluster.local", "s.default.svc", "s"]
OF_POD = ["h1.s.default.svc.cluster.local", "h1.s.default.svc", "h1.s"]


@pytest.mark.parametrize(
    ("peer", "service", "names"),
    [
        (Peer(pod(1, live="true"), "a", ready=True), selecting(False, live="true"), [*OF_POD, *OF_SERVICE]),
        (Peer(pod(1, live="true"), "a", ready=False), selecting(True, live="true"), [*OF_POD, *OF_SERVICE]),
        (Peer(pod(1, live="true"), "a", ready=False), selecting(False, live="true"), []),
        (Peer(pod(1), "a", ready=True), selecting(True, live="true"), []),
        (Peer(pod(1, live="true"), "a", ready=True), selecting(True), []),
    ],
)
def test_what_dns_would_say(peer: Peer, service: Json, names: list[str]) -> None:
    assert hosts.published(peer, [service]) == names


def test_the_hosts_file() -> None:
    own, peer = Peer(pod(0), "127.64.0.1", ready=True), Peer(pod(1), "127.64.0.2", ready=True)
    assert hosts.render(own, [(own, [*hosts.names(own.pod), "s"]), (peer, OF_POD)]).splitlines()[1:] == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "127.64.0.1 h0.s.default.svc.cluster.local h0.s.default.svc h0.s h0",
        "127.64.0.1 s",
        "127.64.0.2 h1.s.default.svc.cluster.local h1.s.default.svc h1.s",
    ]


def test_a_hosts_file_is_rewritten_in_place(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    hosts.write(file, "long long\n")
    inode = file.stat().st_ino
    hosts.write(file, "short\n")
    assert (file.read_text(), file.stat().st_ino) == ("short\n", inode)


def test_addresses_are_stable_and_distinct_and_come_back() -> None:
    addresses = Addresses()
    given = {key: addresses.get(key) for key in map(str, range(1000))}
    assert len(set(given.values())) == 1000
    assert addresses.get("5") == given["5"]
    addresses.release("5")
    assert addresses.get("5") not in given.values(), "not used again at once"


def test_addresses_stand_for_names_of_the_namespace() -> None:
    addresses = Addresses()
    text = f"http://{name(0)}:1,{name(1)}.cluster.local;{name(0)} a.b.other.svc x{name(0)}y {name(0)}x"
    got = hosts.with_addresses(text, "default", addresses)
    one, two = (addresses.get(hosts.name_key("default", f"digits-worker-{i}", "digits")) for i in (0, 1))
    other = addresses.get(hosts.name_key("default", "xdigits-worker-0", "digits"))
    assert got == f"http://{one}:1,{two};{one} a.b.other.svc x{name(0)}y {name(0)}x"
    assert other not in got


TRAIN = """
import os, socket, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), "from", os.environ["MASTER_ADDR"], flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
async def test_torchrun_over_three_pods_meets_by_name(either: Cluster) -> None:
    await either.client.post(SERVICES, service())
    script = either.folder / "train.py"
    script.write_text(TRAIN)
    port = free_port()
    for index in (0, 1, 2):
        variables = {
            "PET_NNODES": "3",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": name(0),
            "PET_MASTER_PORT": str(port),
        }
        env = [{"name": key, "value": value} for key, value in variables.items()]
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        await start(either, index, torchrun, str(script), env=env)
    for index in (0, 1, 2):
        pod = await either.over(f"digits-worker-{index}", seconds=90)
        log = either.log(f"digits-worker-{index}")
        assert pod["status"]["phase"] == "Succeeded", log
        assert re.search(r"^sum 6\.0 of 3 from ", log, re.M), log


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
async def test_the_workers_of_torchrun_are_gone_with_the_pod(either: Cluster) -> None:
    """torchrun gives each worker a session of its own, and without its agent it would live on."""
    word = uuid.uuid4().hex
    script = either.folder / "wait.py"
    script.write_text("import time; print('up', flush=True); time.sleep(100)")
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    await either.run("agent", torchrun, "--standalone", "--nproc-per-node=2", str(script), word)
    await either.until("agent", lambda _: either.log("agent").count("up\n") == 2, seconds=60)
    await left(word, 3)
    await either.delete("agent", grace=0)
    await either.gone("agent")
    await left(word, 0)
