"""Failures on demand, for the tests of clients: what a real API server does only on a bad day.

A rule matches requests by verb, resource and name, and acts on the next `count` of them. Actions:

- `error`: answer `code` with `message` (and `retry_after` seconds), without doing the call
- `delay`: wait `seconds`, then go on
- `close_before`: close the connection without doing the call
- `close_after`: do the call, then close the connection without an answer
- `drop_watch`: end the matching watches at once, as a connection lost
- `freeze_watch`: matching watches, open and new, send nothing more, not even bookmarks, and stay open
- `error_watch`: send an ERROR event of `code` in the matching watches, and end them

A rule about watches acts on the open ones first, then on those that come, until `count` is used up; with `now` on all
open ones, whatever their number, and on none that comes.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

Action = Literal["error", "delay", "close_before", "close_after", "drop_watch", "freeze_watch", "error_watch"]
REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
    422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class Rule(msgspec.Struct, kw_only=True):
    """What to do to which requests. Patterns are regular expressions that must match the whole; "" matches all."""

    action: Action
    verb: str = ""
    resource: str = ""  # the plural, with a subresource `pods/status`
    namespace: str = ""
    name: str = ""
    count: int = 1  # how many requests it still acts on; -1: all
    code: int = 500
    message: str = "injected fault"
    reason: str = ""
    retry_after: int = 0
    seconds: float = 0.0
    now: bool = False  # watches only: the open ones
    hits: int = 0

    def matches(self, verb: str, resource: str, namespace: str, name: str) -> bool:
        wanted = ((self.verb, verb), (self.resource, resource), (self.namespace, namespace), (self.name, name))
        return self.count != 0 and all(not pattern or re.fullmatch(pattern, given) for pattern, given in wanted)

    def use(self) -> None:
        self.hits += 1
        self.count -= self.count > 0

    def status(self) -> dict[str, Any]:
        """The `Status` of its error."""
        reason = self.reason or REASONS.get(self.code, "")
        details: dict[str, Any] = {"retryAfterSeconds": self.retry_after} if self.retry_after else {}
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "details": details, "code": self.code,
        }  # fmt: skip


class Entry(msgspec.Struct):
    """One request as it was answered; status 0: no answer was given."""

    time: float
    verb: str
    path: str
    status: int


class OpenWatch(Protocol):
    """What a fault may do to a watch that is under way."""

    verb: str
    target: tuple[str, str, str]  # resource, namespace, name

    def drop(self) -> None: ...
    def freeze(self) -> None: ...
    def fail(self, status: dict[str, Any]) -> None: ...


class Faults:
    """The rules in force, the watches under way and the journal of requests."""

    def __init__(self, journal_length: int = 10_000) -> None:
        self.rules: list[Rule] = []
        self.journal: deque[Entry] = deque(maxlen=journal_length)
        self.watches: set[OpenWatch] = set()

    def add(self, rule: Rule) -> Rule:
        """Put a rule in force; one about watches acts on the open ones at once."""
        if rule.now:
            rule.count = -1
        self.rules.append(rule)
        if rule.action.endswith("_watch"):
            for watch in list(self.watches):
                self.apply_to_watch(watch, [rule])
        if rule.now:
            rule.count = 0
        return rule

    def clear(self) -> None:
        self.rules.clear()

    def note(self, verb: str, path: str, status: int) -> None:
        self.journal.append(Entry(time.time(), verb, path, status))

    def find(self, verb: str, resource: str, namespace: str, name: str) -> Rule | None:
        """The first rule for a request, counted as used. Rules about watches are not among these."""
        for rule in self.rules:
            if not rule.action.endswith("_watch") and rule.matches(verb, resource, namespace, name):
                rule.use()
                return rule
        return None

    def apply_to_watch(self, watch: OpenWatch, rules: list[Rule] | None = None) -> None:
        resource, namespace, name = watch.target
        acts: dict[str, Callable[[Rule], None]] = {
            "drop_watch": lambda _: watch.drop(),
            "freeze_watch": lambda _: watch.freeze(),
            "error_watch": lambda rule: watch.fail(rule.status()),
        }
        for rule in self.rules if rules is None else rules:
            if rule.action in acts and rule.matches("watch", resource, namespace, name):
                rule.use()
                acts[rule.action](rule)
