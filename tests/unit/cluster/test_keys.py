"""Keys are made just before the POST, once a job, and told to nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from cluster.fakes import JOB, UID, FakeApi, job

from disttrain.api.constants import ANNOTATION_GENERATE, GENERATE_SSH_KEYS, KIND
from disttrain.api.plan import Manifest, Plan
from disttrain.api.types import Job
from disttrain.cluster import keys
from disttrain.cluster.apply import Applier, Verdict
from disttrain.cluster.informer import PodCache
from disttrain.cluster.jobs import convert_job

SECRET: Manifest = {
    "kind": "Secret",
    "metadata": {
        "name": "digits-ssh",
        "annotations": {ANNOTATION_GENERATE: GENERATE_SSH_KEYS},
        "ownerReferences": [{"kind": KIND, "name": "digits", "uid": UID, "controller": True}],
    },
}
PATH = "/api/v1/namespaces/team/secrets/digits-ssh"


async def make(api: FakeApi, secret: Manifest = SECRET) -> Any:
    """Carries out a plan with the Secret; returns what is stored."""
    applier = Applier(api, PodCache(lambda old, new: None, lambda last, version: None), lambda: 0.0)
    found = convert_job(api.add(JOB, job()))
    assert isinstance(found, Job)
    await applier.act(found, Plan(objects=[secret]), set())
    return api.objects[PATH]


async def test_made_once_a_job() -> None:
    api = FakeApi()
    first = json.dumps((await make(api))["data"])
    assert json.dumps((await make(api))["data"]) == first
    assert "data" not in SECRET


async def test_not_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stored = await make(FakeApi())
    for value in stored["data"].values():
        assert value not in caplog.text
        assert b64decode(value).decode() not in caplog.text


async def test_a_strangers_secret_is_not_taken() -> None:
    api = FakeApi()
    api.add(PATH, {"kind": "Secret", "metadata": {}})
    with pytest.raises(Verdict) as refused:
        await make(api)
    assert refused.value.reason == "NameTaken"
    assert "data" not in api.objects[PATH]


async def test_the_loop_does_not_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(manifest: Manifest) -> Manifest:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(10)
        return manifest

    monkeypatch.setattr(keys, "filled", slowly)
    making = asyncio.create_task(make(FakeApi()))
    await asyncio.sleep(0)
    released.set()  # which a blocked loop would never come to
    await making


def test_another_kind_of_data_is_an_error() -> None:
    with pytest.raises(ValueError, match="known is ssh-keys"):
        keys.filled({"metadata": {"annotations": {ANNOTATION_GENERATE: "tls"}}})


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen (Debian: openssh-client)")
@pytest.mark.parametrize(
    ("private", "public"), [("id_ed25519", "authorized_keys"), ("ssh_host_ed25519_key", "known_hosts")]
)
def test_openssh_reads_them(private: str, public: str, tmp_path: Path) -> None:
    made = keys.ssh_keys()
    file = tmp_path / "key"
    file.write_bytes(made[private])
    file.chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", str(file)], capture_output=True, text=True, check=True).stdout
    assert made[public].decode().removeprefix("* ").split() == shown.split()[:2]
    assert shown.startswith("ssh-ed25519 ")
    assert keys.ssh_keys()[private] != made[private]
