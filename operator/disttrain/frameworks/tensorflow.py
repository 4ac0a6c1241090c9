"""TensorFlow: `TF_CONFIG`, as `tf.distribute.cluster_resolver.TFConfigClusterResolver` reads it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from ..api.pods import Slot
from ..api.types import Job, RoleName
from .base import Framework, World

PORT = 2222
"""The port of TensorFlow's own examples."""


class TensorFlow(Framework):
    """The framework `tensorflow`.

    Without parameter servers (MultiWorkerMirrored) no worker survives a peer's loss: all restart. With them the
    coordinator goes on without a lost worker, which is replaced alone; a lost server takes the chief down, which then
    restores from its checkpoint, and the workers go on.
    """

    roles: Sequence[RoleName] = ("chief", "worker", "ps", "evaluator")

    def port(self, job: Job) -> int:
        """See PORT."""
        return PORT

    def env(self, world: World, slot: Slot) -> Mapping[str, str]:
        """The evaluator has its task but is in nobody's cluster: it reads checkpoints, and nobody waits for it."""
        cluster: dict[str, list[str]] = {}
        for other in world.slots:
            if other.role != "evaluator":
                cluster.setdefault(other.role, []).append(f"{world.address(other)}:{world.port(other)}")
        config = {"cluster": cluster, "task": {"type": slot.role, "index": slot.number}}
        return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}

    def ports(self, world: World, slot: Slot) -> Sequence[int]:
        """Every task serves its peers, but for the evaluator."""
        return [] if slot.role == "evaluator" else [world.port(slot)]

    def trains(self, job: Job) -> Sequence[RoleName]:
        """Parameter servers and the evaluator do not train; under parameter servers the chief does not either."""
        return ["worker"] if _servers(job) else ["chief", "worker"]

    def endless(self, job: Job) -> Sequence[RoleName]:
        """`tf.distribute.Server` never returns: servers, and the workers that they serve, are ended by us."""
        return ["ps", "worker"] if _servers(job) else []

    def restarts(self, job: Job, lost: Slot, slots: Sequence[Slot]) -> Collection[Slot]:
        """See the class."""
        if lost.role == "evaluator":
            return [lost]
        if not _servers(job):
            return [slot for slot in slots if slot.role != "evaluator"]
        return [slot for slot in slots if slot == lost or (lost.role == "ps" and slot.role == "chief")]

    def keeps_ports(self, job: Job) -> bool:
        """With parameter servers the others go on, and know their peers' ports."""
        return _servers(job)

    def debug_env(self) -> Mapping[str, str]:
        """TensorFlow's and gRPC's logs."""
        return {
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_MAX_VLOG_LEVEL": "1",
            "GRPC_VERBOSITY": "INFO",
            "NCCL_DEBUG": "INFO",
        }


def _servers(job: Job) -> bool:
    return job.spec.ps is not None and job.spec.ps.replicas > 0
