"""Where new partitions go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.errors import StateError
from tinymq.meta.placement import place


@given(
    st.integers(0, 60),
    st.dictionaries(st.integers(0, 9), st.integers(0, 20), min_size=1, max_size=6),
)
def test_load_evens_out(count: int, load: dict[int, int]) -> None:
    """No broker that got a partition ends more than one above the least loaded."""
    leaders = place(count, load)
    after = {broker: led + leaders.count(broker) for broker, led in load.items()}
    assert len(leaders) == count
    assert all(after[broker] <= min(after.values()) + 1 for broker in set(leaders))
    assert leaders == place(count, load)


def test_nobody_there() -> None:
    """Without brokers there is no place."""
    with pytest.raises(StateError):
        place(1, {})
