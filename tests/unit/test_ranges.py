"""Indexes as text and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from disttrain.api import ranges


def test_example() -> None:
    assert ranges.pack([313, *range(312)]) == "0-311,313"
    assert ranges.unpack("0-2,5") == {0, 1, 2, 5}
    assert ranges.pack([]) == ""


@given(st.sets(st.integers(0, 500)))
def test_round_trip(indexes: set[int]) -> None:
    assert ranges.unpack(ranges.pack(indexes)) == indexes
