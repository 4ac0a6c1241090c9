"""The folder of runs: everything that `disttrain run` leaves behind.

    disttrain-runs/
      volumes/default_checkpoints/     what pods wrote into the claim `checkpoints`: shared by all runs, as in a cluster
      digits-20261130-203000/          one run
        manifest.yaml                  what was applied
        run.json                       how it went
        logs/worker-0.log              one log a pod; a later round's is worker-0-r2.log
        operator.log
        cluster/                       the one-machine cluster's own state

Checkpoints lie in the claim under the uid of the job that wrote them, so runs never mix theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from .console import CliError, usage

FACTS = "run.json"


class Run:
    """One run's folder. `facts` is the content of run.json; `save` writes it."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.facts = facts

    @classmethod
    def new(cls, base: Path, job: str, namespace: str) -> Run:
        """Makes a folder for a new run of the job. Raises CliError."""
        stem = f"{job}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            base.mkdir(parents=True, exist_ok=True)
            (base / "volumes").mkdir(exist_ok=True)
            for number in range(1, 1000):
                path = base / (stem if number == 1 else f"{stem}-{number}")
                try:
                    path.mkdir(mode=0o700)
                    break
                except FileExistsError:
                    continue
            (path / "logs").mkdir()
            (path / "cluster").mkdir()
            (path / "cluster" / "volumes").symlink_to(Path("../../volumes"))
        except OSError as error:
            raise usage(
                f"no folder for the run can be made in {base}: {error.strerror}; name another with --runs"
            ) from None
        return cls(path, {"job": job, "namespace": namespace, "folder": str(path), "started": time.time()})

    def save(self, **facts: Any) -> None:
        """Adds facts and writes them, never half."""
        self.facts |= facts
        draft = self.path / f".{FACTS}"
        draft.write_text(json.dumps(self.facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(self.path / FACTS)

    def discard(self) -> None:
        """Removes the folder of a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)


def shown(path: Path) -> str:
    """A path as a person would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else f"./{relative}"


def last(base: Path, job: str, namespace: str) -> Run:
    """The run of the job to go on from. Raises CliError where there is none.

    That is the newest that left checkpoints in the volumes here: one that ended before its first would start anew what
    an earlier one had kept. Where none did (its volume may be elsewhere), it is the newest that was created.
    """
    found = []
    for file in base.glob(f"*/{FACTS}"):
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # half a folder, such as after a full disk: it is no run to resume
        if (facts.get("job"), facts.get("namespace")) == (job, namespace) and facts.get("uid"):
            found.append(Run(file.parent, facts))
    if not found:
        raise CliError(f"there is no run of {job} in {shown(base)} to resume: run it without --resume first")
    found.sort(key=lambda run: run.facts.get("started", 0.0), reverse=True)
    return next((run for run in found if _kept(base, run.facts["uid"])), found[0])


def _kept(base: Path, uid: str) -> bool:
    """Whether a job's checkpoint folder holds more than the claims of its rounds."""
    folders = (base / "volumes").glob(f"**/{uid}")
    return any(file.suffix != ".claim" for folder in folders for file in folder.rglob("*"))
