"""What of a partition is done, and where the floor lies."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.group.tally import Slip, Tally
from tinymq.client.core.group.working import Job, Lanes
from tinymq.client.core.starts import Mark
from tinymq.wire.batch import read_header, stamp
from tinymq.wire.records import RecordBatch, encode_batch


def batch(base: int, count: int, epoch: int = 0) -> ConsumerBatch:
    """A batch as a broker gives it."""
    data = encode_batch([b"v"] * count)
    whole = b"".join(map(bytes, stamp(data, read_header(data), base, epoch, 5)))
    return ConsumerBatch("t", 0, RecordBatch(whole), 0, base + count)


def handed(tally: Tally, base: int, count: int, epoch: int = 0) -> Slip:
    """Hand out a whole batch."""
    slip = tally.add(batch(base, count, epoch))
    slip.handed = slip.count
    return slip


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.randoms())
def test_floor_is_the_first_that_is_not_done(counts: list[int], random: Any) -> None:
    """Whatever the order, all below the floor is done and what is at it is not."""
    tally = Tally(Mark(0))
    left: list[tuple[Slip, int, int]] = []
    base = 0
    for count in counts:
        slip = handed(tally, base, count)
        left += [(slip, index, base + index) for index in range(count)]
        base += count + 2  # two offsets that do not exist
    random.shuffle(left)
    while left:
        slip, index, _ = left.pop()
        slip.done(index)
        slip.done(index)  # once more changes nothing
        floor = tally.floor
        assert floor is not None
        undone = min((offset for *_, offset in left), default=base - 2)
        assert floor.offset <= undone
        assert not any(floor.offset <= offset < undone for *_, offset in left)
        assert tally.open == len(left)
    assert tally.floor == Mark(base - 2, 0)
    assert len(tally) == 0


def test_epochs() -> None:
    """The floor has the epoch of the record before it."""
    tally = Tally(Mark(0, -1))
    first, second = handed(tally, 0, 2, 3), handed(tally, 2, 2, 4)
    assert tally.floor == Mark(0, -1)
    first.done(0)
    assert tally.floor == Mark(1, 3)
    first.done(1)
    assert tally.floor == Mark(2, 3)
    second.all_done()
    assert tally.floor == Mark(4, 4)


def test_cut() -> None:
    """What was not handed out is cut off, and reading goes on there."""
    tally = Tally(Mark(0))
    slip = tally.add(batch(0, 5))
    slip.handed = 2
    assert slip.cut() == Mark(2, 0)
    slip.done(1)
    assert tally.floor == Mark(0)
    slip.done(0)
    assert tally.floor == Mark(2, 0)


def test_let_go() -> None:
    """What is let go of is not waited for, and is not done."""
    tally = Tally(Mark(0))
    slip = handed(tally, 0, 4)
    slip.let_go(1)
    slip.done(0)
    assert (tally.open, tally.floor) == (2, Mark(1, 0))
    slip.let_all_go(2)
    assert tally.open == 0
    slip.done(1)  # it ended well after all
    assert (tally.open, tally.floor) == (0, Mark(2, 0))


def test_done_to() -> None:
    """All below an offset is done at once, as far as it was handed out."""
    tally = Tally(Mark(0))
    handed(tally, 0, 3)
    second = tally.add(batch(3, 3))
    second.handed = 2
    tally.done_to(4)
    assert tally.floor == Mark(4, 0)
    tally.done_to(100)
    assert tally.floor == Mark(5, 0)


class FakeItem:
    """A message of a key."""

    topic, partition = "t", 0

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.gone = False

    def let_go(self) -> None:
        """Note it."""
        self.gone = True


class KeyedJob(Job):
    """A job in the lane of a word."""

    @property
    @override
    def lane(self) -> Any:
        """The word."""
        return self.item.key  # type: ignore[union-attr]


def test_lanes() -> None:
    """Those of one lane begin one after the other, and all others at once."""
    lanes = Lanes(2)
    jobs = [KeyedJob(FakeItem(key)) for key in (b"a", b"a", b"b", None, b"a")]  # type: ignore[arg-type]
    assert [lanes.enter(job) for job in jobs] == [True, False, True, True, False]
    assert lanes.next() is None
    lanes.leave(jobs[3])
    lanes.leave(jobs[0])
    assert lanes.next() is jobs[1]
    assert lanes.next() is None
    lanes.leave(jobs[1])
    assert lanes.drop() == [jobs[4]]
    assert lanes.next() is None


def test_lane_of_what_comes_again() -> None:
    """Behind what is let go of nothing of its lane begins: it comes again before them."""
    lanes = Lanes(2)
    jobs = [KeyedJob(FakeItem(key)) for key in (b"a", b"a", b"b", b"b", b"a")]  # type: ignore[arg-type]
    assert [lanes.enter(job) for job in jobs] == [True, False, True, False, False]
    jobs[0].let_go()
    lanes.leave(jobs[0])
    assert lanes.next() is None
    assert [job.item.gone for job in jobs] == [True, True, False, False, True]  # type: ignore[union-attr]
    assert not lanes.full
    lanes.leave(jobs[2])
    assert lanes.next() is jobs[3]
    assert lanes.enter(jobs[4]), "the lane is free again"
