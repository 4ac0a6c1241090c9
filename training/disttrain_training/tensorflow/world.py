"""This process's place in the cluster that TF_CONFIG describes, and the strategy that its tasks train under."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from ..progress import warn_if_alone
from ..shutdown import Refused
from .options import Options

ALONE = "Use --strategy=auto or multiworker: the job sets TF_CONFIG"


@dataclass(frozen=True)
class Task:
    """What TF_CONFIG says: all tasks that train or serve, and which of them this process is."""

    cluster: Mapping[str, Sequence[str]]
    role: str = "worker"
    index: int = 0

    @property
    def rank(self) -> int:
        """Place among the chief and the workers."""
        return self.index + (len(self.cluster.get("chief", ())) if self.role == "worker" else 0)

    @property
    def address(self) -> str:
        """`host:port` of this task."""
        return self.cluster[self.role][self.index]

    def strategy(self, asked: str) -> str:
        """The strategy that `auto` stands for."""
        if asked != "auto":
            return asked
        return "ps" if self.cluster.get("ps") else "multiworker" if self.cluster else "mirrored"


def task(environ: Mapping[str, str] = os.environ) -> Task:
    """Reads TF_CONFIG; without it the process trains alone. Raises Refused."""
    text = environ.get("TF_CONFIG", "")
    if not text:
        return Task({})
    try:
        config = json.loads(text)
        found = Task(dict(config["cluster"]), str(config["task"]["type"]), int(config["task"]["index"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f'TF_CONFIG is {text!r}, must be {{"cluster": {{"worker": ["host:port", ...]}}, "task": {{"type": '
            f'"worker", "index": 0}}}}; a job sets it, and without one leave it unset ({error!r})'
        ) from error
    if found.role != "evaluator" and not 0 <= found.index < len(found.cluster.get(found.role, ())):
        raise Refused(f"TF_CONFIG says that this is {found.role} {found.index}, which its cluster {text} lacks")
    return found


@dataclass
class World:
    """The replicas that train in step. Every process must call `sum` alike."""

    strategy: Any
    rank: int

    @property
    def size(self) -> int:
        """Replicas in sync."""
        return int(self.strategy.num_replicas_in_sync)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise sums over all processes, in float64."""
        share = tf.constant(values, tf.float64) / len(self.strategy.extended.worker_devices)  # of each of our replicas
        return [float(value) for value in self._total(share).numpy()]

    @cached_property
    def _total(self) -> Any:
        def total(share: Any) -> Any:
            return self.strategy.reduce("SUM", self.strategy.run(lambda: tf.identity(share)), axis=None)

        return tf.function(total)

    def from_first(self, values: Sequence[float]) -> list[float]:
        """The values that rank 0 gave."""
        return self.sum(values if self.rank == 0 else [0.0] * len(values))


def join(options: Options, place: Task) -> World:
    """Joins the world; blocks until all of its workers are there. Raises Refused."""
    kind = place.strategy(options.strategy)
    if kind == "tpu":
        world = World(_tpu(), 0)
    elif kind == "multiworker":
        if not place.cluster:
            raise Refused("--strategy=multiworker needs TF_CONFIG, which a job sets; alone use --strategy=mirrored")
        wait_for_port(place.address)
        world = World(tf.distribute.MultiWorkerMirroredStrategy(), place.rank)
    else:
        world = World(tf.distribute.MirroredStrategy(_devices(options)), 0)
    warn_if_alone(world.size, ALONE)
    return world


def _devices(options: Options) -> list[str] | None:
    if options.logical_cpus == 1 or tf.config.list_physical_devices("GPU"):
        return None
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * options.logical_cpus)
    return [f"CPU:{number}" for number in range(options.logical_cpus)]


def _tpu() -> Any:
    name = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(name)
        if not tf.config.list_logical_devices("TPU"):
            raise ValueError("TensorFlow sees none")
    except Exception as error:  # whatever a machine without a TPU answers
        raise Refused(
            f"--strategy=tpu finds no TPU under the name {name!r} ({error}): set TPU_NAME and use a TensorFlow built "
            "for TPUs, or --strategy=auto"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def wait_for_port(address: str, seconds: float = 60.0) -> None:
    """Waits until the task's port is free: the pod that this one replaces may still hold it, where they share an
    address (the node's network, one machine), and TensorFlow would give up at once. Raises Refused.
    """
    port = int(address.rsplit(":", 1)[1])
    end = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise Refused(f"port {port} of {address} is not free after {seconds:g} s: {error}") from error
        time.sleep(0.2)
