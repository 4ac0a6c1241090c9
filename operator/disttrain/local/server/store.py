"""The objects: in memory as encoded snapshots, in one SQLite file for the next start, and as events for watches.

Changes made in one turn of the event loop are one transaction: `flush` commits it, and whatever tells a client of a
change (an answer, a watch) calls it first. So a process that is killed loses nothing that anybody has seen. SQLite's
log is not synced at each commit (WAL, synchronous=NORMAL): a power cut may lose the last changes, never half of one.
Objects are kept as JSON bytes: a snapshot cannot be changed by accident, a GET sends
it as it is, and decoding one gives its reader a copy of its own.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from disttrain.local.server.errors import bad_request, expired, version_too_large
from disttrain.local.server.resources import Resource

Json = dict[str, Any]
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

LOG_LENGTH = 8192  # events kept a resource; an older watch is answered 410


@dataclass(frozen=True, slots=True)
class Record:
    """One version of one object, with what selectors and indexes need to see of it."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]
    owners: tuple[str, ...]

    def object(self) -> Json:
        """A fresh copy of the object."""
        decoded: Json = decode(self.raw)
        return decoded


def value_at(obj: Any, steps: tuple[str, ...]) -> Any:
    """The value at a path of plain keys, None where it ends early."""
    for key in steps:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def snapshot(resource: Resource, obj: Json, version: int) -> Record:
    """Encode an object under a resourceVersion."""
    metadata = obj["metadata"]
    metadata["resourceVersion"] = str(version)
    owners = tuple(str(owner.get("uid")) for owner in metadata.get("ownerReferences") or ())
    return Record(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        uid=metadata["uid"],
        version=version,
        raw=encode(obj),
        labels=metadata.get("labels") or {},
        fields={path: _text(value_at(obj, steps)) for path, steps in resource.field_steps},
        owners=owners,
    )


@dataclass(frozen=True, slots=True)
class Event:
    """A change: `before` is None for a new object, `gone` says that `record` is the last state of a deleted one."""

    version: int
    record: Record
    before: Record | None
    gone: bool = False


@dataclass
class _Shelf:
    """All objects of one resource."""

    spaces: dict[str, dict[str, Record]] = field(default_factory=dict)
    log: deque[Event] = field(default_factory=deque)
    forgotten: int = 0  # the version of the newest event that the log no longer has
    listeners: set[Callable[[Event], None]] = field(default_factory=set)


class Store:
    """All objects. Not safe for threads: it belongs to one event loop."""

    def __init__(self, file: Path, log_length: int = LOG_LENGTH) -> None:
        self._log_length = log_length
        self._shelves: dict[str, _Shelf] = {}
        self._uids: dict[str, tuple[str, Record]] = {}
        self._owned: dict[str, dict[str, None]] = {}  # owner's uid -> uids of what it owns
        self.after: list[Callable[[Resource, Event], None]] = []
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS objects"
            " (uid TEXT PRIMARY KEY, resource TEXT NOT NULL, version INTEGER NOT NULL, raw BLOB NOT NULL)"
        )
        # Deletions leave no row to read their version from; without this one a watch could resume across them unseen.
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS deletions (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER)"
        )
        stored, deleted = self._db.execute(
            "SELECT (SELECT max(version) FROM objects), (SELECT max(version) FROM deletions)"
        ).fetchone()
        self.version: int = max(stored or 1, deleted or 1)
        self._start = self.version

    @staticmethod
    def at_version(resource: Resource, record: Record | None, version: int) -> Record:
        """The same state under another version."""
        assert record is not None
        return snapshot(resource, record.object(), version)

    def close(self) -> None:
        self.flush()
        self._db.close()

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")

    @property
    def pending(self) -> bool:
        """Whether there are changes that are not committed yet."""
        return self._db.in_transaction

    def flush(self) -> None:
        """Commit all changes so far. Nothing about a change may leave the process before."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def load(self, resource: Resource) -> None:
        """Read a resource's objects from the file: once, when the type becomes known."""
        shelf = self._shelf(resource)
        for (raw,) in self._db.execute("SELECT raw FROM objects WHERE resource = ?", (resource.key,)):
            obj = decode(raw)
            record = snapshot(resource, obj, int(obj["metadata"]["resourceVersion"]))
            shelf.spaces.setdefault(record.namespace, {})[record.name] = record
            self._index(resource, record)

    def _shelf(self, resource: Resource) -> _Shelf:
        shelf = self._shelves.get(resource.key)
        if shelf is None:
            shelf = self._shelves[resource.key] = _Shelf(forgotten=self._start)
        return shelf

    # Reading

    def get(self, resource: Resource, namespace: str, name: str) -> Record | None:
        return self._shelf(resource).spaces.get(namespace, {}).get(name)

    def by_uid(self, uid: str) -> tuple[str, Record] | None:
        """The resource's key and the record of an object that exists."""
        return self._uids.get(uid)

    def owned_by(self, uid: str) -> list[tuple[str, Record]]:
        return [self._uids[owned] for owned in self._owned.get(uid, ())]

    def all(
        self, resource: Resource, namespace: str | None = None, after: tuple[str, str] | None = None, name: str = ""
    ) -> list[Record]:
        """Records in the order of namespace and name: of a namespace, of a name, past a key, or all."""
        if name and namespace is not None and after is None:
            found = self.get(resource, namespace, name)
            return [found] if found is not None else []
        spaces = self._shelf(resource).spaces
        chosen = sorted(spaces) if namespace is None else [namespace]
        records = [spaces[space][name] for space in chosen if space in spaces for name in sorted(spaces[space])]
        if after is None:
            return records
        return records[bisect_right(records, after, key=lambda record: (record.namespace, record.name)) :]

    def count(self, resource: Resource) -> int:
        return sum(len(space) for space in self._shelf(resource).spaces.values())

    def forgotten(self, resource: Resource) -> int:
        """The version from which on a watch is complete."""
        return self._shelf(resource).forgotten

    def check_version(self, resource: Resource, version: str, match: str) -> None:
        """Whether a LIST may be answered from the present, given the version that it asks for."""
        if not version or version == "0":
            return
        if not version.isdecimal():
            raise bad_request(
                f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
            )
        if int(version) > self.version:
            raise version_too_large(int(version), self.version)
        newest = self._shelf(resource).log[-1].version if self._shelf(resource).log else self.forgotten(resource)
        if match == "Exact" and int(version) < newest:
            raise expired(f"The provided resource version is too old: only the present is kept, {version} was asked")

    def since(self, resource: Resource, version: int) -> Iterator[Event]:
        """The events after a version; raises 410 when the log no longer reaches it."""
        shelf = self._shelf(resource)
        if version < shelf.forgotten:
            raise expired(f"too old resource version: {version} ({shelf.forgotten})")
        if version > self.version:
            raise version_too_large(version, self.version)
        start = bisect_right(shelf.log, version, key=lambda event: event.version)
        return iter(list(shelf.log)[start:])

    # Writing

    def put(self, resource: Resource, obj: Json) -> Record:
        """Create or replace an object under a new version. The caller has checked that it may."""
        record = snapshot(resource, obj, self.version + 1)
        self._begin()
        self._db.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?)"
            " ON CONFLICT (uid) DO UPDATE SET version = excluded.version, raw = excluded.raw",
            (record.uid, resource.key, record.version, record.raw),
        )
        space = self._shelf(resource).spaces.setdefault(record.namespace, {})
        before = space.get(record.name)
        if before is not None:
            self._unindex(before)
        space[record.name] = record
        self._index(resource, record)
        self._tell(resource, Event(record.version, record, before))
        return record

    def preview(self, resource: Resource, obj: Json, version: int) -> Record:
        """What `put` would store, for a dry run: nothing changes. Version 0: the object is new and has none."""
        record = snapshot(resource, obj, version)
        if not version:
            del obj["metadata"]["resourceVersion"]
            record = replace(record, raw=encode(obj))
        return record

    def delete(self, resource: Resource, record: Record) -> Record:
        """Remove an object. Returns its last state under the version of the deletion."""
        last = snapshot(resource, record.object(), self.version + 1)
        self._begin()
        self._db.execute("DELETE FROM objects WHERE uid = ?", (record.uid,))
        self._db.execute("INSERT OR REPLACE INTO deletions VALUES (1, ?)", (last.version,))
        spaces = self._shelf(resource).spaces
        del spaces[record.namespace][record.name]
        if not spaces[record.namespace]:
            del spaces[record.namespace]
        self._unindex(record)
        self._tell(resource, Event(last.version, last, record, gone=True))
        return last

    def _index(self, resource: Resource, record: Record) -> None:
        self._uids[record.uid] = resource.key, record
        for owner in record.owners:
            self._owned.setdefault(owner, {})[record.uid] = None

    def _unindex(self, record: Record) -> None:
        del self._uids[record.uid]
        for owner in record.owners:
            owned = self._owned.get(owner)
            if owned is not None:
                owned.pop(record.uid, None)
                if not owned:
                    del self._owned[owner]

    def _tell(self, resource: Resource, event: Event) -> None:
        self.version = event.version
        shelf = self._shelf(resource)
        shelf.log.append(event)
        if len(shelf.log) > self._log_length:
            shelf.forgotten = shelf.log.popleft().version
        for listener in list(shelf.listeners):
            listener(event)
        for hook in self.after:
            hook(resource, event)

    # Watching

    def listen(self, resource: Resource, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` on every change of a resource; returns what ends it."""
        listeners = self._shelf(resource).listeners
        listeners.add(listener)
        return lambda: listeners.discard(listener)
