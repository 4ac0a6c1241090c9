"""Strategic merge patch: a merge patch that merges lists by a key instead of replacing them."""

from __future__ import annotations

from typing import Any

from disttrain.local.server import builtin_schema
from disttrain.local.server.builtin_schema import Field
from disttrain.local.server.errors import bad_request

_DIRECTIVES = ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch")


def merge(kind: str, target: Any, patch: Any) -> Any:
    """The target with the patch applied, by the merge keys of the built-in type `kind`; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if isinstance(patch.get("$retainKeys"), list):
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    known = builtin_schema.fields(kind) or {}
    for directive, removed in patch.items():
        if directive.startswith("$deleteFromPrimitiveList/") and isinstance(removed, list):
            key = directive.partition("/")[2]
            merged[key] = [item for item in merged.get(key) or [] if item not in removed]
    for key, value in patch.items():
        if key.startswith(_DIRECTIVES):
            continue
        field = known.get(key)
        order = patch.get(f"$setElementOrder/{key}")
        if value is None:
            merged.pop(key, None)
        elif field is not None and field.merge_key is not None and isinstance(value, list):
            merged[key] = _merge_list(field, merged.get(key) or [], value, order)
        else:
            merged[key] = merge(field.of if field is not None and field.shape == "one" else "", merged.get(key), value)
    for directive, order in patch.items():
        key = directive.partition("/")[2]
        if directive.startswith("$setElementOrder/") and key not in patch and isinstance(merged.get(key), list):
            merged[key] = _ordered(known.get(key), merged[key], order)
    return merged


def _merge_list(field: Field, target: list[Any], patch: list[Any], order: Any) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    if not field.merge_key:
        merged = [*target, *(item for item in patch if item not in target)]
        return _ordered(field, merged, order)
    merged = list(target)
    for item in patch:
        key = item.get(field.merge_key) if isinstance(item, dict) else None
        if key is None:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {field.merge_key}")
        place = next((index for index, old in enumerate(merged) if old.get(field.merge_key) == key), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(field.merge_key) != key]
        elif place is None:
            merged.append(merge(field.of, {}, item))
        else:
            merged[place] = merge(field.of, merged[place], item)
    return _ordered(field, merged, order)


def _ordered(field: Field | None, items: list[Any], order: Any) -> list[Any]:
    """Items in the order that the patch names; what it does not name keeps its place before the one it preceded."""
    if not isinstance(order, list) or field is None or field.merge_key is None:
        return items
    key = field.merge_key
    named = [entry.get(key) if key and isinstance(entry, dict) else entry for entry in order]
    found = [(item.get(key) if key and isinstance(item, dict) else item, item) for item in items]
    wanted = sorted((pair for pair in found if pair[0] in named), key=lambda pair: named.index(pair[0]))
    supply = iter(wanted)
    return [next(supply)[1] if identity in named else item for identity, item in found]
