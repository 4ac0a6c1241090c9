"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from __future__ import annotations

import copy
from typing import Any

from disttrain.local.server.errors import ApiError, bad_request


def merge(target: Any, patch: Any) -> Any:
    """The target with the patch applied; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _refused(message: str) -> ApiError:
    # The real server answers 422 for an operation that does not fit the object, also for a failed test.
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")


def _parts(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request(f"a JSON pointer begins with '/': {pointer!r} was given")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _index(part: str, length: int, pointer: str) -> int:
    if part == "-":
        return length
    if not part.isdecimal() or int(part) > length:
        raise _refused(f"{pointer}: no index {part!r} in a list of {length}")
    return int(part)


def _step(value: Any, part: str, pointer: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list):
        index = _index(part, len(value), pointer)
        if index < len(value):
            return value[index]
    raise _refused(f"{pointer}: there is no {part!r}")


def _get(document: Any, pointer: Any) -> Any:
    for part in _parts(pointer):
        document = _step(document, part, pointer)
    return document


def _add(document: Any, pointer: str, value: Any, *, replace: bool = False) -> Any:
    parts = _parts(pointer)
    if not parts:
        return value
    parent = document
    for part in parts[:-1]:
        parent = _step(parent, part, pointer)
    last = parts[-1]
    if replace:
        _step(parent, last, pointer)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        index = _index(last, len(parent), pointer)
        if replace:
            parent[index] = value
        else:
            parent.insert(index, value)
    else:
        raise _refused(f"{pointer}: its parent is neither an object nor a list")
    return document


def _remove(document: Any, pointer: str) -> None:
    parts = _parts(pointer)
    if not parts:
        raise _refused("the whole document cannot be removed")
    parent = document
    for part in parts[:-1]:
        parent = _step(parent, part, pointer)
    _step(parent, parts[-1], pointer)
    if isinstance(parent, dict):
        del parent[parts[-1]]
    else:
        del parent[int(parts[-1])]


def json_patch(document: Any, operations: Any) -> Any:
    """A copy of the document with all operations applied; raises 422 when one does not fit or a `test` fails."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    document = copy.deepcopy(document)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request(f"an operation of a JSON patch has an op and a path: {operation!r} was given")
        op, path = operation["op"], operation["path"]
        if op in ("add", "replace", "test") and "value" not in operation:
            raise bad_request(f"{op} {path} has no value")
        if op == "add":
            document = _add(document, path, operation["value"])
        elif op == "replace":
            document = _add(document, path, operation["value"], replace=True)
        elif op == "remove":
            _remove(document, path)
        elif op == "test":
            if _get(document, path) != operation["value"]:
                raise _refused(f"testing value {path} failed")
        elif op in ("move", "copy"):
            value = copy.deepcopy(_get(document, operation.get("from")))
            if op == "move":
                _remove(document, operation["from"])
            document = _add(document, path, value)
        else:
            raise _refused(f"there is no operation {op!r}")
    return document
