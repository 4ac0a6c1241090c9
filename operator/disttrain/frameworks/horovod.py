"""Horovod: as MPI, with `horovodrun` (over gloo or MPI) or plain `mpirun` in the launcher.

`horovodrun` takes nothing from the environment: its flags are given as `$(DISTTRAIN_WORLD_SIZE)` and
`$(DISTTRAIN_HOSTFILE)`, or by `disttrain-horovodrun` of the training images.
"""

from __future__ import annotations

from collections.abc import Mapping

from .mpi import MPI


class Horovod(MPI):
    """The framework `horovod`."""

    def debug_env(self) -> Mapping[str, str]:
        """Horovod's own log as well."""
        return {**super().debug_env(), "HOROVOD_LOG_LEVEL": "debug"}
