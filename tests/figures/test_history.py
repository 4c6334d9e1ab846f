"""The history of what went through an object: exact, bounded, cheap when idle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tinymq.figures.history import IDLE_MS, growth
from tinymq.figures.history import History as Grown
from tinymq.stats import IDLE, NOTHING, Counters, Rates

START = 1_000_000


class History(Grown):
    """Fed with counters."""

    def __init__(self, started_ms: int, most: int = 1000) -> None:
        super().__init__(started_ms, most)
        self.last: dict[str, Counters] = {}

    def sample(self, now_ms: int, changed: list[tuple[str, Counters]]) -> None:
        """Take the growth of counters."""
        growths = [(key, growth(self.last.get(key, NOTHING), now)) for key, now in changed]
        self.grow(now_ms, growths)
        self.last.update(changed)


def counted(total: int) -> Counters:
    """Make counters that grew alike."""
    return Counters(total, 2 * total, 10 * total, 20 * total)


def test_rate_is_the_mean_of_the_last_ten_seconds() -> None:
    """A steady stream of 100 a second shows as 100 a second."""
    history = History(START)

    for second in range(60):
        history.sample(START + 1000 * second, [("t", counted(100 * (second + 1)))])

    assert Rates(100.0, 200.0, 1000.0, 2000.0) == history.rates("t", START + 60_000)


def test_rate_falls_to_zero_when_nothing_is_sampled() -> None:
    """An object that is left out of the samples was idle."""
    history = History(START)
    history.sample(START, [("t", counted(100))])

    assert history.rates("t", START + 60_000) == IDLE


def test_rate_right_after_the_start_is_not_diluted() -> None:
    """Four seconds after the start, the mean is taken over four seconds."""
    history = History(START)
    for second in range(4):
        history.sample(START + 1000 * second, [("t", counted(50 * (second + 1)))])

    assert history.rates("t", START + 4000).messages_in == 50.0


def test_unknown_object_has_been_idle_since_the_start() -> None:
    """What was never seen moving shows zeros, not nothing."""
    series = History(START).series("new", START + 20_000)

    assert series.values == (0.0,) * 10


def test_series_begins_with_the_process() -> None:
    """No value is made up for the time before the process started."""
    history = History(START)
    history.sample(START + 3000, [("t", counted(8))])

    series = history.series("t", START + 10_000)

    assert series.values == (0.0, 4.0, 0.0, 0.0, 0.0)
    assert series.end_ms == START + 10_000


def test_spans_are_bounded() -> None:
    """A ring holds ten minutes and six hours, however long the process runs."""
    history = History(START)
    for minute in range(24 * 60):
        history.sample(START + 60_000 * minute, [("t", counted(minute + 1))])
    now = START + 60_000 * 24 * 60

    assert len(history.trail("t", now).messages_in.values) == 300
    assert len(history.trail("t", now, "long").bytes_out.values) == 360


def test_busy_objects_keep_their_curves() -> None:
    """With more busy objects than curves, some have theirs all the time, and all their rate."""
    history = History(START, most=2)
    for second in range(30):
        total = counted(7 * (second + 1))
        history.sample(START + 1000 * second, [(key, total) for key in "abc"])
    now = START + 30_000

    assert len(history) == 2
    for key in "ab":
        assert history.series(key, now).values == (7.0,) * 15
    assert history.series("c", now).values == ()
    assert [history.rates(key, now).messages_in for key in "abc"] == [7.0] * 3


def test_idle_object_gives_its_curves_to_a_busy_one() -> None:
    """Memory is bounded by the number of curves; who lost them says nothing false."""
    history = History(START, most=2)
    history.sample(START, [("a", counted(5)), ("b", counted(5))])
    history.sample(START + IDLE_MS - 1000, [("b", counted(6)), ("c", counted(1))])
    assert history.series("c", START + IDLE_MS).values == ()
    history.sample(START + IDLE_MS, [("c", counted(3))])
    now = START + IDLE_MS + 4000

    assert len(history) == 2
    assert history.series("a", now).values == ()
    assert sum(history.series("b", now).values) * 2 == 6
    # Of what went through it before it had curves, they tell nothing.
    assert history.series("c", now).values == (1.0, 0.0)


def test_object_that_comes_back_does_not_jump() -> None:
    """Only new growth counts, and idle time without curves is not told as zeros."""
    history = History(START, most=1)
    history.sample(START, [("a", counted(1_000_000))])
    history.sample(START + IDLE_MS, [("b", counted(1))])
    history.sample(START + 2 * IDLE_MS, [("a", counted(1_000_010))])

    assert history.series("a", START + 2 * IDLE_MS + 4000).values == (5.0, 0.0)


def test_counters_that_fall_are_those_of_a_new_object() -> None:
    """A topic made anew under the same key gives no negative rate."""
    history = History(START)
    history.sample(START, [("t", counted(100))])
    history.sample(START + 4000, [("t", counted(6))])

    assert history.series("t", START + 6000).values == (50.0, 0.0, 3.0)


def test_forgotten_object_leaves_nothing() -> None:
    """A deleted topic frees its curves, and a new one of the name starts at zero."""
    history = History(START)
    history.sample(START, [("t", counted(100))])

    history.forget("t")

    assert len(history) == 0
    assert history.rates("t", START + 2000) == IDLE


@given(
    st.lists(st.tuples(st.integers(-5000, 300_000), st.integers(0, 1000)), min_size=1, max_size=12)
)
def test_nothing_is_lost_or_negative_whatever_the_clock_does(
    steps: list[tuple[int, int]],
) -> None:
    """Within the span, the series adds up to what was counted, even if time jumps back."""
    history = History(START)
    now, total = START, 0
    seen = []
    for step, more in steps:
        now = max(START, now + step)
        total += more
        history.sample(now, [("t", Counters(total))])
        seen.append(now)
    end = max(seen) + 2000

    values = history.series("t", end).values

    assert all(value >= 0 for value in values)
    assert sum(values) * 2 <= total + 1e-3 * total
    if end - START < 600_000:
        assert abs(sum(values) * 2 - total) <= 1e-3 * total
