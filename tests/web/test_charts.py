"""Curves fit their box, and nothing is drawn that is not known."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.web.fakes import NOW, curve
from tinymq.stats import Series
from tinymq.web import charts
from tinymq.web.charts import NARROW, WIDE, Plot, axis_number, bar, round_top, spark, thin
from tinymq.web.format import Times


def numbers(points: str) -> list[tuple[float, float]]:
    """Read points back."""
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split())]


def test_too_little_is_not_drawn() -> None:
    """One value is no curve, and an idle object has nothing to say."""
    assert spark(None) is None
    assert spark(Series(2000, NOW, (1.0,))) is None
    assert spark(Series(2000, NOW, (0.0, 0.0, 0.0))) is None
    assert Plot("x", (("a", Series(2000, NOW, (1.0,))),), 1000).draw(Times(NOW)) is None


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=400))
def test_sparkline_stays_in_its_box(values: list[float]) -> None:
    """Whatever the values, no point lies outside."""
    drawn = spark(Series(2000, NOW, tuple(values)))

    if drawn is not None:
        assert all(0 <= x <= 72 and 0 <= y <= 20 for x, y in numbers(drawn.line))
        assert len(numbers(drawn.line)) <= 36


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=400))
def test_chart_stays_in_its_box_with_few_gridlines(values: list[float]) -> None:
    """The axis is zero based, reaches over every value, and has three to six lines."""
    chart = Plot("x", (("a", Series(2000, NOW, tuple(values))),), 600_000).draw(Times(NOW), NARROW)

    assert chart is not None
    points = numbers(chart.curves[0].line)
    assert all(NARROW.left - 0.1 <= x <= 358.1 for x, _ in points)
    assert all(NARROW.top - 0.1 <= y <= NARROW.bottom + 0.1 for _, y in points)
    assert 3 <= len(chart.grid) <= 6
    assert chart.grid[0][1] == "0"


def test_half_a_history_fills_half_the_box() -> None:
    """What was before the start of the process stays empty, not zero."""
    chart = Plot("x", (("a", curve(1, 5.0, 150)),), 600_000).draw(Times(NOW), WIDE)

    assert chart is not None
    assert numbers(chart.curves[0].line)[0][0] == WIDE.left + (WIDE.width - WIDE.left) / 2


def test_table_has_the_newest_first() -> None:
    """The data behind a chart is at hand, with the time of each value."""
    series = Series(2000, NOW, (1.0, 2.0, 3.0))
    chart = Plot("x", (("a", series), ("b", series)), 600_000).draw(Times(NOW))

    assert chart is not None
    assert chart.rows == ((NOW, (3.0, 3.0)), (NOW - 2000, (2.0, 2.0)), (NOW - 4000, (1.0, 1.0)))
    assert chart.sentence == "x now: a 3, b 3"


@given(st.floats(0, 1e15))
def test_axis_is_round_and_reaches_the_value(value: float) -> None:
    """The top is not below the value, and at most twice as many lines as wanted appear."""
    top, step = round_top(value)

    assert top >= value or value < 1e-9
    assert 2 <= round(top / step) <= 5


def test_axis_numbers_are_short() -> None:
    """Thousands are written with their letter."""
    assert [axis_number(v) for v in (0, 250, 5000, 1.5e6, 2e9)] == [
        "0",
        "250",
        "5 k",
        "1.5 M",
        "2 G",
    ]


def test_thinning_keeps_the_mean_and_the_end() -> None:
    """Neighbours are averaged, never dropped."""
    assert thin([1, 2, 3, 4, 5], 3) == [1.0, 2.5, 4.5]
    assert thin([], 3) == []


def test_bar_is_clamped_and_never_vanishes() -> None:
    """More than full is full; a tick may be anywhere on the track."""
    assert (bar(7.0).fill, bar(7.0).radius) == ("96.0", "3.0")
    assert (bar(-1).fill, bar(-1).radius) == ("2.0", "1.0")
    assert bar(0.5, 96, 0.9).tick == "86.4"


def test_events_are_flags_in_order() -> None:
    """Each has a letter; those close together share one; what was before the box is left out."""
    series = Series(2000, NOW, tuple(range(300)))
    minutes = (12, 9, 5, 4.9, 0)
    events = tuple(charts.Event(NOW - round(m * 60_000), f"{m} min ago") for m in minutes)
    plot = charts.Plot("Lag", (("messages", series),), 600_000, events=events)
    ((wide, narrow),) = [pair for pair, _ in charts.draw_both(plot, str, Times(NOW), charts.LARGE)]
    assert [(flag.letter, len(flag.events)) for flag in wide.flags] == [
        ("A", 1),
        ("B", 2),
        ("C", 1),
    ]
    assert [flag.letter for flag in narrow.flags] == ["A", "B", "C"]
    places = [float(flag.x) for flag in wide.flags]
    assert places == sorted(places)
    assert wide.left <= places[0]
    assert places[-1] <= wide.width - 8
    assert wide.height == charts.LARGE.height + 18
    assert json.loads(wide.data)["flags"] == [
        [NOW - 540_000, "A"], [NOW - 300_000, "B"], [NOW, "C"],
    ]  # fmt: skip


def test_a_chart_without_events_is_as_it_was() -> None:
    """No flags, no room for them."""
    series = Series(2000, NOW, tuple(range(300)))
    old = charts.Event(NOW - 3_600_000, "long ago")
    drawn = charts.Plot("Lag", (("messages", series),), 600_000, events=(old,)).draw(Times(NOW))
    assert drawn is not None
    assert (drawn.flags, drawn.height, drawn.top) == ((), charts.WIDE.height, 8)
