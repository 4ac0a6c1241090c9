"""Credentials out of kubeconfigs and service accounts."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from disttrain.cluster import login as module
from disttrain.cluster.login import Credentials, Login, LoginError, in_cluster, login


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **context: Any) -> str:
    config = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", **context}},
            {"name": "two", "context": {"cluster": "missing", "user": "u"}},
        ],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_a_token(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"token": "t"}, {"certificate-authority-data": encoded("CA")}, namespace="team")
    found = login(path).credentials
    assert found == Credentials(server="https://api:6443", ca=b"CA", token="t", namespace="team")
    assert found.headers() == {"Authorization": "Bearer t"}


def test_files_are_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    path = write(
        tmp_path / "config", {"client-certificate": "cert", "client-key": "key"}, {"certificate-authority": "ca"}
    )
    found = login(path).credentials
    assert (found.ca, found.certificate, found.key) == (b"ca", b"cert", b"key")
    assert found.headers() == {}


def test_a_password_and_no_verification(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"username": "a", "password": "b"}, {"insecure-skip-tls-verify": True})
    found = login(path).credentials
    assert found.insecure
    assert found.headers() == {"Authorization": f"Basic {encoded('a:b')}"}
    assert found.tls().check_hostname is False


def test_the_home_folder_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube/config", {"token": "home"})
    assert login().credentials.token == "home"
    first = write(tmp_path / "first", {"token": "first"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{tmp_path / '.kube/config'}")
    assert login().credentials.token == "first"


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    made = login(write(tmp_path / "config", {"tokenFile": "token"}))
    assert (await made.fresh()).token == "old"
    (tmp_path / "token").write_text("new\n")
    assert (await made.fresh()).token == "old"
    made._due -= module.REREAD_SECONDS + 1
    assert (await made.fresh()).token == "new"


async def test_many_renewals_at_once_are_one() -> None:
    loads: list[int] = []

    def load() -> Credentials:
        loads.append(1)
        return Credentials(server="s", token="new")

    made = Login(Credentials(server="s", token="old"), load)
    made._due -= 30
    await asyncio.gather(*(made.renew() for _ in range(10)))
    assert loads == [1]
    assert made.credentials.token == "new"
    fixed = Login(Credentials(server="s", token="old"))
    await fixed.renew()
    assert fixed.credentials.token == "old"


async def test_credentials_that_cannot_be_renewed_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Credentials:
        raise LoginError("the token's file is gone")

    made = Login(Credentials(server="s", token="old"), load)
    made._due -= 100
    assert (await made.fresh()).token == "old"
    assert "file is gone" in caplog.text


def test_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "t\n"), ("ca.crt", "CA"), ("namespace", "ours\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert in_cluster(tmp_path) == Credentials(server="https://[fd00::1]:6443", ca=b"CA", token="t", namespace="ours")
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(LoginError, match=r"ca\.crt"):
        in_cluster(tmp_path)


def test_an_exec_plugin(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    plugin.write_text(f"#!{sys.executable}\nprint('''{json.dumps(answer)}''')\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    made = login(write(tmp_path / "config", {"exec": spec}))
    assert made.credentials.token == "from-plugin"
    assert made.credentials.server == "https://api:6443"


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("two", "has no cluster 'missing'; it has: c"),
        ("three", "has no context 'three'; it has: one, two"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, context: str, words: str) -> None:
    with pytest.raises(LoginError, match=words):
        login(write(tmp_path / "config", {"token": "t"}), context)


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    with pytest.raises(LoginError, match="give --kubeconfig, or set KUBECONFIG"):
        login(str(tmp_path / "missing"))
    (tmp_path / "broken").write_text("{")
    with pytest.raises(LoginError, match="cannot be read"):
        login(str(tmp_path / "broken"))
    (tmp_path / "list").write_text("[]")
    with pytest.raises(LoginError, match="no mapping"):
        login(str(tmp_path / "list"))


def test_proxies_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "config", {"token": "t"})
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert login(path).credentials.proxy == "http://proxy:3128"
    monkeypatch.setenv("NO_PROXY", "api")
    assert login(path).credentials.proxy is None
    path = write(tmp_path / "config", {"token": "t"}, {"proxy-url": "http://own:1"})
    assert login(path).credentials.proxy == "http://own:1"
