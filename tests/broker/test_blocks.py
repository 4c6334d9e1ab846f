"""When messages expire: in memory that goes by batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.broker.blocks import Blocks
from tinymq.broker.window import ColdPiece

#: Whether a batch follows on the one before, and when its messages expire.
BATCHES = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 50), min_size=1, max_size=5)), max_size=30
)


@given(batches=BATCHES, times=st.lists(st.integers(0, 60), max_size=20), floor=st.integers(0, 40))
def test_each_in_its_time(
    batches: list[tuple[bool, list[int]]], times: list[int], floor: int
) -> None:
    """Every message is told when it expires, and none before."""
    lives: dict[int, list[tuple[int, int]]] = {}
    blocks = Blocks(lambda base, end: sorted(lives[base]))
    offset = 0
    for follows, dues in batches:
        offset += not follows
        lives[offset] = [(due, offset + at) for at, due in enumerate(dues)]
        blocks.put(min(dues), offset, offset + len(dues))
        offset += len(dues)
    blocks.prune(floor)
    every = {each for rows in lives.values() for each in rows}
    told: set[int] = set()
    for now in sorted(times):
        while (over := blocks.expire(now)) is not None:
            told |= {each for run in over for each in range(*run)}
        due = {each for time, each in every if time <= now}
        assert told <= due
        assert {each for each in due if each >= floor} <= told
        left = [time for time, each in every if each >= floor and time > now]
        assert not left or (blocks.next_due or 0) <= min(left)


def test_what_cannot_be_read_now() -> None:
    """Nothing is taken out then, and all comes when it can be read."""
    cold = [True]

    def read(base: int, end: int) -> list[tuple[int, int]]:
        if cold[0]:
            raise ColdPiece(base)
        return [(5, each) for each in range(base, end)]

    blocks = Blocks(read)
    blocks.put(5, 0, 1)
    blocks.put(5, 1, 4)
    with pytest.raises(ColdPiece):
        blocks.expire(9)
    cold[0] = False
    found = blocks.expire(9)

    assert found is not None
    assert list(found) == [(0, 4)]
    assert blocks.expire(9) is None
    assert (len(blocks), blocks.next_due) == (0, None)
