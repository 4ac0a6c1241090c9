"""MPI: `mpirun` or `mpiexec` in the launcher starts the processes in the workers, over SSH.

The launcher finds all that it needs in its environment: the hosts, and how ssh is to be called. Sources of the names:
Open MPI 4 `ompi_info --all` (orte, plm/rsh), PRRTE (Open MPI 5) `prte_info --all`, Hydra's mpiexec manual page,
Intel MPI's developer reference ("Hydra environment variables").
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..api.constants import ENV_DISCOVERY_SCRIPT, ENV_HOSTFILE, ENV_SLOTS, ENV_SSH_PORT
from ..api.plan import Manifest
from ..api.pods import Slot
from ..api.types import Job, Mpi, RoleName
from . import ssh
from .accelerators import accelerators, without_accelerators
from .base import Framework, World
from .objects import template

HOSTFILE = f"{ssh.FOLDER}/hostfile"
DISCOVERY_SCRIPT = f"{ssh.FOLDER}/discover_hosts.sh"
SSH_ARGUMENTS = f"-F {ssh.CONFIG}"
INTERFACE = {"Intel": "I_MPI_HYDRA_IFACE", "MPICH": "HYDRA_IFACE"}
"""mpiexec gives its processes the host name to call it back, which is short and resolves in its own pod only; told an
interface, it gives that one's address."""
POD_INTERFACE = "eth0"
"""What container network plug-ins call a pod's interface. With the node's network, host names are the nodes' own."""


class MPI(Framework):
    """The framework `mpi`.

    A lost worker takes its processes' world with it, and mpirun too: all pods restart, under new names. Workers serve
    until the launcher has ended, whatever way it ends.
    """

    roles: Sequence[RoleName] = ("launcher", "worker")
    implied: Sequence[RoleName] = ("launcher",)
    renames = True

    def port(self, job: Job) -> int:
        """sshd's."""
        return settings(job).ssh_port

    def procs(self, job: Job, template: dict[str, Any]) -> int:
        """Slots of a worker."""
        return settings(job).slots_per_worker or super().procs(job, template)

    def trains(self, job: Job) -> Sequence[RoleName]:
        """The hosts that get processes, in order of rank."""
        return self.roles if settings(job).launcher_runs_training else ("worker",)

    def endless(self, job: Job) -> Sequence[RoleName]:
        """sshd never returns."""
        return ("worker",)

    def late(self, job: Job) -> Sequence[RoleName]:
        """A launcher whose workers do not listen yet fails at once."""
        return ("launcher",)

    def ports(self, world: World, slot: Slot) -> Sequence[int]:
        """sshd's, in the workers."""
        return [world.port(slot)] if slot.role == "worker" else []

    def env(self, world: World, slot: Slot) -> Mapping[str, str]:
        """What `mpirun` and `mpiexec` read, in the workers as well: a launcher's tree of ssh passes through them."""
        implementation = settings(world.job).implementation
        return {
            ENV_HOSTFILE: HOSTFILE,
            ENV_DISCOVERY_SCRIPT: DISCOVERY_SCRIPT,
            ENV_SLOTS: str(world.procs),
            ENV_SSH_PORT: str(world.port(slot)),
            **{
                "OpenMPI": {
                    "OMPI_MCA_orte_default_hostfile": HOSTFILE,
                    "OMPI_MCA_plm_rsh_args": SSH_ARGUMENTS,
                    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                    "PRTE_MCA_prte_default_hostfile": HOSTFILE,
                    "PRTE_MCA_plm_ssh_args": SSH_ARGUMENTS,
                    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
                },
                "Intel": {
                    "I_MPI_HYDRA_HOST_FILE": HOSTFILE,
                    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
                    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_ARGUMENTS,
                    "I_MPI_PERHOST": str(world.procs),
                },
                "MPICH": {
                    "HYDRA_HOST_FILE": HOSTFILE,
                    "HYDRA_LAUNCHER": "ssh",
                    "HYDRA_LAUNCHER_EXTRA_ARGS": SSH_ARGUMENTS,
                },
            }[implementation],
        }

    def defaults(self, world: World, slot: Slot) -> Mapping[str, str]:
        """Leave for Open MPI to run as root, the interface by which Hydra's processes call its mpiexec back, and no GPU
        for a launcher that asks for none: the NVIDIA runtime would show it all of the node's."""
        job, found = world.job, dict[str, str]()
        spec = template(job, slot.role).get("spec") or {}
        if settings(job).implementation == "OpenMPI" and ssh.may_be_root(spec):
            for prefix in ("OMPI", "PRTE"):
                found |= {f"{prefix}_ALLOW_RUN_AS_ROOT": "1", f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if not world.shared and (name := INTERFACE.get(settings(job).implementation)):
            found[name] = POD_INTERFACE
        if slot.role == "launcher" and slot.role not in self.trains(job):
            main = (spec.get("containers") or [{}])[0]
            if _shares_template(job, "launcher") or not accelerators(main):
                found |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
        return found

    def hosts(self, world: World) -> list[Slot]:
        """The pods that get processes, in order of rank."""
        trains = self.trains(world.job)
        return [slot for slot in world.slots if slot.role in trains]

    def objects(self, world: World) -> Sequence[Manifest]:
        """The hosts of the round and the keys of the job."""
        hosts = self.hosts(world)
        # No sshd runs in the launcher, and under this name every launcher knows that it needs none.
        named = ["localhost" if host.role == "launcher" else world.address(host) for host in hosts]
        open_mpi = settings(world.job).implementation == "OpenMPI"
        between, as_discovered = (" slots=", "sed 's/ slots=/:/'") if open_mpi else (":", "cat")
        files = {
            "hostfile": "".join(f"{name}{between}{world.procs}\n" for name in named),
            "discover_hosts.sh": f"#!/bin/sh\n# Horovod's host discovery: a line of host:slots for each host.\n"
            f"exec {as_discovered} {HOSTFILE}\n",
        }
        return ssh.objects(world, hosts, files)

    def complete(self, world: World, slot: Slot, spec: dict[str, Any]) -> dict[str, Any]:
        """The folder of hosts and keys in every pod, and sshd in the workers that bring no command of their own."""
        job, containers = world.job, spec.get("containers") or []
        ssh.mount(world, spec, settings(job).ssh_home, ("hostfile", "discover_hosts.sh"))
        if not containers:
            return spec
        main = containers[0]
        if slot.role == "worker" and (_shares_template(job, "worker") or not (main.get("command") or main.get("args"))):
            ssh.serve(main, world.port(slot))
        if slot.role == "launcher" and slot.role not in self.trains(job) and _shares_template(job, "launcher"):
            without_accelerators(main)
        return spec

    def debug_env(self) -> Mapping[str, str]:
        """How the processes are started, and with what they talk."""
        return {
            "OMPI_MCA_plm_base_verbose": "5",
            "PRTE_MCA_plm_base_verbose": "5",
            "HYDRA_DEBUG": "1",
            "I_MPI_DEBUG": "5",
            "NCCL_DEBUG": "INFO",
        }

    def warnings(self, job: Job) -> Sequence[str]:
        """What SSH will refuse, and counts that do not follow a resize."""
        found = []
        for role in self.roles:
            spec = template(job, role).get("spec") or {}
            if ssh.may_be_root(spec) and "fsGroup" in (spec.get("securityContext") or {}):
                found.append(
                    f"the {role}'s template sets fsGroup, and no user other than root: ssh refuses root's key if a "
                    "group may read it; set securityContext.runAsUser, or leave fsGroup out"
                )
        for container in ((template(job, "launcher").get("spec") or {}).get("containers") or [])[:1]:
            words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
            for word, value in itertools.pairwise(words):
                if word in ("-np", "--np") and value.isdigit():
                    found.append(
                        f"container {container.get('name')} of the launcher fixes {word} {value}; leave it out (mpirun "
                        "then fills all slots) or write $(DISTTRAIN_WORLD_SIZE), which follows a resize"
                    )
        return found


def settings(job: Job) -> Mpi:
    """`spec.mpi`, with its defaults where it is not written."""
    return job.spec.mpi or Mpi()


def _shares_template(job: Job, role: str) -> bool:
    """Whether a role has the job's template, whose command is the launcher's."""
    written = job.role(role)
    return written is None or written.template is None
