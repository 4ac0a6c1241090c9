"""Addresses and names: every pod has an address of its own in 127/8 and a hosts file with its peers' names.

A name is listed while DNS would give it: the pod has an address and is not over, the headless Service of its subdomain
exists and selects it, and it is ready or the Service publishes addresses that are not.
"""

from __future__ import annotations

import ipaddress
import os
import random
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

_FIRST = int(ipaddress.IPv4Address("127.64.0.0"))
_COUNT = 1 << 22  # 127.64.0.0/10: away from 127.0.0.1, Debian's 127.0.1.1 and systemd's 127.0.0.53


class Addresses:
    """Hands out loopback addresses, each to one key. Where only 127.0.0.1 exists (macOS), everyone gets that."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._used: set[str] = set()
        # Two clusters on one machine start far apart, and a freed address is not used again soon.
        self._next = random.randrange(_COUNT)
        self._many = _can_bind("127.64.0.1")

    def get(self, key: str) -> str:
        """The address of `key`, a new one at first."""
        if not self._many:
            return "127.0.0.1"
        if key not in self._of:
            while True:
                address = str(ipaddress.IPv4Address(_FIRST + self._next))
                self._next = (self._next + 1) % _COUNT
                if address not in self._used and not address.endswith((".0", ".255")):
                    break
            self._of[key] = address
            self._used.add(address)
        return self._of[key]

    def release(self, key: str) -> None:
        if address := self._of.pop(key, None):
            self._used.discard(address)


def _can_bind(address: str) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


class Peer(NamedTuple):
    """A pod with its address, as others may see it. `ready`: Kubernetes' Ready."""

    pod: Json
    address: str
    ready: bool


def hostname(pod: Json) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip(".-")


def names(pod: Json) -> list[str]:
    """The names of a pod with a hostname and subdomain, longest first; of others none."""
    host, subdomain = pod["spec"].get("hostname"), pod["spec"].get("subdomain")
    if not host or not subdomain:
        return []
    short = f"{host}.{subdomain}"
    full = f"{short}.{pod['metadata']['namespace']}.svc"
    return [f"{full}.cluster.local", full, short]


def selects(service: Json, pod: Json) -> bool:
    selector: Json = (service.get("spec") or {}).get("selector") or {}
    labels: Json = pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def published(peer: Peer, services: Iterable[Json]) -> list[str]:
    """All names under which DNS would give this pod's address. `services`: those of its namespace."""
    found: list[str] = []
    for service in services:
        spec: Json = service.get("spec") or {}
        if not selects(service, peer.pod) or not (peer.ready or spec.get("publishNotReadyAddresses")):
            continue
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        if peer.pod["spec"].get("subdomain") == name:
            found += names(peer.pod)
        found += [f"{name}.{namespace}.svc.cluster.local", f"{name}.{namespace}.svc", name]
    return found


def render(own: Peer, peers: Iterable[tuple[Peer, list[str]]]) -> str:
    """A hosts file: the machine's own names, the pod's, and those that `peers` publish."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines.append(" ".join([own.address, *names(own.pod), hostname(own.pod)]))
    lines += [" ".join([alias["ip"], *alias["hostnames"]]) for alias in own.pod["spec"].get("hostAliases") or []]
    for peer, listed in sorted(peers, key=lambda entry: entry[0].pod["metadata"]["name"]):
        mine = {*names(own.pod)} if peer.pod["metadata"]["uid"] == own.pod["metadata"]["uid"] else set()
        if shown := [name for name in listed if name not in mine]:
            lines.append(" ".join([peer.address, *shown]))
    return "# Written by the one-machine cluster, and rewritten when pods come and go.\n" + "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Rewrite in place: the file is bound into a container, where a new file would not be seen."""
    data = text.encode()
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        pass
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(file, data, 0)  # one write and then the cut: a reader sees whole lines, at worst old ones at the end
        os.ftruncate(file, len(data))
    finally:
        os.close(file)


def with_addresses(text: str, namespace: str, addresses: Addresses) -> str:
    """`text` with addresses for the names of pods of `namespace`, for where there is no hosts file to be had."""

    def replace(match: re.Match[str]) -> str:
        return addresses.get(name_key(namespace, match[1], match[2]))

    label = r"([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)"
    return re.sub(
        rf"(?<![\w.-]){label}\.{label}\.{re.escape(namespace)}\.svc(?:\.cluster\.local)?(?![\w-])", replace, text
    )


def key(pod: Json) -> str:
    """The key of a pod's address where it goes by name; a pod without a name has its uid."""
    host, subdomain = pod["spec"].get("hostname"), pod["spec"].get("subdomain")
    if not host or not subdomain:
        return str(pod["metadata"]["uid"])
    return name_key(pod["metadata"]["namespace"], host, subdomain)


def name_key(namespace: str, host: str, subdomain: str) -> str:
    """The key of an address that goes by name: in mapping mode a peer's is known before it exists."""
    return f"{namespace}/{subdomain}/{host}"
