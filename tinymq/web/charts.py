"""
Geometry of sparklines, bars and charts. Templates only write down the result.

Everything is an SVG attribute: the content security policy allows no style
attribute, so lengths are widths and points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from attrs import evolve, frozen

from tinymq.stats import Series
from tinymq.web.format import Times

#: A sparkline shows its values in about so many points.
SPARK_POINTS: Final = 36
_CHART_POINTS: Final = 90
#: Height of a flag with the room below it.
_FLAG: Final = 18
#: Events that are closer than this share of the time have one flag together: at most 18.
_CLOSE: Final = 0.06


#: How long charts are, and what that is called.
SPANS: Final = {"10m": (600_000, "Last 10 minutes"), "6h": (6 * 3_600_000, "Last 6 hours")}


@frozen
class Box:
    """The box of a chart. Its text is 11 px high at any width, so there are two."""

    width: int
    height: int
    left: int = 44
    top: int = 8

    @property
    def bottom(self) -> int:
        """Where the plot ends and the times begin."""
        return self.height - 20

    def x(self, share: float) -> float:
        """Place a share of the time, from 0 to 1."""
        return self.left + (self.width - self.left) * share

    def y(self, share: float) -> float:
        """Place a share of the axis, from 0 to 1."""
        return self.bottom - (self.bottom - self.top) * share


#: Beside another chart on a wide screen, and alone on a phone.
WIDE: Final = Box(560, 168)
#: Alone in the wider one of two columns.
LARGE: Final = Box(656, 190)
NARROW: Final = Box(358, 142)
#: One of three beside each other.
THIRD: Final = Box(366, 150)


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join([f"{x:.1f},{y:.1f}" for x, y in pairs])


@lru_cache(maxsize=64)
def _thin(values: tuple[float, ...], most: int) -> list[float]:
    """Thin the values of a chart, which is drawn wide and narrow from the same ones."""
    return thin(values, most)


def thin(values: Sequence[float], most: int) -> list[float]:
    """Average neighbours until at most `most` values are left; the last stays last."""
    group = -(-len(values) // most) if values else 1
    head = len(values) % group
    parts = [values[:head]] if head else []
    parts += [values[i : i + group] for i in range(head, len(values), group)]
    return [sum(part) / len(part) for part in parts]


@frozen
class Spark:
    """A small curve: the points of its line, and of the area below it."""

    line: str
    area: str
    end: tuple[str, str]
    width: int
    height: int


def spark(series: Series | None, width: int = 72, height: int = 20) -> Spark | None:
    """
    Draw a small curve, or nothing when too little is known or all is idle.

    Args:
        series: The values.
        width: Of the box, in pixels.
        height: Of the box, in pixels.
    """
    if series is None or len(series.values) < 2 or max(series.values) <= 0:
        return None
    return _spark(series.values, width, height)


# The same curve stands on several pages, and a page is asked for by several tabs.
@lru_cache(maxsize=512)
def _spark(known: tuple[float, ...], width: int, height: int) -> Spark:
    values = thin(known, SPARK_POINTS)
    high = max(values)
    low = min(*values, high * 0.75)
    scale = (high - low) or 1
    step = (width - 4) / (len(values) - 1)
    pairs = [
        (1 + i * step, height - 2 - (v - low) / scale * (height - 5)) for i, v in enumerate(values)
    ]
    line = _points(pairs)
    end, _, _ = line.rpartition(" ")[2].partition(",")
    last = (f"{pairs[-1][0]:.1f}", f"{pairs[-1][1]:.1f}")
    return Spark(line, f"1,{height} {line} {end},{height}", last, width, height)


@frozen
class Bar:
    """A length against a track, with a tick where it begins to hurt."""

    width: int
    fill: str
    radius: str
    tick: str | None


def bar(share: float, width: int = 96, tick: float | None = None) -> Bar:
    """
    Draw a bar.

    Args:
        share: How full it is, from 0 to 1.
        width: Of the track, in pixels.
        tick: Where the limit is that hurts, from 0 to 1.
    """
    fill = max(width * min(max(share, 0), 1), 2)
    mark = None if tick is None else f"{width * min(max(tick, 0), 1):.1f}"
    return Bar(width, f"{fill:.1f}", f"{min(3, fill / 2):.1f}", mark)


def round_top(value: float) -> tuple[float, float]:
    """
    Choose the top of an axis and the distance of its gridlines.

    Args:
        value: The largest value that must fit.

    Returns:
        A round number at or above the value, and the step: three to five lines.
    """
    if value < 1e-9:
        return 4.0, 1.0
    unit = 10.0 ** math.floor(math.log10(value / 4))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10, 20) if unit * m * 4 >= value)
    return step * max(2, math.ceil(value / step)), step


def axis_number(value: float) -> str:
    """Write a number of an axis: ``5 k`` for 5000."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


@frozen
class Curve:
    """One line of a chart."""

    name: str
    line: str
    area: str
    last: float


@frozen
class Event:
    """Something that happened while the curve was drawn: when, and what."""

    at_ms: int
    text: str


@frozen
class Flag:
    """
    A mark on a chart, for one event or for several that are close together.

    Attributes:
        letter: What stands on it, and beside its text below the chart.
        x: Where it is.
        events: What it stands for, in order.
    """

    letter: str
    x: str
    events: tuple[Event, ...]


@frozen
class Chart:
    """
    A chart, ready to be written down.

    Attributes:
        title: What it shows.
        width: Of the box.
        height: Of the box.
        left: Where the plot begins.
        grid: Height and text of every gridline, lowest first.
        times: Place, text and anchor class of every time below.
        curves: At most two.
        rows: The same as a table: time, then a value of every curve.
        sentence: The chart in words.
        data: All values as JSON, for the script that draws a live one in its place.
        flags: Events, in order; their letters are the same however wide the chart is.
        top: Where the plot begins, below the flags.
    """

    title: str
    width: int
    height: int
    left: int
    grid: tuple[tuple[str, str], ...]
    times: tuple[tuple[str, str, str], ...]
    curves: tuple[Curve, ...]
    rows: tuple[tuple[int, tuple[float, ...]], ...]
    sentence: str
    data: str
    flags: tuple[Flag, ...] = ()
    top: int = 8


def _curve(name: str, series: Series, span_ms: int, top: float, box: Box) -> Curve:
    values = _thin(series.values, _CHART_POINTS)
    covered = min(1.0, len(series.values) * series.step_ms / span_ms)
    step = covered / max(1, len(values) - 1)
    left, width = box.x(1 - covered), (box.x(1) - box.x(0)) * step
    bottom, height = box.y(0), (box.y(1) - box.y(0)) / top
    line = _points([(left + i * width, bottom + v * height) for i, v in enumerate(values)])
    area = f"{left:.1f},{box.bottom} {line} {box.width},{box.bottom}"
    return Curve(name, line, area, values[-1])


def _times(end_ms: int, span_ms: int, times: Times, box: Box) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (f"{box.x(part):.1f}", times.minute(int(end_ms - span_ms * (1 - part))), anchor)
        for part, anchor in ((0, ""), (1 / 3, "m"), (2 / 3, "m"), (1, "e"))
    )


@frozen
class Plot:
    """
    What a chart shows, before it is drawn.

    Attributes:
        title: What it shows.
        series: Names and values, at most two; the first one is accented.
        span_ms: How much time the box is wide.
        write: Writes a value of the axis.
        events: What happened meanwhile; what was before the box begins is left out.
    """

    title: str
    series: tuple[tuple[str, Series], ...]
    span_ms: int
    write: Callable[[float], str] = axis_number
    events: tuple[Event, ...] = ()

    def draw(self, times: Times, box: Box = WIDE, *, bare: bool = False) -> Chart | None:
        """
        Draw the chart, or nothing when fewer than two values are known.

        Args:
            times: Writes the times below.
            box: How large.
            bare: Leave out the table and the data: another picture has them.
        """
        known = [(name, one) for name, one in self.series if len(one.values) > 1]
        if not known:
            return None
        end_ms = known[0][1].end_ms
        groups = _together(self.events, end_ms, self.span_ms)
        if groups:
            box = evolve(box, top=box.top + _FLAG, height=box.height + _FLAG)
        flags = tuple(_flag(i, group, end_ms, self.span_ms, box) for i, group in enumerate(groups))
        top, step = round_top(max(max(_thin(one.values, _CHART_POINTS)) for _, one in known))
        lines = [step * i for i in range(round(top / step) + 1)]
        curves = tuple(_curve(name, one, self.span_ms, top, box) for name, one in known)
        said = ", ".join(f"{c.name} {self.write(round(c.last, 1))}" for c in curves)
        return Chart(
            title=self.title,
            width=box.width,
            height=box.height,
            left=box.left,
            grid=tuple((f"{box.y(v / top):.1f}", self.write(v)) for v in lines),
            times=_times(end_ms, self.span_ms, times, box),
            curves=curves,
            rows=() if bare else _rows([one for _, one in known]),
            sentence=f"{self.title} now: {said}",
            data=""
            if bare
            else _data(known, self.span_ms, lines, [self.write(v) for v in lines], flags),
            flags=flags,
            top=box.top,
        )


#: A wide and a narrow picture of the same, and what writes a value in their table.
Drawn = tuple[tuple[Chart, Chart], Callable[[float], str]]


def draw_both(plot: Plot, write: Callable[[float], str], times: Times, box: Box) -> list[Drawn]:
    """
    Draw a chart for wide screens and for phones, or nothing while too little is known.

    Args:
        plot: What it shows.
        write: Writes a value of the table.
        times: Writes the times below.
        box: How large it is on a wide screen.
    """
    wide, narrow = plot.draw(times, box), plot.draw(times, NARROW, bare=True)
    return [((wide, narrow), write)] if wide and narrow else []


def _together(events: Sequence[Event], end_ms: int, span_ms: int) -> list[tuple[Event, ...]]:
    """Group the events of a chart that are too close for a flag of their own."""
    found: list[tuple[Event, ...]] = []
    for each in sorted(events, key=lambda event: event.at_ms):
        if not end_ms - span_ms <= each.at_ms <= end_ms:
            continue
        if found and each.at_ms - found[-1][0].at_ms < span_ms * _CLOSE:
            found[-1] += (each,)
        else:
            found.append((each,))
    return found


def _flag(index: int, group: tuple[Event, ...], end_ms: int, span_ms: int, box: Box) -> Flag:
    """Place the flag of some events, whole within the box."""
    at = box.x(1 - (end_ms - group[0].at_ms) / span_ms)
    return Flag(chr(ord("A") + index), f"{min(max(at, box.left), box.width - 8):.1f}", group)


def _data(
    known: Sequence[tuple[str, Series]],
    span_ms: int,
    lines: list[float],
    words: list[str],
    flags: Sequence[Flag],
) -> str:
    first = known[0][1]
    return json.dumps(
        {
            "end": first.end_ms,
            "step": first.step_ms,
            "span": span_ms,
            "lines": lines,
            "words": words,
            "values": [[round(value, 2) for value in one.values] for _, one in known],
            "flags": [[flag.events[0].at_ms, flag.letter] for flag in flags],
        },
        separators=(",", ":"),
    )


def _rows(series: Sequence[Series], most: int = 12) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Cut series into at most `most` rows of a table, newest first."""
    thinned = [thin(one.values, most) for one in series]
    count = min(len(one) for one in thinned)
    first = series[0]
    step = -(-len(first.values) // most) * first.step_ms
    return tuple(
        (first.end_ms - i * step, tuple(one[-1 - i] for one in thinned)) for i in range(count)
    )
