"""The kubeconfig of the one-machine cluster: with it kubectl and every other client reach the server."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

NAME = "disttrain-local"
# client-go keeps a token to itself when the server speaks plain HTTP, but always sends what `as-user-extra` says. So
# kubectl and Helm bring the token in the header of that "extra", all others as a bearer token.
TOKEN_EXTRA = "disttrain-token"
TOKEN_HEADER = f"Impersonate-Extra-{TOKEN_EXTRA}"


def write_kubeconfig(path: Path, url: str, token: str, namespace: str = "default") -> Path:
    """Write a kubeconfig that only its owner can read (mode 0600); returns its path."""
    user = {"token": token, "as": NAME, "as-user-extra": {TOKEN_EXTRA: [token]}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    draft.replace(path)  # never half a file, and never readable by others in between
    return path
