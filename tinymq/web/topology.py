"""
The picture of exchanges and topics: where each stands, and how lines run between them.

Nothing here knows of pages; templates write the result down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from tinymq.web.layering import MARGIN, Line, Spot, layers_of, lines_of, place, shortened, spots_of

#: Boxes that one picture has at most.
MOST_NODES: Final = 60
#: Lines that it has at most.
MOST_LINES: Final = 240
#: Characters of a name in its box.
_NAME: Final = 22
_WIDTH: Final = 172
_HEIGHT: Final = 40
#: Length of an arrow head.
_TIP: Final = 7
#: Between two layers.
_LEAST_GAP: Final = 64
_CHARACTER: Final = 6.7
#: Where on a line its label may stand, the best place first.
_PLACES: Final = (0.58, 0.66, 0.5, 0.74, 0.4, 0.3, 0.82)


@frozen(kw_only=True)
class Box:
    """
    An exchange or a topic in the picture.

    Attributes:
        name: Its whole name.
        label: The name as it is written.
        exchange: The kind of exchange; empty for a topic.
        x: The left edge.
        y: The middle.
        width: Of the box.
        height: Of the box.
        hot: Whether the message that was asked about comes here.
    """

    name: str
    label: str
    exchange: str
    x: float
    y: float
    width: int = _WIDTH
    height: int = _HEIGHT
    hot: bool = False

    @property
    def outline(self) -> str:
        """The outline: exchanges have points to both sides, topics are plain."""
        top, half = self.y - self.height / 2, self.height / 2
        if self.exchange:
            return (
                f"M{self.x:.1f} {self.y:.1f}l10 -{half:.1f}h{self.width - 20}"
                f"l10 {half:.1f}l-10 {half:.1f}h-{self.width - 20}z"
            )
        return f"M{self.x:.1f} {top:.1f}h{self.width}v{self.height}h-{self.width}z"


@frozen(kw_only=True)
class Wire:
    """
    A line of the picture: one binding or several to the same target, or the dead letters.

    Attributes:
        source: Name of the exchange.
        target: Name of what it sends to.
        path: How the line runs.
        label: What is written on it.
        title: All of what it says.
        at: Where the label stands; its middle.
        dead: Whether it takes what is unroutable.
        hot: Whether the message that was asked about goes this way.
        head: The arrow head.
    """

    source: str
    target: str
    path: str
    label: str
    title: str
    at: tuple[float, float]
    dead: bool
    hot: bool
    head: str


@frozen(kw_only=True)
class Drawing:
    """
    The picture.

    Attributes:
        width: Of all.
        height: Of all.
        boxes: From left to right.
        wires: Those of the message that was asked about last, so that they lie on top.
        more: Exchanges and topics that are not drawn.
        more_wires: Lines that are not drawn.
    """

    width: int
    height: int
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    more: int = 0
    more_wires: int = 0

    @property
    def sentence(self) -> str:
        """The picture in words."""
        exchanges = sum(bool(each.exchange) for each in self.boxes)
        return (
            f"{exchanges} exchanges and {len(self.boxes) - exchanges} topics, "
            f"{len(self.wires)} lines between them"
        )


def chosen(
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Mapping[str, Any]],
    first: Iterable[str] = (),
    most: int = MOST_NODES,
) -> list[str]:
    """
    Choose which boxes are drawn: what is near the first ones, then exchanges, then topics.

    Args:
        nodes: All of them.
        edges: All lines.
        first: Names of those that must be seen.
        most: How many are drawn.
    """
    known = {node["name"]: node for node in nodes}
    near: dict[str, list[str]] = {}
    for edge in edges:
        near.setdefault(edge["from"], []).append(edge["to"])
        near.setdefault(edge["to"], []).append(edge["from"])
    exchanges = [name for name, node in known.items() if node["kind"] == "exchange"]
    exchanges.sort(key=lambda name: -len(near.get(name, ())))
    starts = [*(name for name in first if name in known), *exchanges, *known]
    found: dict[str, None] = {}
    for start in starts:
        waiting = [start]
        while waiting and len(found) < most:
            name = waiting.pop(0)
            if name in found or name not in known:
                continue
            found[name] = None
            waiting += near.get(name, ())
    return list(found)


def _columns(rows: Sequence[Sequence[Spot]], lines: Iterable[Line]) -> list[float]:
    """Say where each layer begins; a gap is as wide as the longest label in it."""
    gaps = [float(_LEAST_GAP)] * max(0, len(rows) - 1)
    for line in lines:
        last = max(line.spots[0].layer, line.spots[-1].layer) - 1
        if 0 <= last < len(gaps):
            gaps[last] = max(gaps[last], len(line.label) * _CHARACTER + 56)
    found = [float(MARGIN)]
    for gap in gaps:
        found.append(found[-1] + _WIDTH + gap)
    return found


Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]


def _curve(start: Point, end: Point) -> Curve:
    bend = (end[0] - start[0]) / 2
    return start, (start[0] + bend, start[1]), (end[0] - bend, end[1]), end


def _bent(curve: Curve) -> str:
    return " C" + " ".join(f"{x:.1f} {y:.1f}" for x, y in curve[1:])


def _at(curve: Curve, t: float) -> Point:
    s = 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    x = sum(w * p[0] for w, p in zip(weights, curve, strict=True))
    return x, sum(w * p[1] for w, p in zip(weights, curve, strict=True))


@define
class _Pen:
    """Draws lines, and keeps their labels apart."""

    columns: Sequence[float]
    taken: list[tuple[float, float, float]] = field(factory=list)

    def wire(self, line: Line, hot: Collection[tuple[str, str]]) -> Wire:
        """Draw one line."""
        way = self._back if _backwards(line) else self._forth
        path, curve, head = way(line.spots)
        return Wire(
            source=line.source,
            target=line.target,
            path=path,
            label=line.label,
            title=line.title,
            at=self._label(line.label, curve),
            dead=line.dead,
            hot=(line.source, line.target) in hot,
            head=head,
        )

    def _forth(self, spots: Sequence[Spot]) -> tuple[str, Curve, str]:
        """From the right of a box to the left of another, straight past those between."""
        x, y = self.columns[spots[0].layer] + _WIDTH, spots[0].y
        path, curve = f"M{x:.1f} {y:.1f}", _curve((x, y), (x, y))
        for spot in spots[1:]:
            left = self.columns[spot.layer] - (0 if spot.passing else _TIP)
            curve = _curve((x, y), (left, spot.y))
            path += _bent(curve)
            x, y = self.columns[spot.layer] + _WIDTH, spot.y
            if spot.passing:
                path += f"H{x:.1f}"
        end = curve[-1]
        return path, curve, f"M{end[0] + _TIP:.1f} {end[1]:.1f}l-8 -4v8z"

    def _back(self, spots: Sequence[Spot]) -> tuple[str, Curve, str]:
        """A bow below both boxes: there is a circle, so what sends is on the right."""
        first, last = spots[0], spots[-1]
        x, y = self.columns[first.layer] + _WIDTH / 2, first.y + _HEIGHT / 2
        end = (self.columns[last.layer] + _WIDTH / 2 + 12, last.y + _HEIGHT / 2 + _TIP)
        low = max(first.y, last.y) + _HEIGHT
        curve = ((x, y), (x, low), (end[0], low), end)
        head = f"M{end[0]:.1f} {end[1] - _TIP:.1f}l-4 8h8z"
        return f"M{x:.1f} {y:.1f}{_bent(curve)}", curve, head

    def _label(self, label: str, curve: Curve) -> Point:
        """Find a place on a line that no other label has."""
        half = len(label) * _CHARACTER / 2 + 2
        spots = [_at(curve, t) for t in _PLACES]
        free = (p for p in spots if label and not self._hits(p, half))
        x, y = next(free, spots[0])
        if label:
            self.taken.append((x, y, half))
        return round(x, 1), round(y, 1)

    def _hits(self, point: Point, half: float) -> bool:
        x, y = point
        return any(abs(y - top) < 13 and abs(x - at) < half + wide for at, top, wide in self.taken)


def _backwards(line: Line) -> bool:
    return line.spots[0].layer >= line.spots[-1].layer


def draw(
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Mapping[str, Any]],
    *,
    first: Iterable[str] = (),
    hot: Collection[tuple[str, str]] = (),
    reached: Collection[str] = (),
    most: int = MOST_NODES,
) -> Drawing | None:
    """
    Draw exchanges and topics, or nothing when there are none.

    Args:
        nodes: Each with ``name``, ``kind`` and ``exchange_kind``.
        edges: Each with ``from``, ``to``, ``id``, ``label`` and ``dead_letter``.
        first: Names of those that are drawn in any case.
        hot: Lines that are marked, by their ends.
        reached: Boxes that are marked.
        most: Boxes that are drawn.
    """
    names = chosen(nodes, edges, first, most)
    if not names:
        return None
    kinds = {node["name"]: node for node in nodes}
    lines = lines_of(edges, names)
    marked = {frozenset(pair) for pair in hot}
    lines.sort(key=lambda line: frozenset((line.source, line.target)) not in marked)
    kept = lines[:MOST_LINES]
    rows = spots_of(layers_of(names, kept), kept)
    place(rows)
    columns = _columns(rows, kept)
    pen = _Pen(columns)
    wires = [pen.wire(line, hot) for line in kept]
    boxes = [
        Box(
            name=spot.name,
            label=shortened(spot.name, _NAME),
            exchange=(kinds[spot.name].get("exchange_kind") or "exchange")
            if kinds[spot.name]["kind"] == "exchange"
            else "",
            x=round(columns[spot.layer], 1),
            y=round(spot.y, 1),
            hot=spot.name in reached,
        )
        for row in rows
        for spot in row
        if not spot.passing
    ]
    low = max(spot.y + spot.room / 2 for row in rows for spot in row)
    return Drawing(
        width=round(columns[-1] + _WIDTH + MARGIN),
        height=round(low + MARGIN + (_HEIGHT / 2 if any(map(_backwards, kept)) else 0)),
        boxes=tuple(boxes),
        wires=tuple(sorted(wires, key=lambda wire: wire.hot)),
        more=len(kinds) - len(names),
        more_wires=len(lines) - len(kept),
    )
