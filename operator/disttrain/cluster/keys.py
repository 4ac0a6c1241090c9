"""Data that the core cannot make, since it has no randomness: filled in just before the POST, and kept nowhere else."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ..api.constants import (
    ANNOTATION_GENERATE,
    GENERATE_SSH_KEYS,
    SSH_AUTHORIZED_KEYS,
    SSH_HOST_KEY,
    SSH_KEY,
    SSH_KNOWN_HOSTS,
)
from ..api.plan import Manifest


def wanted(manifest: Manifest) -> bool:
    """Whether the manifest asks for data to be generated."""
    return ANNOTATION_GENERATE in (manifest["metadata"].get("annotations") or {})


def filled(manifest: Manifest) -> Manifest:
    """A copy of a Secret's manifest with fresh data. Takes a moment of processor time: call it in a thread.

    Raises ValueError for a kind of data that is not known.
    """
    kind: Any = manifest["metadata"]["annotations"][ANNOTATION_GENERATE]
    if kind != GENERATE_SSH_KEYS:
        raise ValueError(f"{ANNOTATION_GENERATE} is {kind!r}; known is {GENERATE_SSH_KEYS}")
    return {**manifest, "data": {name: b64encode(value).decode() for name, value in ssh_keys().items()}}


def ssh_keys() -> dict[str, bytes]:
    """A pair for users and one for hosts, as OpenSSH's files."""
    # Imported where it is used: it costs 7 MB, and most operators never see an MPI job.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    def private(key: Ed25519PrivateKey) -> bytes:
        return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())

    def public(key: Ed25519PrivateKey) -> bytes:
        return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)

    user, host = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    return {
        SSH_KEY: private(user),
        SSH_AUTHORIZED_KEYS: public(user) + b"\n",
        SSH_HOST_KEY: private(host),
        # Any name and port: the file is used for the pods of one job, which have one host key.
        SSH_KNOWN_HOSTS: b"* " + public(host) + b"\n",
    }
