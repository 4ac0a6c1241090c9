"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest
from cluster.fakes import job
from msgspec import structs

from disttrain.api.types import Failure, Job, Status
from disttrain.cluster.health import HealthServer, parse_listen
from disttrain.cluster.metrics import Metrics

JOB = msgspec.convert(job() | {"status": {"state": "Running"}}, Job)


async def test_alive_and_ready() -> None:
    silent: dict[str, float] = {}
    ready: list[bool] = []
    server = HealthServer("127.0.0.1:0", Metrics(), silent=lambda: silent, ready=lambda: bool(ready))
    async with server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "the caches are not full yet\n")
        ready.append(True)
        assert await ask("/readyz") == (200, "ok\n")
        silent["pods"] = 312.4
        assert await ask("/healthz") == (503, "pods has been silent for 312 s\n")
        assert (await ask("/other"))[0] == 404


async def test_metrics() -> None:
    metrics = Metrics()
    metrics.watch(lambda: [JOB, JOB], lambda: 3, lambda: {"pods": 1.5})
    metrics.call("POST", 201)
    metrics.passed(0.02)
    old, new = Status(), Status(state="Starting", start_time="2027-01-15T08:00:00Z")
    metrics.status(JOB, old, new)
    failure = Failure(pod="p", uid="u", role="worker", index=0, round=1, reason="OOMKilled")
    metrics.status(JOB, new, structs.replace(new, state="Restarting", restarts=1, failures=[failure]))
    metrics.status(JOB, new, structs.replace(new, state="Succeeded"))
    metrics.status(JOB, new, structs.replace(new, state="Failed"))
    text = metrics.text().decode()
    for line in (
        'disttrain_jobs{framework="pytorch",state="Running"} 2.0',
        'disttrain_jobs_created_total{framework="pytorch"} 1.0',
        'disttrain_jobs_succeeded_total{framework="pytorch"} 1.0',
        'disttrain_jobs_failed_total{framework="pytorch"} 1.0',
        'disttrain_job_restarts_total{framework="pytorch",reason="OOMKilled"} 1.0',
        'disttrain_api_calls_total{code="201",verb="POST"} 1.0',
        "disttrain_reconcile_seconds_count 1.0",
        "disttrain_queue_depth 3.0",
        'disttrain_stream_silent_seconds{stream="pods"} 1.5',
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":0", ("", 0)),
        ("[::1]:9", ("::1", 9)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_listen(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:http", "host:65536", "host:-1"])
def test_listen_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no HOST:PORT, such as"):
        parse_listen(text)
