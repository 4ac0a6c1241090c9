"""The schema that follows from types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from disttrain.api import schema
from disttrain.api.types import Base, PodTemplate, Spec, Status, doc, later


class Inner(Base):
    """An inner
    type."""

    size: Annotated[int, doc("Its size.", ge=1, le=9)] = 2


class Outer(Base, kw_only=True):
    """An outer type."""

    name: Annotated[str, doc("A name.", min_length=1, max_length=9, pattern="^a")]
    hinted: Annotated[str, doc("Plain words.", pattern="^b", max_length=5, extra={"hint": "a b first"})] = "b"
    word: Annotated[Literal["B", "A"], doc("A word.")] = "A"
    flag: Annotated[bool, later("A flag.", "do without")] = False
    ratio: Annotated[float | None, doc("A ratio.")] = None
    count: Annotated[int | Literal["auto"], doc("A count.")] = "auto"
    bounded: Annotated[Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=3)] | None, doc("Numbers.")] = None
    keyed: Annotated[list[Inner], doc("Things.", extra={"map_keys": ["size"]})] = field(default_factory=list)
    anything: Annotated[Annotated[dict[str, Any], Meta(min_length=1)] | None, doc("Anything.")] = None
    labels: Annotated[dict[str, str], doc("Labels.")] = field(default_factory=dict)
    inner: Annotated[Inner, doc("Another.")] = field(default_factory=Inner)
    plain: Inner | None = None
    restarts: Annotated[int, doc("Restarts.", extra={"filled": True})] = 0


INNER = {
    "type": "object",
    "description": "An inner type.",
    "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Its size.", "default": 2}},
}


def test_every_kind_of_field() -> None:
    assert schema.structural(Outer) == {
        "type": "object",
        "description": "An outer type.",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "description": "A name."},
            "hinted": {"type": "string", "maxLength": 5, "description": "Plain words.", "default": "b"},
            "word": {"type": "string", "enum": ["A", "B"], "description": "A word.", "default": "A"},
            "flag": {"type": "boolean", "description": "A flag.", "default": False},
            "ratio": {"type": "number", "description": "A ratio."},
            "count": {
                "x-kubernetes-int-or-string": True,
                "maxLength": 16,
                "description": "A count.",
                "default": "auto",
            },
            "bounded": {
                "type": "array",
                "maxItems": 3,
                "items": {"type": "integer", "minimum": 0},
                "x-kubernetes-list-type": "atomic",
                "description": "Numbers.",
            },
            "keyed": {
                "type": "array",
                "items": INNER,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["size"],
                "description": "Things.",
                "default": [],
            },
            "anything": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "minProperties": 1,
                "description": "Anything.",
            },
            "labels": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Labels.",
                "default": {},
            },
            "inner": INNER | {"description": "Another.", "default": {}},
            "plain": INNER,
            "restarts": {"type": "integer", "description": "Restarts.", "default": 0},
        },
    }


def test_a_status_gets_only_the_defaults_that_are_asked_for() -> None:
    properties = schema.structural(Outer, defaults=False)["properties"]
    assert {name for name, found in properties.items() if "default" in found} == {"restarts"}
    assert "default" not in properties["inner"]["properties"]["size"]


def test_a_type_without_schema_is_an_error() -> None:
    class Odd(Struct):
        """Odd."""

        when: bytes = b""

    with pytest.raises(TypeError, match="no schema for"):
        schema.structural(Odd)


def test_a_pod_template_is_typed_as_far_as_rules_see() -> None:
    class Holder(Base):
        """Holder."""

        template: Annotated[PodTemplate | None, doc("The pods.")] = None

    template = schema.structural(Holder)["properties"]["template"]
    assert template["description"] == "The pods."
    spec = template["properties"]["spec"]
    assert template["required"] == ["spec"]
    assert set(spec["properties"]) == {"containers", "initContainers", "restartPolicy"}
    assert spec["x-kubernetes-preserve-unknown-fields"]
    containers, init = spec["properties"]["containers"], spec["properties"]["initContainers"]
    assert containers == init | {"minItems": 1, "description": containers["description"]}
    assert containers["items"]["properties"]["env"] is not init["items"]["properties"]["env"], "rules go into each"
    assert containers["maxItems"] == schema.MAX_CONTAINERS
    assert containers["items"]["properties"]["env"]["maxItems"] == schema.MAX_ENV


@pytest.mark.parametrize("root", [Spec, Status])
def test_every_field_is_described(root: type[Struct]) -> None:
    def silent(path: str, cls: type[Struct]) -> list[str]:
        found = [f"{path}.{item.name}" for item in schema.fields(cls) if not item.description.endswith((".", ")"))]
        for item in schema.fields(cls):
            if item.struct is not None:
                found += silent(f"{path}.{item.name}", item.struct)
        return found

    assert silent(root.__name__.lower(), root) == []
