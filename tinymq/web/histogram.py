"""
The bars of when messages are due. Templates only write down the result.

The bars are equally wide although the times that they stand for are not: the next
minutes are as easy to see as the years behind them, and the axis says what each is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from tinymq.web.charts import Box, axis_number, round_top
from tinymq.web.format import duration, plural

#: On a wide screen, and on a phone.
WIDE: Final = Box(1120, 156)
NARROW: Final = Box(358, 142)
_LEAST: Final = 1.5
#: About how many pixels a time below needs.
_TICK: Final = 76
_YEAR: Final = 365 * 86_400_000


@frozen
class Slot:
    """A bar: where it is, what it stands for, and whether that is over already."""

    x: str
    y: str
    width: str
    height: str
    title: str
    late: bool


@frozen
class Histogram:
    """
    The bars, ready to be written down.

    Attributes:
        width: Of the box.
        height: Of the box.
        left: Where the plot begins.
        grid: Height and text of every gridline, lowest first.
        ticks: Place, text and anchor class of every time below.
        slots: The bars that are not empty.
        sentence: All in words.
    """

    width: int
    height: int
    left: int
    grid: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[str, str, str], ...]
    slots: tuple[Slot, ...]
    sentence: str


def far(ms: float) -> str:
    """Write how far off a time is; from two years on in years, which is exact enough."""
    years = ms / _YEAR
    return f"{years:,.0f} y" if years >= 2 else duration(ms)


def due_in(ms: int) -> str:
    """Write how far off a time is: ``in 5 m``, or how long ago it was."""
    return f"in {duration(ms)}" if ms >= 0 else f"{duration(-ms)} ago"


def window(bucket: Mapping[str, Any], now_ms: int) -> str:
    """
    Write which times a bar stands for.

    Args:
        bucket: As the operation tells it.
        now_ms: The instant that is shown.
    """
    begin, end = bucket["from_ms"] - now_ms, bucket["to_ms"] - now_ms
    if end <= 0:
        return "overdue"
    if begin < 1000:  # brokers look a moment earlier or later than the page
        return f"within {far(round(end, -3))}"
    return f"in {far(begin)} to {far(end)}"


def shown(buckets: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out the empty bars at the end; there is always one left of what there was."""
    last = max((i for i, each in enumerate(buckets) if each["messages"]), default=0)
    return list(buckets[: last + 1])


def draw_due(buckets: Sequence[Mapping[str, Any]], now_ms: int, box: Box) -> Histogram | None:
    """
    Draw how many messages are due when, or nothing when none waits.

    Args:
        buckets: As the operation tells them, in order of time.
        now_ms: The instant that is shown.
        box: How large.
    """
    kept = shown(buckets)
    most = max((each["messages"] for each in kept), default=0)
    if not most:
        return None
    top, step = round_top(most)
    lines = [step * i for i in range(round(top / step) + 1) if (step * i).is_integer()]
    share = 1 / len(kept)
    wide = (box.x(1) - box.x(0)) * share
    slots = []
    for index, each in enumerate(kept):
        count = each["messages"]
        if not count:
            continue
        height = max(_LEAST, box.y(0) - box.y(count / top))
        slots.append(
            Slot(
                x=f"{box.x(index * share) + 0.5:.1f}",
                y=f"{box.y(0) - height:.1f}",
                width=f"{max(1.0, min(wide - 1, 48)):.1f}",
                height=f"{height:.1f}",
                title=f"{plural(count, 'message')} {window(each, now_ms)}",
                late=each["to_ms"] <= now_ms,
            )
        )
    total = sum(each["messages"] for each in kept)
    largest = max(kept, key=lambda each: each["messages"])
    return Histogram(
        width=box.width,
        height=box.height,
        left=box.left,
        grid=tuple((f"{box.y(v / top):.1f}", axis_number(v)) for v in lines),
        ticks=_ticks(kept, now_ms, box, share),
        slots=tuple(slots),
        sentence=(
            f"{plural(total, 'message')} by due time; most, {largest['messages']:,}, "
            f"are {'' if largest['to_ms'] <= now_ms else 'due '}{window(largest, now_ms)}"
        ),
    )


def _ticks(
    kept: Sequence[Mapping[str, Any]], now_ms: int, box: Box, share: float
) -> tuple[tuple[str, str, str], ...]:
    """Write where bars begin, as often as there is room."""
    every = max(1, -(-len(kept) * _TICK // (box.width - box.left)))
    found = []
    for index in range(0, len(kept), every):
        begin = kept[index]["from_ms"] - now_ms
        text = "now" if abs(begin) < 1000 else "late" if begin < 0 else far(begin)
        found.append((f"{box.x(index * share):.1f}", text, ""))
    end = kept[-1]["to_ms"] - now_ms
    if box.x(1) - float(found[-1][0]) >= 1.4 * _TICK:
        found.append((f"{box.x(1):.1f}", far(max(0, end)), "e"))
    return tuple(found)
