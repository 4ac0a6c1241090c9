"""The manifest that `disttrain run` is given: one DistTrainJob, with what it needs beside it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..api.constants import API_VERSION, KIND, MANAGED_BY
from .console import CliError, usage

Object = dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """What the file holds: the job, and the other objects in the file's order."""

    job: Object
    others: tuple[Object, ...]

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return str(self.job["metadata"].get("namespace") or "default")

    @property
    def framework(self) -> object:
        """`spec.framework` as written, which the API has not judged yet."""
        spec = self.job.get("spec")
        return spec.get("framework") if isinstance(spec, dict) else None

    def dump(self) -> str:
        """As YAML, the job last: what is applied, in that order."""
        return yaml.safe_dump_all([*self.others, self.job], sort_keys=False, allow_unicode=True)


def load(name: str) -> Manifest:
    """Reads a file, or stdin where the name is `-`. Raises CliError."""
    return parse(_read(name), "stdin" if name == "-" else name)


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise usage(f"there is no file {name}: give the path of a manifest, or - to read it from stdin") from None
    except UnicodeDecodeError as error:
        raise CliError(f"{name} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise usage(f"{name} cannot be read: {error.strerror}") from None


def parse(text: str, source: str) -> Manifest:
    """The manifest in a text of one or more YAML (or JSON) documents. Raises CliError."""
    try:
        found = list(_flat(yaml.safe_load_all(text)))
    except yaml.YAMLError as error:
        raise CliError(f"{source} is not YAML: {_place(error)}") from None
    for number, item in enumerate(found, 1):
        if not isinstance(item, dict) or not item.get("kind") or not item.get("apiVersion"):
            raise CliError(f"document {number} of {source} is no Kubernetes object: apiVersion and kind are missing")
        metadata = item.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise CliError(f"the {item['kind']} in {source} has no metadata.name: give it one")
    jobs = [item for item in found if item["kind"] == KIND]
    if len(jobs) != 1:
        have = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in found) or "nothing"
        raise CliError(f"{source} must hold exactly one {KIND} (apiVersion {API_VERSION}), but it holds: {have}")
    if str(jobs[0]["apiVersion"]) != API_VERSION:
        raise CliError(
            f"{source} has apiVersion {jobs[0]['apiVersion']}: this version of disttrain knows {API_VERSION}"
        )
    _check(jobs[0].get("spec"))
    return Manifest(jobs[0], tuple(item for item in found if item is not jobs[0]))


def _place(error: yaml.YAMLError) -> str:
    """What is wrong with a text, and in which line and column."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    return f"line {mark.line + 1}, column {mark.column + 1}: " + ", ".join(part for part in parts if part)


def _check(spec: Any) -> None:
    """Raises CliError for what the API server takes, and nobody runs here."""
    if not isinstance(spec, dict):
        return
    if spec.get("managedBy") not in (None, MANAGED_BY):
        raise CliError(f"spec.managedBy is {spec['managedBy']}, which does not run here: leave it out")
    if spec.get("suspend") is True:
        raise CliError("spec.suspend is true, so the job would never start: leave it out")


def _flat(documents: Any) -> Iterator[Any]:
    """The objects, those of a `kind: List` one by one; empty documents are skipped."""
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            yield from _flat(document.get("items") or [])
        elif document is not None:
            yield document


def without_accelerators(manifest: Manifest) -> Manifest:
    """The same with one process a pod, for a machine that has no accelerators."""
    job = copy.deepcopy(manifest.job)
    if isinstance(job.get("spec"), dict):
        job["spec"]["procsPerNode"] = 1
    return Manifest(job, manifest.others)


def resized(manifest: Manifest, replicas: int) -> Manifest:
    """The same with another number of workers."""
    job = copy.deepcopy(manifest.job)
    if isinstance(job.get("spec"), dict):
        job["spec"]["worker"] = {**(job["spec"].get("worker") or {}), "replicas": replicas}
    return Manifest(job, manifest.others)


def resumed(manifest: Manifest, folder: str) -> Manifest:
    """The same, going on from the checkpoints in `folder` of its volume. Raises CliError where that cannot be."""
    job = copy.deepcopy(manifest.job)
    spec = job.get("spec")
    checkpoints = spec.get("checkpoints") if isinstance(spec, dict) else None
    if not isinstance(checkpoints, dict):
        raise CliError(
            f"{manifest.name} has no spec.checkpoints, so its last run kept nothing to resume from: "
            "add it (such as checkpoints: {claimName: checkpoints}) and run once without --resume"
        )
    if "emptyDir" in (checkpoints.get("volume") or {}):
        raise CliError(
            "spec.checkpoints.volume is an emptyDir, which goes with its pod, so the last run kept nothing to resume "
            "from: use claimName instead"
        )
    if checkpoints.get("resumeFrom"):
        raise CliError("the manifest sets spec.checkpoints.resumeFrom itself: leave out that field, or --resume")
    checkpoints["resumeFrom"] = folder
    return Manifest(job, manifest.others)


def words(manifest: Manifest) -> Iterator[str]:
    """The words of every container's command and arguments, those within a shell's script too."""
    spec = manifest.job.get("spec") or {}
    roles = [spec, *(part for part in spec.values() if isinstance(part, dict))] if isinstance(spec, dict) else []
    for role in roles:
        template = role.get("template")
        pod = (template.get("spec") if isinstance(template, dict) else None) or {}
        for container in (pod.get("containers") or []) if isinstance(pod, dict) else []:
            for line in [*(container.get("command") or []), *(container.get("args") or [])]:
                yield from str(line).split()
