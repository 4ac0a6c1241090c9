"""A pod's volumes as folders of this machine.

`emptyDir`: a folder of the pod, or a tmpfs of its own (`medium: Memory`, where there are mount namespaces; its limit is
`sizeLimit`). `configMap`, `secret`, `downwardAPI`, `projected`: files behind a `..data` link that is swapped in one
step when they change, as the kubelet does it. `hostPath`: the path itself. `persistentVolumeClaim`: the folder
`<state>/volumes/<namespace>_<claim>`, made when first used and shared by all pods; no claim object is needed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disttrain.local.kubelet import env as environment
from disttrain.local.kubelet import quantity
from disttrain.local.kubelet.env import ConfigError, GetConfig

Json = dict[str, Any]
Files = dict[str, tuple[bytes, int]]
"""Relative path -> content and mode."""

KNOWN = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath", "persistentVolumeClaim")
_PROJECTED = ("configMap", "secret", "downwardAPI")


@dataclass(frozen=True)
class Volume:
    """Where a volume is. `tmpfs`: options to mount one there with, None for a plain folder."""

    path: Path
    tmpfs: str | None = None
    read_only: bool = False


def kind(volume: Json) -> str:
    """The type of a volume; a volume of none is an emptyDir."""
    return next((key for key in volume if key != "name"), "emptyDir")


def unknown(pod: Json) -> str:
    """Why a volume of this pod cannot be had on one machine, "" if all can."""
    for volume in pod["spec"].get("volumes") or []:
        what = kind(volume)
        if what not in KNOWN:
            return f'volume "{volume["name"]}" is of type {what}; on one machine there are {", ".join(KNOWN)}'
        if what == "projected":
            for source in volume["projected"].get("sources") or []:
                if (inner := next(iter(source), "")) not in _PROJECTED:
                    return (
                        f'volume "{volume["name"]}" projects {inner}; on one machine there are {", ".join(_PROJECTED)}'
                    )
    return ""


def prepare(pod: Json, folder: Path, shared: Path, get: GetConfig, *, isolated: bool) -> dict[str, Volume]:
    """Make all volumes of a pod under `folder`; raises ConfigError in the kubelet's words for what is missing."""
    return {
        v["name"]: _prepare(v, pod, folder / v["name"], shared, get, isolated) for v in pod["spec"].get("volumes") or []
    }


def _prepare(volume: Json, pod: Json, folder: Path, shared: Path, get: GetConfig, isolated: bool) -> Volume:
    what, name = kind(volume), volume["name"]
    if what == "hostPath":
        return Volume(_host_path(volume["hostPath"], name))
    if what == "persistentVolumeClaim":
        source = volume[what]
        path = shared / f"{pod['metadata']['namespace']}_{source['claimName']}"
        path.mkdir(parents=True, exist_ok=True)
        return Volume(path, read_only=bool(source.get("readOnly")))
    folder.mkdir(parents=True, exist_ok=True)
    if what == "emptyDir":
        # Any user of the container may write to it, as on a node; the folders above it are this user's alone.
        folder.chmod(0o777)
        source = volume.get("emptyDir") or {}
        if source.get("medium") == "Memory" and isolated:
            limit = source.get("sizeLimit")
            size = f"size={int(quantity.parse(limit))}" if limit else "size=100%"
            return Volume(folder, tmpfs=f"mode=1777,{size}")
        return Volume(folder)
    write(folder, content(volume, pod, get))
    return Volume(folder, read_only=True)


def _host_path(source: Json, name: str) -> Path:
    path, what = Path(source["path"]), source.get("type") or ""
    if what == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif what == "FileOrCreate":
        path.touch()
    wanted = {
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
    }
    if not wanted.get(what, path.exists)():
        failed = f'MountVolume.SetUp failed for volume "{name}" : hostPath type check failed'
        raise ConfigError(f"{failed}: {path} is not a {what.lower() or 'path'}")
    return path


def refresh(pod: Json, folder: Path, get: GetConfig) -> None:
    """Bring the files of ConfigMaps, Secrets and labels up to date; what has gone meanwhile stays as it was."""
    for volume in pod["spec"].get("volumes") or []:
        if kind(volume) in ("configMap", "secret", "downwardAPI", "projected"):
            try:
                write(folder / volume["name"], content(volume, pod, get))
            except ConfigError:
                continue


def content(volume: Json, pod: Json, get: GetConfig) -> Files:
    """The files of a volume made from objects; raises ConfigError."""
    what = kind(volume)
    source = volume[what]
    default = source.get("defaultMode", 0o644)
    try:
        if what != "projected":
            return _files(what, source, pod, default, get)
        files: Files = {}
        for projection in source.get("sources") or []:
            inner = next(iter(projection))
            files |= _files(inner, projection[inner], pod, default, get)
        return files
    except ConfigError as error:
        raise ConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from None


def _files(what: str, source: Json, pod: Json, default: int, get: GetConfig) -> Files:
    items: list[Json] | None = source.get("items")
    if what == "downwardAPI":
        files: Files = {}
        for item in items or []:
            if "fieldRef" in item:
                text = environment.field(pod, item["fieldRef"]["fieldPath"])
            else:
                text = environment.resource(pod, {}, item["resourceFieldRef"], {})
            files[item["path"]] = (text.encode(), item.get("mode", default))
        return files
    data = environment.config_data(
        "secrets" if what == "secret" else "configmaps", pod["metadata"]["namespace"], source, get
    )
    if data is None:
        return {}
    if items is None:
        return {key: (value, default) for key, value in data.items()}
    files = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = (data[item["key"]], item.get("mode", default))
        elif not source.get("optional"):
            raise ConfigError(
                f"references non-existent {'secret' if what == 'secret' else 'config'} key: {item['key']}"
            )
    return files


def write(folder: Path, files: Files) -> None:
    """Give `folder` these files, all of them in one step; nothing is touched if they are there already."""
    data = folder / "..data"
    if data.is_symlink() and _read(data) == files:
        return
    new = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    new.chmod(0o755)
    for relative, (body, mode) in files.items():
        path = new / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        path.chmod(mode)
    old = data.readlink() if data.is_symlink() else None
    swap = folder / "..data_tmp"
    swap.symlink_to(new.name)
    swap.replace(data)
    _link(folder, {Path(relative).parts[0] for relative in files})
    if old is not None:
        shutil.rmtree(folder / old)


def _link(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()


def _read(folder: Path) -> Files:
    files: Files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            files[str(path.relative_to(folder))] = (path.read_bytes(), path.stat().st_mode & 0o7777)
    return files
