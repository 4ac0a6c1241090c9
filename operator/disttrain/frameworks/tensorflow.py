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

    Without parameter servers (MultiWorkerMirrored) no worker survives a peer's loss: all restart. With them and a chief
    (ClusterCoordinator) that goes on without a lost worker, which is replaced alone; a lost server takes the chief
    down, which then restores from its checkpoint, and the workers go on. Servers without a chief are those of
    TensorFlow 1's scripts, whose workers train and end by themselves: all restart.
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
        """Parameter servers and the evaluator do not train; a chief that coordinates does not either."""
        return ["worker"] if _coordinated(job) else ["chief", "worker"]

    def endless(self, job: Job) -> Sequence[RoleName]:
        """`tf.distribute.Server` never returns: parameter servers, and workers that a chief coordinates, we end.

        An evaluator gets `graceSeconds`, like others that should end by themselves: for the last checkpoint.
        """
        return ["ps", "worker"] if _coordinated(job) else ["ps"]

    def restarts(self, job: Job, lost: Slot, slots: Sequence[Slot]) -> Collection[Slot]:
        """See the class."""
        if lost.role == "evaluator":
            return [lost]
        if not _coordinated(job):
            return [slot for slot in slots if slot.role != "evaluator"]
        return [slot for slot in slots if slot == lost or (lost.role == "ps" and slot.role == "chief")]

    def keeps_ports(self, job: Job) -> bool:
        """Who goes on without a lost peer knows its ports."""
        return _coordinated(job)

    def debug_env(self) -> Mapping[str, str]:
        """TensorFlow's and gRPC's logs."""
        return {
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_MAX_VLOG_LEVEL": "1",
            "GRPC_VERBOSITY": "INFO",
            "NCCL_DEBUG": "INFO",
        }


def _coordinated(job: Job) -> bool:
    """Whether a chief hands out the work, by ParameterServerStrategy."""
    return all(role is not None and role.replicas > 0 for role in (job.spec.chief, job.spec.ps))
