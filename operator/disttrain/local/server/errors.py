"""Errors of the API, each a Kubernetes `Status` (meta/v1) in the words that the real API server uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from disttrain.local.server.resources import Resource
    from disttrain.local.server.store import Record

CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


class Cause(NamedTuple):
    """One fault of an object: where it is, a `FieldValue...` reason and the words after the path."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """An answer that is not a success: HTTP code, machine-readable reason and words for people."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def status(self) -> dict[str, Any]:
        """The `Status` object that the client gets."""
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        status |= {"reason": self.reason} if self.reason else {}
        status |= {"details": self.details} if self.details else {}
        return status | {"code": self.code}


def _about(resource: Resource, name: str) -> dict[str, Any]:
    about = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in about.items() if value}


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.key} "{name}" not found', _about(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, record: Record) -> ApiError:
    leaving = "object is being deleted: " if b'"deletionTimestamp"' in record.raw else ""
    message = f'{leaving}{resource.key} "{record.name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(resource, record.name))


def conflict(resource: Resource, name: str, why: str = CHANGED) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.key} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(resource, name))


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    details = _about(resource, name) | ({"causes": list(causes)} if causes else {})
    return ApiError(403, "Forbidden", f'{resource.key} "{name}" is forbidden: {why}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unsupported_media(given: str, served: Sequence[str]) -> ApiError:
    accepted = f"accepted media types include: {', '.join(served)}"
    if "protobuf" in given or "apply-patch" in given:
        what = "protobuf" if "protobuf" in given else "server-side apply"
        message = f"the one-machine cluster does not take {what} ({given}) - {accepted}"
    else:
        message = f"the body of the request was in an unknown format - {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def not_served(what: str) -> ApiError:
    """A part of Kubernetes that the one-machine cluster leaves out."""
    return ApiError(501, "NotImplemented", f"the one-machine cluster does not serve {what}")


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def version_too_large(asked: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def undecodable(resource: Resource, obj: Mapping[str, Any], why: str, *, patched: bool) -> ApiError:
    """An object that cannot be decoded: said of the object when it was sent whole, of the patch when it was patched."""
    if patched:
        given = msgspec.json.encode(msgspec.json.encode(obj).decode()).decode()
        return invalid("", "", "", [Cause("patch", "FieldValueInvalid", f"Invalid value: {given}: {why}")])
    what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    return bad_request(f"{what}: {why}")


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with every cause, each named by its field's path."""
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    dotted = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind} if group else {"name": name, "kind": kind}
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    message = f'{dotted} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, {key: v for key, v in details.items() if v} | {"causes": listed})
