"""Plain kubectl against the server."""

from __future__ import annotations

import json

from local.server.conftest import Kubectl, pod


async def test_a_pod_from_apply_to_delete(kubectl: Kubectl) -> None:
    manifest = pod("one")
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one created\n"
    manifest["metadata"]["labels"] = {"colour": "green"}
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one configured\n"
    assert await kubectl("apply", "-f", "-", stdin=json.dumps(manifest)) == "pod/one unchanged\n"
    assert await kubectl("get", "pods", "-l", "colour=green", "-o", "name") == "pod/one\n"
    assert "condition met" in await kubectl("wait", "pod/one", "--for=jsonpath={.status.phase}=Pending", "--timeout=5s")
    assert "Pending" in await kubectl("describe", "pod", "one")
    assert "deleted" in await kubectl("delete", "pod", "one")
    assert "not found" in await kubectl("get", "pod", "one", code=1)
