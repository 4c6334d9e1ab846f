"""
Geometry of sparklines, bars and charts. Templates only write down the result.

Everything is an SVG attribute: the content security policy allows no style
attribute, so lengths are widths and points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from tinymq.stats import Series
from tinymq.web.format import Times

#: A sparkline shows its values in about so many points.
SPARK_POINTS: Final = 36
_CHART_POINTS: Final = 90
_LEFT: Final = 36
_TOP: Final = 8
_BOTTOM: Final = 20


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


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
    Draw a small curve, or nothing when fewer than two values are known.

    Args:
        series: The values.
        width: Of the box, in pixels.
        height: Of the box, in pixels.
    """
    values = thin(series.values, SPARK_POINTS) if series else []
    if len(values) < 2:
        return None
    high = max(values)
    low = min(min(values), high * 0.75)
    scale = (high - low) or 1
    step = (width - 4) / (len(values) - 1)
    pairs = [
        (1 + i * step, height - 2 - (v - low) / scale * (height - 5)) for i, v in enumerate(values)
    ]
    end = pairs[-1]
    area = f"1,{height} {_points(pairs)} {end[0]:.1f},{height}"
    return Spark(_points(pairs), area, (f"{end[0]:.1f}", f"{end[1]:.1f}"), width, height)


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
    if value <= 0:
        return 4.0, 1.0
    unit = 10.0 ** math.floor(math.log10(value / 4))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10, 20) if unit * m * 4 >= value)
    return step * max(2, math.ceil(value / step)), step


def axis_number(value: float) -> str:
    """Write a number of an axis: ``5 k`` for 5000."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


@frozen
class Curve:
    """One line of a chart."""

    name: str
    line: str
    area: str
    last: float


@frozen
class Chart:
    """
    A chart, ready to be written down.

    Attributes:
        title: What it shows.
        width: Of the box.
        height: Of the box.
        grid: Height and text of every gridline, lowest first.
        times: Place, text and anchor class of every time below.
        curves: At most two.
        rows: The same as a table: time, then a value of every curve.
        sentence: The chart in words.
    """

    title: str
    width: int
    height: int
    grid: tuple[tuple[str, str], ...]
    times: tuple[tuple[str, str, str], ...]
    curves: tuple[Curve, ...]
    rows: tuple[tuple[int, tuple[float, ...]], ...]
    sentence: str


def _curve(name: str, series: Series, span_ms: int, top: float, width: int, height: int) -> Curve:
    values = thin(series.values, _CHART_POINTS)
    bottom = height - _BOTTOM
    covered = min(1.0, len(series.values) * series.step_ms / span_ms)
    begin = width - (width - _LEFT) * covered
    step = (width - begin) / max(1, len(values) - 1)
    pairs = [
        (begin + i * step, bottom - value / top * (bottom - _TOP)) for i, value in enumerate(values)
    ]
    area = f"{begin:.1f},{bottom} {_points(pairs)} {width},{bottom}"
    return Curve(name, _points(pairs), area, values[-1])


def _times(end_ms: int, span_ms: int, times: Times, width: int) -> tuple[tuple[str, str, str], ...]:
    plot = width - _LEFT
    marks = [(_LEFT + plot * part, end_ms - span_ms * (1 - part)) for part in (0, 1 / 3, 2 / 3, 1)]
    anchors = ("", "m", "m", "e")
    return tuple(
        (f"{x:.1f}", times.minute(int(ms)), anchor)
        for (x, ms), anchor in zip(marks, anchors, strict=True)
    )


def chart(
    title: str,
    series: Sequence[tuple[str, Series]],
    times: Times,
    span_ms: int,
    *,
    write: Callable[[float], str] = axis_number,
    size: tuple[int, int] = (368, 142),
) -> Chart | None:
    """
    Draw one or two series over the same time, or nothing when none is known.

    Args:
        title: What it shows.
        series: Names and values; the first one is the accented one.
        times: Writes the times below.
        span_ms: How much time the box is wide.
        write: Writes a value of the axis.
        size: Width and height of the box.
    """
    known = [(name, one) for name, one in series if len(one.values) > 1]
    if not known:
        return None
    width, height = size
    top, step = round_top(max(max(thin(one.values, _CHART_POINTS)) for _, one in known))
    bottom = height - _BOTTOM
    lines = [step * i for i in range(round(top / step) + 1)]
    curves = tuple(_curve(name, one, span_ms, top, width, height) for name, one in known)
    said = ", ".join(f"{c.name} {write(round(c.last, 1))}" for c in curves)
    return Chart(
        title=title,
        width=width,
        height=height,
        grid=tuple((f"{bottom - v / top * (bottom - _TOP):.1f}", write(v)) for v in lines),
        times=_times(known[0][1].end_ms, span_ms, times, width),
        curves=curves,
        rows=_rows([one for _, one in known]),
        sentence=f"{title} now: {said}",
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
