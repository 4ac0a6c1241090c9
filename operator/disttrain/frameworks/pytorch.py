"""PyTorch: torchrun's static rendezvous, and the same world for a plain script.

torchrun reads `PET_*` for the flags that its command line leaves out (torch.distributed.run, `env` action); a script
that is started directly reads torch.distributed's `env://` variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..api.pods import Slot
from ..api.types import Job, RoleName
from .base import Framework, World

PORT = 29500
"""torch.distributed's usual port."""

FIXED_FLAGS: Mapping[str, str] = {
    "--nnodes": "PET_NNODES says how many pods there are",
    "--node-rank": "PET_NODE_RANK says which pod this is",
    "--master-addr": "PET_MASTER_ADDR says where the leader is",
    "--master-port": "PET_MASTER_PORT says where the leader listens",
    "--standalone": "it makes each pod train alone",
}
"""torchrun's flags that a template must not fix, since a flag wins over our environment, and why."""


class PyTorch(Framework):
    """The framework `pytorch`."""

    roles: Sequence[RoleName] = ("master", "worker")

    def port(self, job: Job) -> int:
        """See PORT."""
        return PORT

    def env(self, world: World, slot: Slot) -> Mapping[str, str]:
        """Both ways to find the world. With several processes a pod, the variables of a plain script are left out: a
        script that nothing launched then fails at once instead of hanging or training alone."""
        rank = world.ranks[slot]
        address, port = world.address(world.leader), str(world.port(world.leader))
        found = {
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "NODE_RANK": str(rank),
            "PET_NNODES": str(len(world.slots)),
            "PET_NPROC_PER_NODE": str(world.procs),
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": address,
            "PET_MASTER_PORT": port,
        }
        if world.procs == 1:
            found |= {"RANK": str(rank), "WORLD_SIZE": str(world.size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return found

    def ports(self, world: World, slot: Slot) -> Sequence[int]:
        """Only the leader is looked up by its port."""
        return [world.port(slot)] if slot == world.leader else []

    def debug_env(self) -> Mapping[str, str]:
        """Collectives that say what they do, and say where they stood when they time out."""
        return {
            "NCCL_DEBUG": "INFO",
            "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_CPP_LOG_LEVEL": "INFO",
        }

    def warnings(self, job: Job) -> Sequence[str]:
        """Flags of torchrun that the templates fix."""
        written = {f"spec.{role}.template": made.template for role in self.roles if (made := job.role(role))}
        found = []
        for where, template in {"spec.template": job.spec.template, **written}.items():
            for container in ((template or {}).get("spec") or {}).get("containers") or []:
                for flag, value in _flags(container):
                    why = FIXED_FLAGS.get(flag.replace("_", "-"))
                    if why and not value.startswith("$("):
                        words = f"container {container.get('name')} of {where} fixes {flag}; leave it out: {why}"
                        found.append(words)
        return found


def _flags(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The flags of a container's command with their values, also those in a shell's script."""
    lines = [str(word) for key in ("command", "args") for word in container.get(key) or []]
    words = [word for line in lines for word in line.split()]
    for word, following in itertools.pairwise([*words, ""]):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            yield flag, value if equals else following
