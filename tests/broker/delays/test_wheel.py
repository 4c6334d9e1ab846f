"""The timing wheel: a sorted list does the same, only slower."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tinymq.broker.delays.wheel import Wheel

#: Milliseconds: some near, some in another century.
TIMES = st.one_of(st.integers(0, 300), st.integers(0, 10**6), st.integers(0, 10**13))


class Listed:
    """What a wheel does, with a list of all entries."""

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.due: dict[int, int] = {}

    def advance(self, now: int) -> list[int]:
        """The keys of what is due at the ticks up to a time."""
        until = now // self.tick
        found = sorted((due, key) for key, due in self.due.items() if -(-due // self.tick) <= until)
        for _, key in found:
            del self.due[key]
        return [key for _, key in found]


@given(
    slots=st.sampled_from([2, 3, 12, 64]),
    start=st.integers(0, 10**6),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("insert"), st.integers(0, 30), TIMES),
            st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("advance"), st.just(0), TIMES),
            st.tuples(st.just("next"), st.just(0), st.just(0)),
            st.tuples(st.just("some"), st.integers(1, 4), TIMES),
        ),
        max_size=60,
    ),
)
def test_as_a_sorted_list(slots: int, start: int, steps: list[tuple[str, int, int]]) -> None:
    """Whatever is put in and taken out, the same comes out at the same times."""
    wheel, listed, now = Wheel(start, slots), Listed(10), start
    for what, key, number in steps:
        if what == "insert":
            due = now + number - 50
            wheel.insert(key, due)
            # What is late already comes with the tick at which the hands stand.
            listed.due[key] = due
        elif what == "cancel":
            assert wheel.cancel(key) == (listed.due.pop(key, None) is not None)
        elif what == "advance":
            now += number
            assert sorted(key for _, key in wheel.advance(now)) == sorted(listed.advance(now))
        elif what == "some":
            now += number
            found: list[tuple[int, int]] = []
            while (soon := wheel.next_ms()) is not None and soon <= now:
                found += wheel.advance(now, key)
            wheel.advance(now)
            assert sorted(each for _, each in found) == sorted(listed.advance(now))
        else:
            soon = wheel.next_ms()
            first = min(listed.due.values(), default=None)
            assert (soon is None) == (first is None)
            if soon is not None and first is not None:
                assert soon <= max(-(-first // 10) * 10, now // 10 * 10)
        assert len(wheel) == len(listed.due)


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=50), st.sampled_from([12, 64]))
def test_one_timer(dues: list[int], slots: int) -> None:
    """Who turns the wheel only when it says so gets everything, never early, one tick late."""
    wheel = Wheel(0, slots)
    wheel.insert_all(range(len(dues)), dues)
    turns = 0
    while (soon := wheel.next_ms()) is not None:
        turns += 1
        for due, key in wheel.advance(soon):
            assert dues[key] == due
            assert due <= soon < due + 10
    # Each entry moves down at most once for each dial.
    assert turns <= 10 * len(dues)
    assert len(wheel) == 0


def test_the_seed_of_all() -> None:
    """Now 2, delay 3: slot 5; and 30 ticks away, two dials."""
    wheel = Wheel(2, slots=12, tick_ms=1)
    wheel.insert(1, 5)
    wheel.insert(2, 32)
    assert wheel.next_ms() == 5
    assert wheel.advance(5) == [(5, 1)]
    assert wheel.next_ms() == 24  # where the slot of the second dial is opened
    assert wheel.advance(24) == []
    assert wheel.next_ms() == 32
    assert wheel.advance(31) == []
    assert wheel.advance(32) == [(32, 2)]
    assert wheel.next_ms() is None


def test_centuries() -> None:
    """Dials are made as they are needed: nothing is too far, and nothing comes early."""
    wheel = Wheel(1_750_000_000_000)
    far = 253_402_300_799_990
    wheel.insert(7, far)
    assert wheel.advance(far - 1) == []
    assert wheel.due(7) == far
    assert wheel.advance(far) == [(far, 7)]


def test_a_huge_slot_is_opened_in_parts() -> None:
    """Nobody waits until a million entries have moved; those that moved can be taken out."""
    wheel = Wheel(0)
    wheel.insert_all(range(1000), [640 * 10 + each % 640 for each in range(1000)])
    assert wheel.advance(6400, 100) == []
    assert wheel.next_ms() == 6400
    assert all(wheel.cancel(each) for each in range(0, 1000, 2))
    found: list[int] = []
    while len(wheel):
        found += (key for _, key in wheel.advance(10_000, 100))
    assert sorted(found) == list(range(1, 1000, 2))


def test_one_millisecond() -> None:
    """However much is due at once is given out in parts, in order; the rest may still change."""
    wheel = Wheel()
    wheel.insert_all(range(5000), [70] * 5000)
    wheel.insert(9000, 65)
    found = wheel.advance(70, 100)
    assert found == [(65, 9000), *((70, each) for each in range(99))]
    assert wheel.next_ms() == 70
    assert wheel.cancel(100)
    wheel.insert(101, 200)
    given = 0
    while len(wheel) > 1:
        part = wheel.advance(70, 100)
        assert 0 < len(part) <= 100
        given += len(part)
        assert {100, 101}.isdisjoint(key for _, key in part)
    assert given == 5000 - 99 - 2
    assert wheel.advance(200, 100) == [(200, 101)]
