"""The rules for names, labels and annotations, in the words of the real API server."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from disttrain.local.server.errors import Cause
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Json, encode

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    f" end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    f" an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    f" and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    f" '{_LABEL_1035}')"
)
_QUALIFIED_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    f" character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    f" '{_VALUE}')"
)
_NAME_RULES = {
    "services": (_LABEL_1035, 63, _LABEL_1035_WORDS),
    "namespaces": (LABEL, 63, LABEL_WORDS),
}
_FREE = {"customresourcedefinitions.apiextensions.k8s.io"}  # has a rule of its own


def bad(field: str, value: Any, words: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {encode(value).decode()}: {words}")


def check(resource: Resource, metadata: Json) -> list[Cause]:
    """The faults of a new object's metadata."""
    name = metadata.get("name")
    if not name:
        return [Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    if not isinstance(name, str):
        return [bad("metadata.name", name, "a name is a string")]
    pattern, longest, words = _NAME_RULES.get(resource.key, (_SUBDOMAIN, 253, _SUBDOMAIN_WORDS))
    causes = []
    if len(name) > longest:
        causes.append(bad("metadata.name", name, f"must be no more than {longest} characters"))
    if resource.key not in _FREE and not re.fullmatch(pattern, name):
        causes.append(bad("metadata.name", name, words))
    return causes + check_metadata(metadata)


@lru_cache(4096)
def _qualified(field: str, key: str) -> tuple[Cause, ...]:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (bad(field, key, f"a qualified name {_QUALIFIED_WORDS} {example}"),)
    causes = []
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        causes.append(bad(field, key, f"prefix part {_SUBDOMAIN_WORDS}"))
    if len(name) > 63:
        causes.append(bad(field, key, "name part must be no more than 63 characters"))
    if not re.fullmatch(_QUALIFIED, name):
        causes.append(bad(field, key, f"name part {_QUALIFIED_WORDS}"))
    return tuple(causes)


def check_metadata(metadata: Json) -> list[Cause]:
    """The faults of labels, annotations and owner references."""
    causes: list[Cause] = []
    for key, value in (metadata.get("labels") or {}).items():
        causes += _qualified("metadata.labels", key)
        if not isinstance(value, str):
            causes.append(bad("metadata.labels", value, "a label's value is a string"))
        elif len(value) > 63:
            causes.append(bad("metadata.labels", value, "must be no more than 63 characters"))
        elif not re.fullmatch(_VALUE, value):
            causes.append(bad("metadata.labels", value, _VALUE_WORDS))
    for key, value in (metadata.get("annotations") or {}).items():
        causes += _qualified("metadata.annotations", key.lower())
        if not isinstance(value, str):
            causes.append(bad("metadata.annotations", value, "an annotation's value is a string"))
    controllers = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    if len(controllers) > 1:
        words = "Only one reference can have Controller set to true."
        causes.append(bad("metadata.ownerReferences", "references", words))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                words = "must not be empty" if key != "apiVersion" else "version must not be empty"
                causes.append(bad(f"metadata.ownerReferences[{index}].{key}", owner.get(key) or "", words))
    return causes
