"""From a container's manifest to a local process: command, environment, working directory and mounts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disttrain.local.kubelet import env as environment
from disttrain.local.kubelet import hosts, mapping
from disttrain.local.kubelet.node import Node
from disttrain.local.kubelet.rootfs import Mount
from disttrain.local.kubelet.volumes import Volume

Json = dict[str, Any]

SHM = "/dev/shm"
TERMINATION_LOG = "DISTTRAIN_TERMINATION_LOG"
"""Where there are no mount namespaces: the file that stands for terminationMessagePath."""


class Unsupported(Exception):
    """A pod that one machine, or this one, cannot run; the text says why and what would do."""


@dataclass(frozen=True)
class Process:
    """What to start."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    mounts: list[Mount]


def plan(
    pod: Json, container: Json, node: Node, volumes: Mapping[str, Volume], run: Path, message_file: Path
) -> Process:
    """The process of a container. `run`: the pod's folder of the kubelet's own files.

    Raises ConfigError for what is missing and may come, Unsupported for what cannot be.
    """
    if not container.get("command"):
        raise Unsupported(
            f'container "{container["name"]}" has no command: no image is pulled on one machine, so its entrypoint '
            "is not known. Write the command in the template (command: [...])"
        )
    own = environment.of_container(pod, container, node.capacity, node.config)
    argv = [environment.expand(word, own) for word in [*container["command"], *(container.get("args") or [])]]
    mounts = _volume_mounts(container, volumes, own)
    maps = {path: Path(target) for path, target in node.options.maps.items()}
    env = environment.inherited(os.environ, node.options.python) | {"HOSTNAME": hosts.hostname(pod)}
    if gpus := node.gpus_of(pod["metadata"]["uid"]):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    if node.isolated:
        cwd = container.get("workingDir") or str(node.options.workdir)
        mounts = [m for m in mounts if m.target not in maps]
        mounts += [Mount(str(target), path) for path, target in maps.items()]
        if not _will_exist(cwd, mounts):
            raise Unsupported(_no_folder(container, cwd))
        mounts.append(Mount(str(run / "hosts"), "/etc/hosts"))
        mounts.append(Mount(str(message_file), container.get("terminationMessagePath") or "/dev/termination-log"))
        if all(m.target.rstrip("/") != SHM for m in mounts):
            mounts.append(Mount(str(run / "shm"), SHM))
        env |= environment.ONE_MACHINE | own
    else:
        argv, mapped, cwd = _without_mounts(pod, container, node, mounts, maps, argv, own)
        env |= {TERMINATION_LOG: str(message_file), "GLOO_SOCKET_IFNAME": _LOOPBACK, "NCCL_SOCKET_IFNAME": _LOOPBACK}
        env |= mapped
        mounts = []
    if "OMP_NUM_THREADS" not in own:
        env["OMP_NUM_THREADS"] = str(environment.worker_threads(pod, own, node.cores, node.pods_of_job(pod)))
    return Process(argv, env, cwd, mounts)


# The machine's host name may resolve to any address, or none; names of pods stand for loopback ones.
_LOOPBACK = "lo" if os.uname().sysname == "Linux" else "lo0"


def _volume_mounts(container: Json, volumes: Mapping[str, Volume], env: Mapping[str, str]) -> list[Mount]:
    mounts = []
    for mount in container.get("volumeMounts") or []:
        if mount["name"] not in volumes:
            raise Unsupported(
                f'container "{container["name"]}" mounts volume "{mount["name"]}", which the pod does not have'
            )
        volume = volumes[mount["name"]]
        inner = mount.get("subPath") or environment.expand(mount.get("subPathExpr") or "", env)
        if ".." in Path(inner).parts or inner.startswith("/"):
            raise Unsupported(f'container "{container["name"]}": subPath {inner!r} must be relative and without ".."')
        read_only = bool(mount.get("readOnly")) or volume.read_only
        mounts.append(Mount(str(volume.path / inner), mount["mountPath"].rstrip("/") or "/", read_only))
    return mounts


def _will_exist(folder: str, mounts: list[Mount]) -> bool:
    return Path(folder).is_dir() or any(folder == m.target or folder.startswith(m.target + "/") for m in mounts)


def _no_folder(container: Json, folder: str) -> str:
    return (
        f'container "{container["name"]}": the working directory {folder} does not exist on this machine (no image is '
        f"pulled). Say which folder stands for it: {mapping.advice([folder])}"
    )


def _without_mounts(
    pod: Json,
    container: Json,
    node: Node,
    mounts: list[Mount],
    maps: Mapping[str, Path],
    argv: list[str],
    env: Mapping[str, str],
) -> tuple[list[str], dict[str, str], str]:
    """Command, environment and working directory with this machine's paths and addresses in place."""
    cwd = container.get("workingDir") or str(node.options.workdir)
    texts = [cwd, *argv, *env.values()]
    # Shared memory is found where it always is: the machine's own serves.
    own = [m.target for m in mounts if m.target not in maps and m.target != SHM]
    if lost := mapping.unnamed(own, texts):
        raise Unsupported(
            f'container "{container["name"]}" mounts volumes at {", ".join(lost)}, and this machine has no mount '
            "namespaces: name the path in command, args, env or workingDir, where it is replaced, or say which folder "
            "stands for it: " + mapping.advice(lost)
        )
    for mount in mounts:
        if mount.target in own:
            source = Path(mount.source)
            if not source.exists():
                source.mkdir(parents=True)
    paths = {m.target: Path(m.source) for m in mounts if m.target in own} | dict(maps)
    namespace = pod["metadata"]["namespace"]

    def local(text: str) -> str:
        return hosts.with_addresses(mapping.substitute(text, paths), namespace, node.addresses)

    folder = mapping.substitute(cwd, paths)
    if not Path(folder).is_dir():
        raise Unsupported(_no_folder(container, cwd))
    return [local(word) for word in argv], {key: local(value) for key, value in env.items()}, folder
