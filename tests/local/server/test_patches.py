"""Merge, JSON and strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from disttrain.local.server import strategic
from disttrain.local.server.errors import ApiError
from disttrain.local.server.patches import json_patch, merge


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [  # most of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge(target: Any, patch: Any, expected: Any) -> None:
    assert merge(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": {"x/y": 1, "m~n": 2}}, [{"op": "test", "path": "/a/x~1y", "value": 1}], {"a": {"x/y": 1, "m~n": 2}}),
        ({"a": {"m~n": 2}}, [{"op": "move", "from": "/a/m~0n", "path": "/b"}], {"a": {}, "b": 2}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [{"op": "add", "path": "", "value": {"z": 1}}], {"z": 1}),
    ],
)
def test_json_patch(target: Any, operations: Any, expected: Any) -> None:
    before = str(target)
    assert json_patch(target, operations) == expected
    assert str(target) == before  # the target itself is not changed


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/a", "value": 2}, 422),
        ({"op": "test", "path": "/b", "value": 2}, 422),
        ({"op": "remove", "path": "/b"}, 422),
        ({"op": "replace", "path": "/b", "value": 1}, 422),
        ({"op": "add", "path": "/a/b", "value": 1}, 422),
        ({"op": "add", "path": "/l/5", "value": 1}, 422),
        ({"op": "remove", "path": ""}, 422),
        ({"op": "jump", "path": "/a"}, 422),
        ({"op": "add", "path": "/b"}, 400),
        ({"op": "add", "path": "b", "value": 1}, 400),
        ({"path": "/a"}, 400),
    ],
)
def test_json_patch_refuses(operation: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"a": 1, "l": [1]}, [operation])
    assert caught.value.code == code


def _pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param(
            _pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
            _pod(containers=[{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]),
            _pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]),
            id="by name",
        ),
        pytest.param(
            _pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}]),
            _pod(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}]}]),
            _pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]),
            id="at depth",
        ),
        pytest.param(
            _pod(containers=[{"name": "a"}, {"name": "b"}]),
            _pod(containers=[{"name": "a", "$patch": "delete"}]),
            _pod(containers=[{"name": "b"}]),
            id="delete an item",
        ),
        pytest.param(
            _pod(containers=[{"name": "a"}]),
            _pod(containers=[{"name": "z"}, {"$patch": "replace"}]),
            _pod(containers=[{"name": "z"}]),
            id="replace the list",
        ),
        pytest.param(
            _pod(containers=[{"name": "a", "command": ["x", "y"]}]),
            _pod(containers=[{"name": "a", "command": ["z"]}]),
            _pod(containers=[{"name": "a", "command": ["z"]}]),
            id="a list without a key is replaced",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
            id="plain values",
        ),
        pytest.param(
            _pod(volumes=[{"name": "v", "emptyDir": {}}]),
            _pod(volumes=[{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]),
            _pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
            id="only the keys named stay",
        ),
        pytest.param(
            _pod(containers=[{"name": "a"}, {"name": "b"}]),
            _pod(**{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                    "containers": [{"name": "a", "image": "1"}]}),
            _pod(containers=[{"name": "b"}, {"name": "a", "image": "1"}]),
            id="order",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"labels": {"a": None}}},
            {"metadata": {"labels": {}}},
            id="null",
        ),
    ],
)  # fmt: skip
def test_strategic_merge(target: Any, patch: Any, expected: Any) -> None:
    before = str(target)
    assert strategic.merge("Pod", target, patch) == expected
    assert str(target) == before


def test_a_strategic_list_item_needs_its_key() -> None:
    with pytest.raises(ApiError, match="merge key: name"):
        strategic.merge("Pod", _pod(containers=[]), _pod(containers=[{"image": "x"}]))
