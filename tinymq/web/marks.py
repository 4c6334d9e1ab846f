"""
The smallest parts of pages, as markup: icons, states, small curves, bars, sizes, ages.

A table of fifty rows has hundreds of them, and each costs a macro several
times what it costs here. Whatever a stranger may have written is escaped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from tinymq.stats import Series
from tinymq.web import charts
from tinymq.web import format as write

#: The inside of every icon, in a box of 16 by 16.
ICONS: Final = {
    "home": '<path d="M2.5 13.5V8M6.2 13.5v-8M9.8 13.5V9.5M13.5 13.5v-11"/>',
    "topic": '<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h7"/>',
    "find": '<circle cx="7" cy="7" r="4"/><path d="M10 10l3.5 3.5"/>',
    "ok": '<circle cx="8" cy="8" r="6"/><path d="M5.5 8.200l1.8 1.8 3.3-3.8"/>',
    "warn": '<path d="M8 2.300l6.2 11.200H1.800zM8 6.500v3M8 11.500v.01"/>',
    "bad": '<path d="M5.5 2h5L14 5.500v5L10.5 14h-5L2 10.500v-5zM8 5v3.500M8 11v.01"/>',
    "up": '<path d="M3 12l4-4 2 2 4-5M9.5 5H13v3.5"/>',
    "pause": '<path d="M5.5 3.500v9M10.5 3.500v9"/>',
    "play": '<path d="M5 3.500v9l7-4.500z"/>',
    "idle": '<circle cx="8" cy="8" r="5"/>',
    "run": (
        '<circle cx="8" cy="8" r="6"/>'
        '<circle cx="8" cy="8" r="2.5" fill="currentColor" stroke="none"/>'
    ),
    "redo": '<path d="M13 8a5 5 0 1 1-1.6-3.700M13 2.500v2.500h-2.5"/>',
    "undo": '<path d="M3 6.500h6.500a3.5 3.5 0 0 1 0 7H6M5.5 3.500l-3 3 3 3"/>',
    "time": '<circle cx="8" cy="8" r="6"/><path d="M8 4.500V8l2.5 1.5"/>',
    "pub": '<path d="M8 13V3M4 7l4-4 4 4"/>',
    "dlv": '<path d="M2.5 8h11M9.5 4l4 4-4 4"/>',
    "copy": (
        '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M3.5 10.500h-1v-8h8v1"/>'
    ),
    "term": '<path d="M3 4.500l3.5 3.500L3 11.500M8.5 12h4.5"/>',
    "dl": '<path d="M8 2.500v8M4.5 7.500L8 11l3.5-3.500M3 13.500h10"/>',
    "theme": (
        '<circle cx="8" cy="8" r="5.5"/>'
        '<path d="M8 2.500a5.5 5.5 0 0 1 0 11z" fill="currentColor"/>'
    ),
    "prev": '<path d="M10 3.500L5.5 8l4.5 4.5"/>',
    "next": '<path d="M6 3.500l4.5 4.500L6 12.5"/>',
    "eye": '<path d="M1.5 8c3-5 10-5 13 0-3 5-10 5-13 0z"/><circle cx="8" cy="8" r="1.8"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "cluster": (
        '<rect x="2.5" y="2.5" width="11" height="4.5" rx="1"/>'
        '<rect x="2.5" y="9" width="11" height="4.5" rx="1"/>'
        '<path d="M5 4.800h.01M5 11.300h.01"/>'
    ),
    "client": '<rect x="2.5" y="3" width="11" height="8" rx="1"/><path d="M6 13.500h4"/>',
    "channel": '<path d="M2.5 8h4M6.5 8l3-4h4M6.5 8l3 4h4"/>',
    "group": (
        '<circle cx="6" cy="5.5" r="2.5"/><path d="M1.500 13.500c0-5 9-5 9 0"/>'
        '<path d="M10.500 3.200a2.500 2.500 0 0 1 0 4.600"/>'
        '<path d="M12 9.800c1.600.5 2.500 1.700 2.500 3.700"/>'
    ),
    "txn": '<path d="M5 2.500H2.500v11H5M11 2.500h2.500v11H11M5.500 8l2 2 3.500-4"/>',
    "dead": ('<path d="M2.5 9.500l2-6h7l2 6V13h-11zM2.5 9.500H6l1 1.500h2l1-1.500h3.500"/>'),
    "seek": '<path d="M3 3.500v9M13 3.500L6 8l7 4.500z"/>',
    "glass": (
        '<path d="M4 2.500h8M4 13.500h8M5 2.500v2.500l3 3 3-3V2.500M5 13.500V11l3-3 3 3v2.500"/>'
    ),
    "clock": (
        '<rect x="2.5" y="3.5" width="11" height="10" rx="1.5"/>'
        '<path d="M2.5 6.500h11M5.5 2v2.500M10.5 2v2.500M8 8.500v2l1.5 1"/>'
    ),
    "fork": '<path d="M2 8h3.5L9 3.500h4M5.5 8H13M5.500 8L9 12.500h4"/>',
    "push": '<path d="M2.5 4v8M5.500 8h8M10 4.500L13.500 8 10 11.500"/>',
    "x": '<path d="M4 4l8 8M12 4l-8 8"/>',
}


@lru_cache(maxsize=128)
def icon(name: str, colour: str = "") -> Markup:
    """
    Draw an icon. It says nothing by itself: a word stands beside it.

    Args:
        name: Which one.
        colour: Its class, such as ``bad``; empty for the colour of the text.
    """
    more = f" {colour}" if colour else ""
    return Markup(  # noqa: S704
        f'<svg class="i{more}" viewBox="0 0 16 16" aria-hidden="true">{ICONS[name]}</svg>'
    )


@lru_cache(maxsize=512)
def state(name: str, word: object, colour: str = "", pill: bool = False) -> Markup:
    """
    Write a state: an icon and a word; the colour comes third.

    Args:
        name: Of the icon.
        word: What is so.
        colour: Its class; empty for the colour of the text.
        pill: Give it a soft fill; only beside an h1.
    """
    more = (f" {colour}" if colour else "") + (" pill" if pill else "")
    return Markup(f'<span class="st{more}">{icon(name)}{escape(word)}</span>')  # noqa: S704


def spark(series: Series | None, width: int = 72, colour: str = "") -> Markup:
    """
    Draw a small curve, or nothing when there is nothing to see.

    Args:
        series: The values.
        width: Of the box, in pixels.
        colour: ``g`` for a grey line without an area; empty for the accent.
    """
    drawn = charts.spark(series, width)
    return Markup() if drawn is None else _spark(drawn, colour)


@lru_cache(maxsize=512)
def _spark(drawn: charts.Spark, colour: str) -> Markup:
    area, dot = f'<polygon class="ar" points="{drawn.area}"/>', ""
    if colour:
        area = ""
    else:
        dot = f'<circle class="spd" cx="{drawn.end[0]}" cy="{drawn.end[1]}" r="1.8"/>'
    line = f'<polyline class="sp{" " + colour if colour else ""}" points="{drawn.line}"/>'
    size = f'width="{drawn.width}" height="{drawn.height}"'
    box = f'viewBox="0 0 {drawn.width} {drawn.height}"'
    return Markup(f'<svg {size} {box} aria-hidden="true">{area}{line}{dot}</svg>')  # noqa: S704


def bar(share: float, width: int = 96, tick: float | None = None, colour: str = "g") -> Markup:
    """
    Draw a bar. It never stands without its number.

    Args:
        share: How full it is, from 0 to 1.
        width: Of the track, in pixels.
        tick: Where the limit is that hurts, from 0 to 1.
        colour: ``g`` quiet, ``w`` near the limit, ``b`` over it.
    """
    one = charts.bar(share, width, tick)
    mark = f'<path class="lim" d="M{one.tick} -2v10"/>' if one.tick else ""
    return Markup(  # noqa: S704
        f'<svg width="{one.width}" height="10" viewBox="0 -2 {one.width} 10" aria-hidden="true">'
        f'<rect class="tr" width="{one.width}" height="6" rx="3"/>'
        f'<rect class="fl {colour}" width="{one.fill}" height="6" rx="{one.radius}"/>{mark}</svg>'
    )


def size(value: float | None) -> Markup:
    """Write bytes as people read them, with all digits on hover."""
    if value is None:
        return Markup('<span title="Not known here">\N{EN DASH}</span>')
    short = write.size(value)
    title = f'title="{write.number(value)} bytes"'
    return Markup(f"<span {title}>{short.figure} {short.unit}</span>")  # noqa: S704


def ago(times: write.Times, ms: int | None) -> Markup:
    """
    Write a time as its age, with the absolute one on hover.

    Args:
        times: Writes times for who looks.
        ms: The time; None when there was none.
    """
    if ms is None:
        return Markup('<span title="Never written">\N{EN DASH}</span>')
    title = escape(times.full(ms))
    return Markup(  # noqa: S704
        f'<time datetime="{times.iso(ms)}" title="{title}">{escape(times.age(ms))}</time>'
    )
