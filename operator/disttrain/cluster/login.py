"""Credentials for the API server: from the pod's service account, or from a kubeconfig.

What a kubeconfig holds itself (tokens, certificates, passwords) is read here. Only users with an `exec` plugin or an
`auth-provider` go through the `kubernetes` package, which costs 20 MB of memory and half a second.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60.0
"""How long a token from a file or a plugin is used before it is asked for again: kubelets renew theirs hourly."""


log = logging.getLogger(__name__)


class LoginError(Exception):
    """No usable credentials; the words say what was looked for and what would do."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Where the API server is and who we are. Certificates and keys are PEM."""

    server: str
    ca: bytes | None = None
    insecure: bool = False
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    proxy: str | None = None
    namespace: str = "default"

    def headers(self) -> dict[str, str]:
        """The Authorization header, if any."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.username:
            pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def tls(self) -> ssl.SSLContext:
        """The TLS settings. Python reads a client's certificate from files only, so it is in one for a moment."""
        context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            with tempfile.NamedTemporaryFile(prefix="disttrain-") as file:
                file.write(self.certificate + b"\n" + self.key)
                file.flush()
                context.load_cert_chain(file.name)
        return context


class Login:
    """Credentials that stay fresh. `load` reads them anew and may block, so it runs in a thread."""

    def __init__(self, credentials: Credentials, load: Callable[[], Credentials] | None = None) -> None:
        self.credentials = credentials
        self._load = load
        self._due = time.monotonic() + REREAD_SECONDS
        self._lock = asyncio.Lock()

    async def fresh(self) -> Credentials:
        """The credentials, read again where they may have been renewed."""
        if self._load is not None and time.monotonic() >= self._due:
            await self.renew()
        return self.credentials

    async def renew(self) -> None:
        """Reads the credentials again now, as after a 401. Keeps the old ones where that fails."""
        if self._load is None:
            return
        async with self._lock:
            if time.monotonic() < self._due - REREAD_SECONDS + 1:
                return
            self._due = time.monotonic() + REREAD_SECONDS
            try:
                self.credentials = await asyncio.to_thread(self._load)
            except LoginError as error:
                log.warning("credentials cannot be renewed, going on with the old ones: %s", error)


def login(kubeconfig: str | None = None, context: str | None = None) -> Login:
    """Credentials as kubectl finds them: the file given, $KUBECONFIG, the service account, ~/.kube/config.

    Raises LoginError.
    """
    given = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not given and (SERVICE_ACCOUNT / "token").exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return Login(in_cluster(), in_cluster)
    path = given or str(Path("~/.kube/config").expanduser())
    paths = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
    found = [one for one in paths if one.exists()]
    if not found:
        raise LoginError(
            f"no kubeconfig at {path}, and no service account of a pod: give --kubeconfig, or set KUBECONFIG"
        )
    config = merged(found)
    credentials, renewable = from_kubeconfig(config, context, path)
    if credentials is None:
        return through_plugin(path, context)
    if renewable:
        return Login(credentials, lambda: _required(from_kubeconfig(merged(found), context, path)[0]))
    return Login(credentials)


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Credentials:
    """The credentials of the pod's service account. Raises LoginError."""
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        return _proxied(
            Credentials(
                server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
                ca=(folder / "ca.crt").read_bytes(),
                token=(folder / "token").read_text().strip(),
                namespace=(folder / "namespace").read_text().strip(),
            )
        )
    except (KeyError, OSError) as error:
        raise LoginError(f"the pod's service account is incomplete: {error}") from error


def merged(paths: list[Path]) -> dict[str, Any]:
    """The kubeconfigs as one: the first file to name a thing wins. Relative paths become absolute."""
    whole: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for path in paths:
        try:
            part = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError) as error:
            raise LoginError(f"kubeconfig {path} cannot be read: {error}") from error
        if part is None:
            continue
        if not isinstance(part, dict):
            raise LoginError(f"kubeconfig {path} is no mapping of clusters, users and contexts")
        whole.setdefault("current-context", None)
        whole["current-context"] = whole["current-context"] or part.get("current-context")
        for kind, body in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            known = {entry["name"] for entry in whole[kind]}
            for entry in part.get(kind) or []:
                if entry["name"] not in known:
                    content = dict(entry.get(body) or {})
                    for name in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                        if content.get(name):
                            content[name] = str(path.parent / content[name])
                    whole[kind].append({"name": entry["name"], body: content})
    return whole


def from_kubeconfig(
    config: dict[str, Any], context: str | None, path: str = "kubeconfig"
) -> tuple[Credentials | None, bool]:
    """The credentials of a context (the current one where None), and whether they may change on disk.

    Credentials are None where a plugin must be asked. Raises LoginError.
    """

    def named(kind: str, body: str, name: str) -> dict[str, Any]:
        for entry in config[kind]:
            if entry["name"] == name:
                content: dict[str, Any] = entry[body]
                return content
        have = ", ".join(entry["name"] for entry in config[kind]) or "none"
        raise LoginError(f"{path} has no {body} {name!r}; it has: {have}")

    name = context or config.get("current-context")
    if not name:
        raise LoginError(f"{path} has no current-context: give --context, or set one with kubectl config use-context")
    chosen = named("contexts", "context", name)
    cluster = named("clusters", "cluster", chosen.get("cluster", ""))
    user = named("users", "user", chosen["user"]) if chosen.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        return None, True
    try:
        token = user.get("token") or ""
        if user.get("tokenFile"):
            token = Path(user["tokenFile"]).read_text().strip()
        credentials = Credentials(
            server=cluster["server"].rstrip("/"),
            ca=_pem(cluster, "certificate-authority"),
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
            certificate=_pem(user, "client-certificate"),
            key=_pem(user, "client-key"),
            token=token,
            username=user.get("username") or "",
            password=user.get("password") or "",
            proxy=cluster.get("proxy-url"),
            namespace=chosen.get("namespace") or "default",
        )
    except (KeyError, OSError, binascii.Error) as error:
        raise LoginError(f"{path}, context {name!r}: {error!r}") from error
    return _proxied(credentials), bool(user.get("tokenFile"))


def through_plugin(path: str, context: str | None) -> Login:
    """Credentials of an exec plugin or auth provider, asked for again as they expire. Raises LoginError."""
    from kubernetes import client, config

    def load() -> Credentials:
        settings: Any = client.Configuration()
        try:
            config.load_kube_config(path, context, settings, persist_config=False)  # type: ignore[no-untyped-call]
            authorization = str((settings.auth_settings().get("BearerToken") or {}).get("value") or "")
            return _proxied(
                Credentials(
                    server=settings.host.rstrip("/"),
                    ca=Path(settings.ssl_ca_cert).read_bytes() if settings.ssl_ca_cert else None,
                    insecure=not settings.verify_ssl,
                    certificate=Path(settings.cert_file).read_bytes() if settings.cert_file else None,
                    key=Path(settings.key_file).read_bytes() if settings.key_file else None,
                    token=authorization.removeprefix("Bearer "),
                )
            )
        except (config.ConfigException, OSError) as error:
            raise LoginError(f"{path}: the credentials' plugin failed: {error}") from error

    return Login(load(), load)


def _required(credentials: Credentials | None) -> Credentials:
    if credentials is None:
        raise LoginError("the kubeconfig's user was changed to a plugin: start again")
    return credentials


def _pem(section: dict[str, Any], name: str) -> bytes | None:
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


def _proxied(credentials: Credentials) -> Credentials:
    """With the environment's proxy, looked up once: doing it for each call takes a third of all time."""
    if credentials.proxy:
        return credentials
    scheme, _, rest = credentials.server.partition("://")
    proxy = getproxies().get(scheme)
    if not proxy or proxy_bypass(rest.partition("/")[0]):
        return credentials
    return replace(credentials, proxy=proxy)
