"""Reading a training's progress, whatever it printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain.api import progress
from disttrain.api.types import Checkpoint, Progress


def test_last_marked_line_wins() -> None:
    text = 'x\nDISTTRAIN_PROGRESS {"step": 1}\nnoise\nDISTTRAIN_PROGRESS {"step": 2, "of": 4}\ntail'
    assert progress.parse(text) == {"step": 2, "of": 4}


@pytest.mark.parametrize("prefix", ["", "[0]<stdout>:", "[1,0]<stdout>:", "[1,0]<stderr>: "])
def test_launchers_may_say_whose_line_it_is(prefix: str) -> None:
    assert progress.parse(f'{prefix}DISTTRAIN_PROGRESS {{"step": 3}}') == {"step": 3}


@pytest.mark.parametrize("prefix", [" ", "x", "0:", "[a]<stdout>:", "[0]"])
def test_other_prefixes_are_not_ours(prefix: str) -> None:
    assert progress.parse(f'{prefix}DISTTRAIN_PROGRESS {{"step": 3}}') is None


def test_a_torn_line_is_passed_over() -> None:
    assert progress.parse('DISTTRAIN_PROGRESS {"step": 1}\nDISTTRAIN_PROGRESS {"step": 2') == {"step": 1}


def test_typed() -> None:
    found = {
        "rank": 0,
        "worldSize": 3,
        "epoch": 2,
        "epochs": 5,
        "step": 10,
        "of": 40,
        "loss": 0.5,
        "accuracy": 1,
        "samplesPerSecond": 100.5,
        "checkpoint": {"step": 8, "round": 1},
        "time": 5.0,
        "final": False,
        "more": "x",
    }
    assert progress.progress_of(found) == Progress(
        world_size=3,
        epoch=2,
        epochs=5,
        step=10,
        of=40,
        loss=0.5,
        accuracy=1.0,
        samples_per_second=100.5,
        checkpoint=Checkpoint(step=8, round=1),
        time=5.0,
    )


@pytest.mark.parametrize(
    "wrong",
    [{"step": "x"}, {"step": -1}, {"step": True}, {"step": 1e300}, {"loss": "nan"}, {"checkpoint": 3}, {"of": []}],
)
def test_wrong_types_read_as_absent(wrong: dict[str, Any]) -> None:
    assert progress.progress_of(wrong) == Progress()


HUGE = "1" + "0" * 400


def test_numbers_that_no_float_or_api_server_holds_read_as_absent() -> None:
    found = progress.parse(f'{{"step": {HUGE}, "loss": {HUGE}, "result": {{"a": {HUGE}, "b": {2**63}, "c": 1}}}}')
    assert found is not None
    assert progress.progress_of(found) == Progress()
    assert progress.result(found) == {"c": 1}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Progress(epoch=3, epochs=5, step=30, of=50), "epoch 3/5, 60%"),
        (Progress(step=7), "step 7"),
        (Progress(epoch=1, step=70, of=50), "epoch 1, 100%"),
        (Progress(), ""),
    ],
)
def test_summary(told: Progress, words: str) -> None:
    assert progress.summary(told) == words


def test_result_is_bounded() -> None:
    assert progress.result({"accuracy": 0.9, "result": {"big": "x" * 5000}}) == {"accuracy": 0.9}
    assert progress.result({"result": {"sha": "ab", "list": [1]}}) == {"sha": "ab"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("step", "loss", "accuracy", "samplesPerSecond", "time", "checkpoint", "result")


@given(st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1))
def test_never_raises_whatever_a_field_holds(told: dict[str, Any]) -> None:
    found = progress.parse("DISTTRAIN_PROGRESS " + json.dumps(told))
    if found is not None:
        progress.progress_of(found)
        progress.result(found)


@given(st.text())
def test_never_raises_whatever_a_line_holds(text: str) -> None:
    for candidate in (text, "DISTTRAIN_PROGRESS " + text, "{" + text):
        found = progress.parse(candidate)
        if found is not None:
            progress.progress_of(found)
            progress.result(found)
