"""
The picture of exchanges and topics: where each stands, and how lines run between them.

Layers go from left to right: whatever sends stands left of what it sends to. A line
that is longer than one layer gets a place of its own in each layer between, so that it
runs past the boxes there. Nothing here knows of pages; templates write the result down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

#: Boxes that one picture has at most.
MOST_NODES: Final = 60
#: Lines that it has at most.
MOST_LINES: Final = 240
#: Characters of a name in its box, and of a label on its line.
_NAME: Final = 22
_LABEL: Final = 20
_WIDTH: Final = 172
_HEIGHT: Final = 40
#: From the middle of a box to that of the next below, and likewise for lines that pass.
_STEP: Final = 54.0
_PASS: Final = 22.0
#: Between two layers.
_LEAST_GAP: Final = 64
_CHARACTER: Final = 6.7
_MARGIN: Final = 14
_SWEEPS: Final = 6
#: Where on a line its label may stand, the best place first.
_PLACES: Final = (0.58, 0.66, 0.5, 0.74, 0.4, 0.3, 0.82)


def shortened(text: str, most: int) -> str:
    """Write a text with at most so many characters; what is cut off is in the middle."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


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


@define
class _Spot:
    """A box, or a line that passes, in a layer."""

    name: str
    layer: int
    passing: bool = False
    y: float = 0.0
    left: list[_Spot] = field(factory=list, repr=False)
    right: list[_Spot] = field(factory=list, repr=False)

    @property
    def room(self) -> float:
        return _PASS if self.passing else _STEP


@define
class _Line:
    """A line before it is drawn."""

    source: str
    target: str
    dead: bool
    labels: list[str]
    ids: list[str]
    spots: list[_Spot] = field(factory=list)

    @property
    def label(self) -> str:
        if self.dead:
            return "unroutable"
        first = shortened(next(filter(None, self.labels), ""), _LABEL)
        more = f" +{len(self.labels) - 1}" if len(self.labels) > 1 else ""
        return first + more

    @property
    def title(self) -> str:
        said = "what is unroutable" if self.dead else "; ".join(filter(None, self.labels[:12]))
        return f"{self.source} to {self.target}: {said or 'everything'}"


def _lines(edges: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[_Line]:
    """Put bindings together that lead to the same target."""
    found: dict[tuple[str, str, bool], _Line] = {}
    for edge in edges:
        key = (edge["from"], edge["to"], bool(edge["dead_letter"]))
        if key[0] not in names or key[1] not in names or key[0] == key[1]:
            continue
        line = found.setdefault(key, _Line(*key, [], []))
        line.labels.append(str(edge["label"] or ""))
        line.ids.append(str(edge["id"] or ""))
    return list(found.values())


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


def _layers(names: Sequence[str], lines: Sequence[_Line]) -> dict[str, int]:
    """Give every box a layer: one more than the last of those that send to it."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for line in sorted(lines, key=lambda each: each.dead):
        if not _reaches(after, line.target, line.source):  # a circle is drawn backwards
            after[line.source].append(line.target)
    before = dict.fromkeys(names, 0)
    for targets in after.values():
        for target in targets:
            before[target] += 1
    layer = dict.fromkeys(names, 0)
    waiting = [name for name in names if not before[name]]
    while waiting:
        name = waiting.pop(0)
        for target in after[name]:
            layer[target] = max(layer[target], layer[name] + 1)
            before[target] -= 1
            if not before[target]:
                waiting.append(target)
    return layer


def _reaches(after: Mapping[str, Sequence[str]], start: str, end: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        name = waiting.pop()
        if name == end:
            return True
        for target in after[name]:
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return False


def _spots(layer: Mapping[str, int], lines: Iterable[_Line]) -> list[list[_Spot]]:
    """Make the layers with all that stands or passes in them."""
    rows: list[list[_Spot]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    boxes = {name: _Spot(name, at) for name, at in layer.items()}
    for spot in boxes.values():
        rows[spot.layer].append(spot)
    for line in lines:
        start, end = boxes[line.source], boxes[line.target]
        line.spots = [start]
        for at in range(start.layer + 1, end.layer):
            line.spots.append(_Spot(f"{line.source}>{line.target}", at, passing=True))
            rows[at].append(line.spots[-1])
        line.spots.append(end)
        for one, other in zip(line.spots, line.spots[1:], strict=False):
            one.right.append(other)
            other.left.append(one)
    return rows


def _mean(spots: Sequence[_Spot], missing: float) -> float:
    return sum(spot.y for spot in spots) / len(spots) if spots else missing


def _stack(row: list[_Spot]) -> None:
    """Give a layer its heights in the order that it has."""
    y = 0.0
    for spot in row:
        spot.y = y + spot.room / 2
        y += spot.room


def _settle(row: list[_Spot], wanted: Sequence[float], height: float) -> None:
    """
    Move a layer near to where it wants to be, keeping its order and its distances.

    Args:
        row: The layer, from top to bottom.
        wanted: The heights that it wants.
        height: Of the highest layer; none gets higher, or pictures would drift apart.
    """
    least = 0.0
    for spot, y in zip(row, wanted, strict=True):
        spot.y = max(y, least + spot.room / 2)
        least = spot.y + spot.room / 2
    shift = sum(y - spot.y for spot, y in zip(row, wanted, strict=True)) / max(1, len(row))
    most = height
    for spot in row[::-1]:
        spot.y = min(spot.y + shift, most - spot.room / 2)
        most = spot.y - spot.room / 2
    least = 0.0
    for spot in row:
        spot.y = max(spot.y, least + spot.room / 2)
        least = spot.y + spot.room / 2


def _place(rows: list[list[_Spot]]) -> None:
    """Order the layers so that few lines cross, then draw them near to their neighbours."""
    for row in rows:
        _stack(row)
    for sweep in range(_SWEEPS):
        left = sweep % 2 == 0
        for row in rows if left else rows[::-1]:
            order = {id(s): _mean(s.left if left else s.right, s.y) for s in row}
            row.sort(key=lambda spot: order[id(spot)])
            _stack(row)
    height = max(sum(spot.room for spot in row) for row in rows)
    for sweep in range(_SWEEPS):
        left = sweep % 2 == 0
        for row in rows if left else rows[::-1]:
            _settle(row, [_mean(s.left if left else s.right, s.y) for s in row], height)
    for row in rows:  # the last word has what is on both sides
        _settle(row, [_mean([*s.left, *s.right], s.y) for s in row], height)
    top = min((s.y - s.room / 2 for row in rows for s in row), default=0)
    for row in rows:
        for spot in row:
            spot.y += _MARGIN - top


def _columns(rows: Sequence[Sequence[_Spot]], lines: Iterable[_Line]) -> list[float]:
    """Say where each layer begins; a gap is as wide as the longest label in it."""
    gaps = [float(_LEAST_GAP)] * max(0, len(rows) - 1)
    for line in lines:
        last = max(line.spots[0].layer, line.spots[-1].layer) - 1
        if 0 <= last < len(gaps):
            gaps[last] = max(gaps[last], len(line.label) * _CHARACTER + 56)
    found = [float(_MARGIN)]
    for gap in gaps:
        found.append(found[-1] + _WIDTH + gap)
    return found


Point = tuple[float, float]


def _curve(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    bend = (end[0] - start[0]) / 2
    return start, (start[0] + bend, start[1]), (end[0] - bend, end[1]), end


def _at(curve: tuple[Point, Point, Point, Point], t: float) -> Point:
    s = 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    x = sum(w * p[0] for w, p in zip(weights, curve, strict=True))
    return x, sum(w * p[1] for w, p in zip(weights, curve, strict=True))


@define
class _Pen:
    """Draws lines, and keeps their labels apart."""

    columns: Sequence[float]
    taken: list[tuple[float, float, float]] = field(factory=list)

    def wire(self, line: _Line, hot: Collection[tuple[str, str]]) -> Wire:
        """Draw one line."""
        first, last = line.spots[0], line.spots[-1]
        forth = first.layer < last.layer
        points: list[Point] = [(self.columns[first.layer] + _WIDTH, first.y)]
        for spot in line.spots[1:-1]:
            points += [
                (self.columns[spot.layer], spot.y),
                (self.columns[spot.layer] + _WIDTH, spot.y),
            ]
        end = (self.columns[last.layer] - 7, last.y)
        if not forth:  # backwards, in a bow below both
            points = [(self.columns[first.layer] + _WIDTH / 2, first.y + _HEIGHT / 2)]
            end = (self.columns[last.layer] + _WIDTH / 2 + 12, last.y + _HEIGHT / 2 + 7)
        points.append(end)
        path, curve = f"M{points[0][0]:.1f} {points[0][1]:.1f}", _curve(points[0], points[1])
        if not forth:
            low = max(first.y, last.y) + _HEIGHT
            curve = (points[0], (points[0][0], low), (end[0], low), end)
        for index in range(0, len(points) - 1, 2):
            curve = _curve(points[index], points[index + 1]) if forth else curve
            path += " C" + " ".join(f"{x:.1f} {y:.1f}" for x, y in curve[1:])
            if index + 2 < len(points):
                path += f"H{points[index + 2][0]:.1f}"
        x, y = end
        head = f"M{x + 7:.1f} {y:.1f}l-8 -4v8z" if forth else f"M{x:.1f} {y - 7:.1f}l-4 8h8z"
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

    def _label(self, label: str, curve: tuple[Point, Point, Point, Point]) -> Point:
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
    lines = _lines(edges, names)
    marked = {frozenset(pair) for pair in hot}
    lines.sort(key=lambda line: frozenset((line.source, line.target)) not in marked)
    kept = lines[:MOST_LINES]
    rows = _spots(_layers(names, kept), kept)
    _place(rows)
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
        width=round(columns[-1] + _WIDTH + _MARGIN),
        height=round(low + _MARGIN),
        boxes=tuple(boxes),
        wires=tuple(sorted(wires, key=lambda wire: wire.hot)),
        more=len(kinds) - len(names),
        more_wires=len(lines) - len(kept),
    )
