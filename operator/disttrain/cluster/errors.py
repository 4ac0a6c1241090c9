"""What can go wrong with a call to the API server, as exceptions.

ApiError                        the call did not succeed
├── NoAnswer                    connection lost or timed out: whether the call took effect is not known
└── Refused                     the API server answered with an error; `code`, `reason` and `message` are its own
    ├── Invalid                 400, 422: final until what was sent changes
    ├── Unauthorized            401: the credentials do not hold (any more)
    ├── Forbidden               403: rights, quota, admission: what others can repair
    ├── NotFound                404
    ├── Conflict                409: resourceVersion or uid is not the one expected
    │   └── AlreadyExists       409: the name is taken
    ├── Gone                    410: a resourceVersion or a page of a list is too old
    ├── TooManyRequests         429, and 503 with a Retry-After
    └── ServerError             any other answer; of a 5xx, too, it is not known whether the call took effect
"""

from __future__ import annotations

import msgspec

from ..api.types import Base


class ApiError(Exception):
    """The call did not succeed."""


class NoAnswer(ApiError):
    """The connection was lost or timed out: whether the call took effect is not known."""


class Refused(ApiError):
    """The API server answered with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class Invalid(Refused):
    """400 or 422."""


class Unauthorized(Refused):
    """401."""


class Forbidden(Refused):
    """403."""


class NotFound(Refused):
    """404."""


class Conflict(Refused):
    """409: resourceVersion or uid is not the one expected."""


class AlreadyExists(Conflict):
    """409: the name is taken."""


class Gone(Refused):
    """410."""


class TooManyRequests(Refused):
    """429, or 503 with a Retry-After."""


class ServerError(Refused):
    """Any other answer."""


KINDS: dict[int, type[Refused]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class WireStatus(Base):
    """A `Status` object, as far as it is read."""

    code: int = 0
    reason: str = ""
    message: str = ""


_decode = msgspec.json.Decoder(WireStatus).decode


def refused(code: int, body: bytes) -> Refused:
    """The error for an answer: `body` is a Status object, or anything that a proxy may have sent."""
    try:
        status = _decode(body)
    except msgspec.MsgspecError:
        status = WireStatus(message=body[:512].decode(errors="replace").strip())
    return from_status(code, status)


def from_status(code: int, status: WireStatus) -> Refused:
    """The error for a Status object."""
    kind = KINDS.get(code, ServerError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(code, status.reason, status.message or "no further words")
