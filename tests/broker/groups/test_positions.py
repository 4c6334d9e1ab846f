"""The positions of one partition, without any broker."""

from __future__ import annotations

import msgpack
import pytest

from tinymq.broker.groups.positions import MOST_HELD, Move, Place, Position, Positions
from tinymq.errors import CorruptBatch, FencedGeneration, Overloaded, UnstablePosition


def move(offset: int, generation: int = -1, group: str = "g@1", **more: str) -> Move:
    """A commit."""
    return Move(group, generation, offset, 0, more.get("note", ""), more.get("member", "m"), 7)


def again(positions: Positions) -> Positions:
    """What a restart makes of all that was written."""
    found = Positions()
    for value in positions.drain():
        found.restore(value)
    return found


@pytest.fixture
def positions() -> Positions:
    """Return no positions."""
    return Positions()


def test_nothing_is_written_of_nothing(positions: Positions) -> None:
    """Where no group reads the ledger hears nothing."""
    assert (positions.drain(), positions.snapshot()) == ([], [])
    assert positions.of("g@1") == Position()
    positions.forget("g@1")
    assert not positions.decide((1, 0), commit=True)
    assert positions.drain() == []


def test_many_commits_are_one_entry(positions: Positions) -> None:
    """Of all commits of a turn to a position the last one is written."""
    for offset in range(1000):
        positions.commit(move(offset, note="n"))
        positions.commit(move(offset, group="h@1"))
    (value,) = positions.drain()
    assert len(msgpack.unpackb(value)) == 2
    found = Positions()
    found.restore(value)
    assert found.facts() == positions.facts()


def test_what_comes_between_stays_in_order(positions: Positions) -> None:
    """A commit before and one behind something else are two."""
    positions.commit(move(3))
    positions.take("g@1", 5, "m5")
    positions.commit(move(4, 5))
    positions.commit(move(2, 6, member="m6"))
    positions.commit(move(7, 6, member="m6"))
    positions.hold((1, 0), [move(9, 6)])
    positions.commit(move(8, 6))
    positions.decide((1, 0), commit=True)
    positions.commit(move(10, 6))
    assert positions.of("g@1").place.offset == 10
    assert again(positions).facts() == positions.facts()


def test_a_snapshot_stands_alone(positions: Positions) -> None:
    """It brings back what is there, and nothing of what was forgotten before."""
    positions.commit(move(3))
    positions.commit(move(4, group="gone@1"))
    positions.hold((1, 0), [move(5), move(6, group="h@1")])
    positions.hold((2, 0), [move(5)])
    written = positions.drain()
    positions.forget("gone@1")
    positions.decide((2, 0), commit=False)
    positions.move("k@1", Place(5, 0, "", 7), 100)
    positions.drain()  # as if the write had failed
    written += positions.snapshot()
    found = Positions()
    for value in written:
        found.restore(value)
    assert found.facts() == positions.facts()
    assert found.unstable("g@1")
    assert [*found.held] == [(1, 0)]


def test_all_or_nothing_of_a_transaction(positions: Positions) -> None:
    """Where one commit is not allowed none is held."""
    positions.take("h@1", 5, "m")
    with pytest.raises(FencedGeneration):
        positions.hold((1, 0), [move(5), move(6, 4, "h@1")])
    assert not positions.held


def test_decided_late(positions: Positions) -> None:
    """What was held counts though somebody else has the partition, and never goes back."""
    positions.take("g@1", 5, "m5")
    positions.hold((1, 0), [move(4, 5, member="m5")])
    positions.hold((1, 1), [move(9, 5, member="m5")])
    positions.take("g@1", 6, "m6")
    positions.decide((1, 1), commit=True)
    positions.decide((1, 0), commit=True)
    found = positions.of("g@1")
    assert (found.place.offset, found.fence, found.member) == (9, 6, "m6")


def test_undecided_is_not_moved(positions: Positions) -> None:
    """Nobody moves a group by hand while a transaction may move it."""
    positions.hold((1, 0), [move(4), move(5)])
    for call in (
        lambda: positions.move("g@1", Place(), 0),
        lambda: positions.take_back("g@1", 0),
        lambda: positions.check_stable("g@1"),
    ):
        with pytest.raises(UnstablePosition):
            call()
    positions.move("h@1", Place(), 0)


def test_cut_back(positions: Positions) -> None:
    """Nobody is beyond the end, nor would a transaction or an undo take somebody there."""
    positions.commit(move(9))
    positions.move("g@1", Place(3, 0, "", 7), 100)
    positions.commit(move(8, group="h@1"))
    positions.hold((1, 0), [move(10, group="k@1"), move(2, group="h@1")])
    assert positions.cut_back(5) == ["h@1"]
    assert positions.cut_back(5) == []
    assert (positions.of("h@1").place.offset, positions.of("h@1").cut) == (5, 8)
    former = positions.of("g@1").former
    assert former is not None
    assert former.offset == 5
    positions.decide((1, 0), commit=True)
    assert positions.of("k@1").place.offset == 5
    positions.commit(move(6, group="h@1"))
    assert positions.of("h@1").cut == -1
    assert again(positions).facts() == positions.facts()


def test_back_under_another_mark(positions: Positions) -> None:
    """A group that was lost and made anew goes on, but not over one that has begun since."""
    positions.commit(move(9))
    positions.rename("g@1", "g@2")
    assert (positions.of("g@2").place.offset, positions.knows("g@1")) == (9, False)
    positions.commit(move(3, group="g@3"))
    positions.rename("g@2", "g@3")
    assert positions.of("g@3").place.offset == 3
    assert again(positions).facts() == positions.facts()


def test_what_is_held_goes_along_under_another_mark(positions: Positions) -> None:
    """A transaction that was begun before its group was lost moves the one that was made anew."""
    positions.commit(move(3))
    positions.hold((1, 0), [move(9), move(6, group="h@1")])
    positions.hold((2, 0), [move(6, group="h@1")])
    positions.rename("g@1", "g@2")
    assert (positions.knows("g@1"), positions.unstable("g@2")) == (False, True)
    assert positions.decide((1, 0), commit=True)
    assert (positions.of("g@2").place.offset, positions.of("h@1").place.offset) == (9, 6)
    assert positions.unstable("h@1")
    assert again(positions).facts() == positions.facts()


def test_forgotten_with_what_is_held(positions: Positions) -> None:
    """A group that goes takes with it what transactions would move of it, and no more."""
    positions.hold((1, 0), [move(5), move(6, group="h@1")])
    positions.hold((2, 0), [move(5)])
    assert positions.marks() == {"g@1", "h@1"}
    positions.forget("g@1")
    assert ([*positions.held], positions.marks()) == ([(1, 0)], {"h@1"})
    assert again(positions).facts() == positions.facts()


def test_lowest(positions: Positions) -> None:
    """Retention asks for the lowest position of those that have one or were given the partition."""
    assert positions.lowest({}) is None
    positions.commit(move(9))
    positions.commit(move(4, group="h@1"))
    assert positions.lowest({}) == (4, "h@1")
    assert positions.lowest({"h@1": 20}) == (9, "g@1")
    positions.take("k@1", 5, "m")
    assert positions.lowest({}) == (0, "k@1")
    positions.move("k@1", Place(), 0)
    assert positions.lowest({}) == (4, "h@1"), "it was reset, and nobody has it"


@pytest.mark.parametrize("value", [b"", b"\xc1", msgpack.packb([[99]]), msgpack.packb([[0, 1]])])
def test_what_cannot_be_read(positions: Positions, value: bytes) -> None:
    """A record that is damaged, or of a newer version, is told as that."""
    with pytest.raises(CorruptBatch):
        positions.restore(value)


def test_commits_of_one_transaction_do_not_gather(positions: Positions) -> None:
    """However often a transaction commits, it holds the last of a group, and since when."""
    moves = [move(number, 3)._replace(time=number) for number in range(200)]
    for each in moves:
        positions.hold((1, 0), [each, move(2, group="h@1")])
    assert len(positions.facts()[1][0][1]) <= 4
    assert positions.held_since() == {(1, 0): 0}
    assert again(positions).facts() == positions.facts()
    positions.decide((1, 0), commit=True)
    assert positions.of("g@1").place.offset == 199
    assert positions.of("h@1").place.offset == 2


def test_a_transaction_holds_no_more_than_it_may(positions: Positions) -> None:
    """What cannot be folded is refused at a bound, and what is held stays."""
    for number in range(MOST_HELD):
        positions.hold((1, 0), [move(MOST_HELD - number, number)])
    with pytest.raises(Overloaded):
        positions.hold((1, 0), [move(0, MOST_HELD)])
    positions.decide((1, 0), commit=True)
    assert positions.of("g@1").place.offset == MOST_HELD
    assert positions.of("g@1").fence == MOST_HELD - 1


def test_a_generation_is_taken_by_one(positions: Positions) -> None:
    """Of two that were given the partition in one generation, by two coordinators, one has it."""
    positions.take("g@1", 5, "m1")
    positions.take("g@1", 5, "m1")
    with pytest.raises(FencedGeneration) as caught:
        positions.take("g@1", 5, "m2")
    assert caught.value.data["generation"] == 5
    positions.take("g@1", 6, "m2")
    with pytest.raises(FencedGeneration):
        positions.commit(move(3, 5, member="m1"))
