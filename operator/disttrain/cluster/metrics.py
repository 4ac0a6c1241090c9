"""What the operator counts, in Prometheus' terms."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..api.types import Job, Status
from .jobs import AnyJob

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """A registry of its own, so that several operators fit into one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._started = self._counter("jobs_created", "Jobs taken up.", "framework")
        self._succeeded = self._counter("jobs_succeeded", "Jobs that succeeded.", "framework")
        self._failed = self._counter("jobs_failed", "Jobs that failed.", "framework")
        self._restarts = self._counter("job_restarts", "Restarts charged, by reason.", "framework", "reason")
        self._calls = self._counter("api_calls", "Answers of the API server; code 0: none came.", "verb", "code")
        self._leads = Gauge(
            "disttrain_leader", "1 where this operator acts, 0 where it stands by.", registry=self.registry
        )
        self._passes = Histogram(
            "disttrain_reconcile_seconds",
            "Time of one pass over a job, calls included.",
            buckets=SECONDS,
            registry=self.registry,
        )

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"disttrain_{name}", words, labels, registry=self.registry)

    def call(self, verb: str, code: int) -> None:
        """The API server answered; code 0: it did not."""
        self._calls.labels(verb, code).inc()

    def leads(self, leads: bool) -> None:
        """This operator acts from now on, or does not any more."""
        self._leads.set(leads)

    def passed(self, seconds: float) -> None:
        """A pass over a job took so long."""
        self._passes.observe(seconds)

    def status(self, job: AnyJob, old: Status, new: Status) -> None:
        """A status was written."""
        if not isinstance(job, Job):
            return
        framework = job.spec.framework
        if new.start_time and not old.start_time:
            self._started.labels(framework).inc()
        if new.state != old.state:
            if new.state == "Succeeded":
                self._succeeded.labels(framework).inc()
            elif new.state == "Failed":
                self._failed.labels(framework).inc()
        if new.restarts > old.restarts:
            reason = new.failures[-1].reason if new.failures else ""
            self._restarts.labels(framework, reason or "Error").inc(new.restarts - old.restarts)

    def watch(
        self,
        jobs: Callable[[], Iterable[AnyJob]],
        depth: Callable[[], int],
        ages: Callable[[], Mapping[str, float]],
    ) -> None:
        """Adds what is looked up at each scrape: jobs, queue depth, seconds since each stream's last event."""
        self.registry.register(_Live(jobs, depth, ages))

    def text(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)


class _Live(Collector):
    def __init__(
        self,
        jobs: Callable[[], Iterable[AnyJob]],
        depth: Callable[[], int],
        ages: Callable[[], Mapping[str, float]],
    ) -> None:
        self._jobs = jobs
        self._depth = depth
        self._ages = ages

    def collect(self) -> Iterable[Metric]:
        states = GaugeMetricFamily("disttrain_jobs", "Jobs by state and framework.", labels=["state", "framework"])
        tally = Tally(
            (job.status.state or "Pending", job.spec.framework if isinstance(job, Job) else "unknown")
            for job in self._jobs()
        )
        for (state, framework), number in sorted(tally.items()):
            states.add_metric([state, framework], number)
        yield states
        yield GaugeMetricFamily("disttrain_queue_depth", "Jobs that wait to be looked at.", value=self._depth())
        ages = GaugeMetricFamily(
            "disttrain_stream_silent_seconds", "Seconds since the API server was last heard of.", labels=["stream"]
        )
        for name, seconds in self._ages().items():
            ages.add_metric([name], seconds)
        yield ages
