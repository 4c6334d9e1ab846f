"""What is planned and not brought: numbers, offsets, and how the ledger says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tinymq.broker.routing.routes import (
    BEGIN,
    DONE,
    OVER,
    PLAN,
    Piece,
    Place,
    Routes,
    bits_at,
    offsets_of,
)
from tinymq.errors import CorruptBatch

PLACES: tuple[Place, ...] = ((b"a", 0), (b"a", 1), ("dead", 0))
OFFSETS = st.lists(st.integers(0, 3000), min_size=1, max_size=40, unique=True).map(sorted)


def piece_of(offsets: list[int], first: int = 0, **facts: Any) -> Piece:
    """Make a piece."""
    base = offsets[0]
    return Piece(first, base, bits_at([each - base for each in offsets]), **facts)


@given(OFFSETS, st.integers(0, 1000))
def test_a_piece_is_what_was_stored(offsets: list[int], first: int) -> None:
    """Few offsets far apart are stored as a list, others as bits."""
    piece = piece_of(offsets, first, reason="r", text="t", parked="p", time=7)

    assert list(offsets_of(piece)) == offsets
    assert Piece.of(piece.row()) == piece
    assert (piece.size, piece.behind) == (len(offsets), first + len(offsets))


@given(OFFSETS, st.data())
def test_a_piece_in_parts(offsets: list[int], data: st.DataObject) -> None:
    """What is there is left out, and what did not survive; the numbers of the others stay."""
    done = data.draw(st.integers(0, len(offsets)))
    end = data.draw(st.integers(0, 3001))
    piece = piece_of(offsets, 100).since(100 + done)

    assert list(offsets_of(piece)) == offsets[done:]
    assert piece.first == 100 + done
    assert list(offsets_of(piece.below(end))) == [each for each in offsets[done:] if each < end]


class RoutesMachine(RuleBasedStateMachine):
    """Plans, arrivals, ends of topics, kills and snapshots, beside a list of copies."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = Routes()
        self.routes.change([BEGIN, 5, 9, 0])
        self.log: list[bytes] = []
        #: Copies by place: their numbers and offsets.
        self.copies: dict[Place, dict[int, int]] = {place: {} for place in PLACES}
        self.next: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self.cursor = 0

    @rule(data=st.data(), count=st.integers(1, 12))
    def plan(self, data: st.DataObject, count: int) -> None:
        """Plan some records for some places."""
        end = self.cursor + count
        pieces = []
        for place in PLACES:
            offsets = [at for at in range(self.cursor, end) if data.draw(st.booleans())]
            if not offsets:
                continue
            pieces.append((place, piece_of(offsets, time=1)))
            for offset in offsets:
                self.copies[place][self.next[place]] = offset
                self.next[place] += 1
        self.routes.plan += 1
        self.routes.change([PLAN, end, self.routes.numbered(pieces)])
        self.cursor = end

    @rule(place=st.sampled_from(PLACES), data=st.data())
    def arrive(self, place: Place, data: st.DataObject) -> None:
        """Let some copies be there."""
        number = data.draw(st.integers(0, self.next[place]))
        self.routes.change([DONE, *place, number])
        self.copies[place] = {k: v for k, v in self.copies[place].items() if k >= number}

    @rule()
    def end(self) -> None:
        """Let a topic be no more."""
        self.routes.change([OVER, *PLACES[0]])
        self.copies[PLACES[0]].clear()
        self.next[PLACES[0]] = 0

    @rule()
    def write(self) -> None:
        """Write down what happened."""
        self.log += self.routes.drain()

    @rule()
    def fold(self) -> None:
        """Write down everything."""
        self.log = self.routes.snapshot()

    @rule()
    def kill(self) -> None:
        """Read all back."""
        self.write()
        before = self.routes.facts()
        self.routes = Routes()
        for value in self.log:
            self.routes.restore(value)
        assert self.routes.facts() == before

    @precondition(lambda self: self.cursor > 0)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """Lose the end of the log; numbers are not given again."""
        self.cursor = data.draw(st.integers(0, self.cursor - 1))
        assert self.routes.cut_back(self.cursor)
        for copies in self.copies.values():
            for number in [k for k, v in copies.items() if v >= self.cursor]:
                del copies[number]
        self.log = self.routes.snapshot()

    @invariant()
    def same(self) -> None:
        """What is planned is what the list says."""
        found = {place: dict[int, int]() for place in PLACES}
        for place, lane in self.routes.lanes.items():
            for piece in lane.pieces:
                found[place].update(enumerate(offsets_of(piece), piece.first))
            assert lane.next == self.next[place]
            assert lane.pending == len(found[place])
        assert found == self.copies
        assert self.routes.pending == sum(map(len, found.values()))
        assert (self.routes.cursor, self.routes.born) == (self.cursor, 9)
        floors = [offset for copies in found.values() for offset in copies.values()]
        assert self.routes.floor == min(floors, default=None)


TestRoutes = RoutesMachine.TestCase
TestRoutes.settings = settings(max_examples=20, stateful_step_count=25)


@pytest.mark.parametrize("value", [b"\xc1", b"\x01", b"\x91\x91\x01"])
def test_what_is_no_plan(value: bytes) -> None:
    """A damaged record is told, and does not stop the start."""
    with pytest.raises(CorruptBatch):
        Routes().restore(value)


def test_lanes_to_topics_that_are_gone_are_forgotten() -> None:
    """But for those to which something is under way; the others' numbers go on."""
    routes = Routes()
    gone, stays, busy = b"gone", b"stays", b"busy"
    for target in (gone, stays, busy):
        rows = routes.numbered([((target, 0), Piece(0, 5, 1))])
        routes.change([PLAN, 6, rows])
    routes.change([DONE, gone, 0, 1], [DONE, stays, 0, 1])
    routes.forget({gone, busy})

    assert {place[0]: lane.next for place, lane in routes.lanes.items()} == {stays: 1, busy: 1}
    again = Routes()
    for value in routes.snapshot():
        again.restore(value)
    assert again.facts() == routes.facts()
