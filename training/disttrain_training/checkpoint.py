"""Checkpoint files that are whole or not there, and that say which round of the job wrote them.

A checkpoint is two files in one folder: `r000002-s0000000480.ckpt` (round 2, step 480: any bytes) and, beside it, the
manifest `r000002-s0000000480.json` with their SHA-256 and size. Each is written under another name, synced to disk
and renamed; the manifest comes last, so a checkpoint exists once its manifest does. What was half written when a
process died, or rotted later, is noticed when it is read, said, and passed over for the checkpoint before it.

Rounds: every world of a job (each start, restart or resize) is one round, and the operator counts them
(`DISTTRAIN_ROUND`); without it each start in the same folder takes the next number. A round leaves a claim
(`r000002.claim`) when it opens the folder. A process of an older round that still lives, say on a node that went
silent, sees it and gives way: it writes and deletes nothing any more and stops with `Superseded`. One process (rank
0) uses a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .shutdown import Refused

_NAME = re.compile(r"r(\d{6,})-s(\d{10,})\.(?:ckpt|json)(\.part)?")
_CLAIM = re.compile(r"r(\d{6,})\.claim")


def job_round(environ: Mapping[str, str]) -> int | None:
    """The round that the operator says this is; None outside a job."""
    value = environ.get("DISTTRAIN_ROUND", "")
    if value and not value.isdecimal():
        raise Refused(f"DISTTRAIN_ROUND is {value!r}, must be a whole number: leave it unset outside a job")
    return int(value) if value else None


def _say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # one write: other ranks may share the pipe


class Superseded(Refused):
    """A newer round of the same job owns the folder."""


class Corrupt(Exception):
    """A checkpoint that cannot be trusted; the message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """What a manifest says. The newest is that of the highest round, then of the highest step."""

    round: int
    step: int
    sha256: str = ""
    size: int = 0
    score: float | None = None
    """Higher is better, e.g. the accuracy; None when it was not measured."""

    @property
    def name(self) -> str:
        return f"r{self.round:06d}-s{self.step:010d}"


class Checkpoints:
    """The checkpoints in one folder, to read."""

    def __init__(self, folder: Path, *, say: Callable[[str], object] = _say) -> None:
        self.folder = folder
        self._say = say
        self._passed_over: set[str] = set()

    def newest(self) -> tuple[Checkpoint, bytes] | None:
        """The newest checkpoint that is whole, with its bytes; None: there is none. What is passed over is said."""
        for name in sorted(self._names(), key=_order, reverse=True):
            try:
                return self._read(name)
            except Corrupt as why:
                self._passed_over.add(name)
                self._say(f"checkpoint {name} in {self.folder} is passed over: {why}")
        return None

    def all(self) -> list[Checkpoint]:
        """All with a readable manifest, oldest first, but those passed over. The bytes themselves are not looked at."""
        found = []
        for name in self._names() - self._passed_over:
            with contextlib.suppress(Corrupt):
                found.append(self._manifest(name))
        return sorted(found, key=lambda checkpoint: (checkpoint.round, checkpoint.step))

    def best(self) -> Checkpoint | None:
        """The one with the highest score, the newest of equals; it is kept however old it is."""
        best = None
        for checkpoint in self.all():
            if checkpoint.score is not None and (best is None or checkpoint.score >= (best.score or 0.0)):
                best = checkpoint
        return best

    def _read(self, name: str) -> tuple[Checkpoint, bytes]:
        checkpoint = self._manifest(name)
        try:
            payload = self._path(name, "ckpt").read_bytes()
        except OSError as error:
            raise Corrupt(f"its bytes cannot be read ({error})") from error
        if len(payload) != checkpoint.size:
            raise Corrupt(f"it has {len(payload)} bytes, its manifest says {checkpoint.size}: half written")
        digest = hashlib.sha256(payload).hexdigest()
        if digest != checkpoint.sha256:
            raise Corrupt(f"its SHA-256 is {digest}, its manifest says {checkpoint.sha256}: corrupt")
        return checkpoint, payload

    def _manifest(self, name: str) -> Checkpoint:
        path = self._path(name, "json")
        try:
            checkpoint = Checkpoint(**json.loads(path.read_bytes()))
        except FileNotFoundError as error:
            raise Corrupt("it has no manifest: half written") from error
        except (OSError, ValueError, TypeError) as error:
            raise Corrupt(f"its manifest {path.name} cannot be read ({error})") from error
        if checkpoint.name != name:
            raise Corrupt(f"its manifest {path.name} is that of {checkpoint.name}")
        return checkpoint

    def _names(self) -> set[str]:
        """Every checkpoint of which there is any trace."""
        if not self.folder.is_dir():
            return set()
        return {path.name.split(".")[0] for path in self.folder.iterdir() if _NAME.fullmatch(path.name)}

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name}.{suffix}"


class Claim:
    """One round's hold on a folder of checkpoints, whatever writes them."""

    def __init__(self, folder: Path, round_: int | None, *, newest: Callable[[], int] = lambda: -1) -> None:
        """Claim the folder, made where it is not there yet, for a round; None takes the next free number. `newest` is
        the newest round of which there is any other trace. Raises Superseded if a newer round has the folder already.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._newest = newest
        self.round = self._newest_round() + 1 if round_ is None else round_
        self.give_way()
        _write(folder / f"r{self.round:06d}.claim", b"")

    def give_way(self) -> None:
        """Call before the folder is changed. Raises Superseded once a newer round has claimed it."""
        newest = self._newest_round()
        if newest > self.round:
            raise Superseded(
                f"round {newest} of this job has {self.folder} now; this process is of round {self.round} "
                "and gives way. A training of its own needs a folder of its own: --checkpoint-dir"
            )

    def prune(self) -> None:
        """Delete the claims of older rounds."""
        for claim, round_ in self._claims():
            if round_ < self.round:
                claim.unlink(missing_ok=True)

    def _claims(self) -> list[tuple[Path, int]]:
        return [(path, int(m[1])) for path in self.folder.iterdir() if (m := _CLAIM.fullmatch(path.name))]

    def _newest_round(self) -> int:
        return max([self._newest(), *(round_ for _, round_ in self._claims())])


class CheckpointWriter(Checkpoints):
    """The checkpoints in one folder, for the one process that writes them."""

    def __init__(
        self, folder: Path, *, round_: int | None = None, keep_last: int = 3, say: Callable[[str], object] = _say
    ) -> None:
        """Claim the folder for a round, made where it is not there yet; `round_` None takes the next free number.

        Raises Superseded if a newer round has it already.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}, must be at least 1")
        super().__init__(folder, say=say)
        self.keep_last = keep_last
        self._claim = Claim(folder, round_, newest=self._newest_round)
        self.round = self._claim.round

    def save(self, payload: bytes, *, step: int, score: float | None = None) -> Checkpoint:
        """Write a checkpoint and return once it is durable, then delete what is no longer to be kept.

        Raises Superseded (and writes nothing) when a newer round has claimed the folder; OSError when the disk refuses.
        """
        self._claim.give_way()
        checkpoint = Checkpoint(self.round, step, hashlib.sha256(payload).hexdigest(), len(payload), score)
        manifest = self._path(checkpoint.name, "json")
        manifest.unlink(missing_ok=True)  # the same step once more: not valid until its new manifest is there
        _write(self._path(checkpoint.name, "ckpt"), payload)
        _write(manifest, json.dumps(asdict(checkpoint), indent=1).encode() + b"\n")
        self._passed_over.discard(checkpoint.name)
        self._prune()
        return checkpoint

    def _prune(self) -> None:
        """Delete all but the last `keep_last` and the best, of this round and older ones, and what is half written."""
        self._claim.give_way()
        kept = {checkpoint.name for checkpoint in self.all()[-self.keep_last :]}
        if best := self.best():
            kept.add(best.name)
        for name in self._names() - kept:
            if _order(name)[0] <= self.round:
                for suffix in ("json", "json.part", "ckpt", "ckpt.part"):
                    self._path(name, suffix).unlink(missing_ok=True)
        self._claim.prune()

    def _newest_round(self) -> int:
        return max((_order(name)[0] for name in self._names()), default=-1)


def _order(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(f"{name}.ckpt")
    assert match is not None, name
    return int(match[1]), int(match[2])


def _write(path: Path, payload: bytes) -> None:
    """All of the file or nothing, and durable on return."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk does not say where
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot sync a folder
            os.fsync(folder)
    finally:
        os.close(folder)
