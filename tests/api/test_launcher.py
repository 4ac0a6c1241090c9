"""A job with a launcher against an API server: keys and hosts first, then workers, then the launcher."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from api.jobs import job
from api.loop import Client, Running, eventually, is_state

WORKERS = ("digits-worker-0", "digits-worker-1")


async def are(client: Client, *names: str) -> bool:
    return set(await client.pods()) == set(names)


async def started(client: Client) -> None:
    """An MPI job of two workers, whose launcher runs."""
    await client.apply(job(framework="mpi", worker={"replicas": 2}))
    await eventually(lambda: are(client, *WORKERS))
    await client.runs(*WORKERS)
    await eventually(lambda: are(client, *WORKERS, "digits-launcher-0"))
    await client.runs("digits-launcher-0")
    await eventually(lambda: is_state(client, "Running"))


async def test_the_launcher_comes_last_and_the_workers_end_with_it(client: Client, operator: Running) -> None:
    await started(client)
    hosts = (await client.get(f"{client.core}/configmaps/digits-hosts"))["data"]["hostfile"]
    assert hosts == "".join(f"worker-{i}.digits.{client.namespace}.svc slots=1\n" for i in range(2))
    await client.ends("digits-launcher-0", 0)
    await eventually(lambda: is_state(client, "Succeeded"))

    async def stopped() -> bool:
        return all(
            "deletionTimestamp" in one["metadata"] for name, one in (await client.pods()).items() if name in WORKERS
        )

    await eventually(stopped, 5)


async def test_a_new_round_has_new_hosts_and_the_same_keys(
    client: Client, operator: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await started(client)
    keys = (await client.get(f"{client.core}/secrets/digits-ssh"))["data"]
    assert set(keys) == {"id_ed25519", "authorized_keys", "ssh_host_ed25519_key", "known_hosts"}
    await client.ends("digits-launcher-0", 7)

    async def again() -> bool:
        return {f"{name}-r2" for name in WORKERS} <= set(await client.pods())

    await eventually(again)
    assert (await client.get(f"{client.core}/secrets/digits-ssh"))["data"] == keys
    hosts = (await client.get(f"{client.core}/configmaps/digits-hosts-r2"))["data"]["hostfile"]
    assert hosts.startswith(f"worker-0-r2.digits.{client.namespace}.svc ")
    assert (await client.pods())["digits-worker-0-r2"]["spec"]["hostname"] == "worker-0-r2"
    assert (await client.status())["restarts"] == 1
    told = json.dumps(
        [
            await client.get(f"{client.jobs}/digits"),
            await client.pods(),
            await client.get(f"{client.core}/events"),
        ]
    )
    for name in ("id_ed25519", "ssh_host_ed25519_key"):
        for secret in (keys[name], b64decode(keys[name]).decode().splitlines()[2]):
            assert secret not in told
            assert secret not in caplog.text
