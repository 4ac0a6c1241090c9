"""The environment of a container: env and envFrom in all forms, `$(VAR)`, and what is inherited of the machine."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from disttrain.local.kubelet import quantity

Json = dict[str, Any]
GetConfig = Callable[[str, str, str], Json | None]
"""The object of a kind (`configmaps`, `secrets`), namespace and name, None if there is none."""

INHERITED = (
    # who and where the user is
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "XDG_CACHE_HOME",
    # the Python environment at hand and the libraries under it
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    # on processors that an OpenBLAS does not know, without it wrong results or a crash
    "OPENBLAS_CORETYPE",
    # the way out, where there is a proxy
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
)  # fmt: skip
"""The variables of the machine that a container sees; all others are the manifest's."""


ONE_MACHINE = {
    # Pods meet on the loopback interface, which MPI leaves out by itself.
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "PRTE_MCA_prte_if_include": "lo",
    "HYDRA_IFACE": "lo",
    "HOROVOD_GLOO_IFACE": "lo",
    # They share /tmp, and process numbers repeat: /dev/shm is each pod's own.
    "OMPI_MCA_orte_tmpdir_base": "/dev/shm",
    "PRTE_MCA_prte_tmpdir_base": "/dev/shm",
    # Processes that wait in a loop take the cores from those that they wait for.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
"""What MPI must know of a network that is one machine's; the manifest's own values win. Linux only."""


class ConfigError(Exception):
    """A container cannot be made yet: something that its manifest names is missing."""


def inherited(machine: Mapping[str, str], python: Path | None) -> dict[str, str]:
    """What every container starts from. `python`: an interpreter whose folder is to come first in PATH."""
    env = {name: machine[name] for name in INHERITED if name in machine}
    env.setdefault("PATH", os.defpath)
    # Output goes to a pipe; without this a Python program's lines would come in blocks of 8 KB.
    env["PYTHONUNBUFFERED"] = "1"
    if python is not None:
        folder = python.absolute().parent
        env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
        env.pop("VIRTUAL_ENV", None)
        if (folder.parent / "pyvenv.cfg").is_file():
            env["VIRTUAL_ENV"] = str(folder.parent)
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` by its value, `$$` by `$`; an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replace, text)


def of_container(pod: Json, container: Json, allocatable: Mapping[str, str], get: GetConfig) -> dict[str, str]:
    """The variables that the manifest gives, in order; raises ConfigError in the kubelet's words."""
    namespace = pod["metadata"]["namespace"]
    env: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        env.update(_from_whole(source, namespace, get))
    for variable in container.get("env") or []:
        source = variable.get("valueFrom")
        if not source:
            env[variable["name"]] = expand(variable.get("value") or "", env)
        elif (value := _from_source(source, pod, container, allocatable, get)) is not None:
            env[variable["name"]] = value
    return env


def _from_whole(source: Json, namespace: str, get: GetConfig) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for field, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        if field in source:
            data = config_data(kind, namespace, source[field], get)
            return {prefix + key: value.decode(errors="replace") for key, value in (data or {}).items()}
    return {}


def _from_source(
    source: Json, pod: Json, container: Json, allocatable: Mapping[str, str], get: GetConfig
) -> str | None:
    """One value; None if it is optional and missing."""
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource(pod, container, source["resourceFieldRef"], allocatable)
    for name, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if name not in source:
            continue
        ref = source[name]
        data = config_data(kind, pod["metadata"]["namespace"], ref, get)
        if data is not None and ref["key"] in data:
            return data[ref["key"]].decode(errors="replace")
        if ref.get("optional"):
            return None
        shown = "ConfigMap" if kind == "configmaps" else "Secret"
        raise ConfigError(f"couldn't find key {ref['key']} in {shown} {pod['metadata']['namespace']}/{ref['name']}")
    raise ConfigError(f"valueFrom {', '.join(source) or '{}'} is not known here")


def config_data(kind: str, namespace: str, ref: Json, get: GetConfig) -> dict[str, bytes] | None:
    """All keys of a ConfigMap or Secret; None if it is missing and `ref` is optional, else ConfigError."""
    found = get(kind, namespace, ref.get("name") or ref.get("secretName") or "")
    if found is None:
        if ref.get("optional"):
            return None
        name = ref.get("name") or ref.get("secretName")
        raise ConfigError(f'{kind.removesuffix("s")} "{name}" not found')
    binary = "data" if kind == "secrets" else "binaryData"
    data = {key: base64.b64decode(value) for key, value in (found.get(binary) or {}).items()}
    if kind == "configmaps":
        data |= {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return data


def field(pod: Json, path: str) -> str:
    """A field as fieldRef and the downward API name it; raises ConfigError for others."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(entries.items()))
    values: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: metadata["name"],
        "metadata.namespace": lambda: metadata["namespace"],
        "metadata.uid": lambda: metadata["uid"],
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName") or "default",
        "status.podIP": lambda: status.get("podIP", ""),
        "status.podIPs": lambda: ",".join(ip["ip"] for ip in status.get("podIPs") or []),
        "status.hostIP": lambda: status.get("hostIP", ""),
        "status.hostIPs": lambda: ",".join(ip["ip"] for ip in status.get("hostIPs") or []),
    }
    if path not in values:
        raise ConfigError(f"fieldPath {path!r} is not known here; known: {', '.join(values)}, metadata.labels['x']")
    return values[path]()


def resource(pod: Json, container: Json, ref: Json, allocatable: Mapping[str, str]) -> str:
    """A request or limit in units of the divisor; a limit that is not set is what the machine has."""
    if name := ref.get("containerName"):
        everyone = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
        container = next((c for c in everyone if c["name"] == name), {})
    what, _, which = ref["resource"].partition(".")
    resources = container.get("resources") or {}
    limit = (resources.get("limits") or {}).get(which)
    value = limit if what == "limits" else (resources.get("requests") or {}).get(which, limit)
    if value is None:
        value = allocatable.get(which, "0") if what == "limits" else "0"
    return quantity.in_units(value, ref.get("divisor") or "1")


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def worker_threads(pod: Json, env: Mapping[str, str], cores: int, pods_of_job: int) -> int:
    """OMP_NUM_THREADS: cores over the processes of the job, so that they do not fight for the one machine's cores."""
    processes = pods_of_job
    if env.get("DISTTRAIN_WORLD_SIZE", "").isdecimal():
        processes = int(env["DISTTRAIN_WORLD_SIZE"])
    return max(1, cores // max(1, processes))
