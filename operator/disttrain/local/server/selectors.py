"""Label and field selectors, in the grammar of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable

from disttrain.local.server.errors import bad_request
from disttrain.local.server.resources import Resource
from disttrain.local.server.store import Record

Test = Callable[[Record], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s=!,()]+)\s+(?P<op>in|notin)\s*\(\s*(?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s=!,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=!,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<absent>!?)\s*(?P<key>[^\s=!,()]+)\s*$")
_COMMA = re.compile(r",(?![^()]*\))")  # not within the parentheses of a set


def always(_: Record) -> bool:
    return True


def _label_term(term: str, whole: str) -> Test:
    if found := _SET.match(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda record: record.labels.get(key) in values
        return lambda record: record.labels.get(key) not in values
    if found := _EQUAL.match(term):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda record: record.labels.get(key) != value
        return lambda record: record.labels.get(key) == value
    if found := _EXISTS.match(term):
        key, wanted = found["key"], not found["absent"]
        return lambda record: (key in record.labels) is wanted
    raise bad_request(f"unable to parse requirement: {term.strip()!r} in the label selector {whole!r}")


def labels(selector: str) -> Test:
    """A test for `a=b,c!=d,e in (f,g),h notin (i),j,!k`; raises 400 on anything else."""
    if not selector.strip():
        return always
    tests = [_label_term(term, selector) for term in _COMMA.split(selector)]
    return lambda record: all(test(record) for test in tests)


def _field_term(term: str, resource: Resource, whole: str) -> Test:
    found = re.match(r"^(?P<key>[^=!]+?)(?P<op>==|=|!=)(?P<value>.*)$", term.strip())
    if found is None:
        raise bad_request(f"invalid selector: {whole!r}; can't understand {term!r}")
    key, value, equal = found["key"], found["value"], found["op"] != "!="
    if key == "metadata.name":
        return lambda record: (record.name == value) is equal
    if key == "metadata.namespace" and resource.namespaced:
        return lambda record: (record.namespace == value) is equal
    if key in resource.fields:
        return lambda record: (record.fields.get(key, "") == value) is equal
    raise bad_request(f"field label not supported: {key}")


def fields(selector: str, resource: Resource) -> Test:
    """A test for `metadata.name=x,status.phase!=Running`; raises 400 for a field that the type does not offer."""
    if not selector:
        return always
    tests = [_field_term(term, resource, selector) for term in selector.split(",") if term]
    return lambda record: all(test(record) for test in tests)


def selector(resource: Resource, label_selector: str, field_selector: str) -> Test:
    """Both selectors of a request as one test."""
    by_label, by_field = labels(label_selector), fields(field_selector, resource)
    if by_label is always:
        return by_field
    if by_field is always:
        return by_label
    return lambda record: by_label(record) and by_field(record)
