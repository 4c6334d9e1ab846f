"""
Where exchanges and topics stand in a picture: in which layer, and how high.

Layers go from left to right: whatever sends stands left of what it sends to. A line
that is longer than one layer gets a place of its own in each layer between, so that it
runs past the boxes there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

#: Characters of a label on its line.
LABEL: Final = 20
#: Above the highest box.
MARGIN: Final = 14
#: From the middle of a box to that of the next below, and likewise for lines that pass.
_STEP: Final = 54.0
_PASS: Final = 22.0
_SWEEPS: Final = 6


def shortened(text: str, most: int) -> str:
    """
    Shorten a text in its middle.

    Args:
        text: The text.
        most: Most characters that are left.
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


@define
class Spot:
    """
    A box, or a line that passes, in a layer.

    Attributes:
        name: Of the exchange or topic.
        layer: Which layer, from the left.
        passing: Whether it is a line that passes.
        y: Its middle.
        left: What leads to it from the layer before.
        right: What it leads to in the layer behind.
    """

    name: str
    layer: int
    passing: bool = False
    y: float = 0.0
    left: list[Spot] = field(factory=list, repr=False)
    right: list[Spot] = field(factory=list, repr=False)

    @property
    def room(self) -> float:
        """How much of its layer's height it needs."""
        return _PASS if self.passing else _STEP


@define
class Line:
    """
    A line before it is drawn.

    Attributes:
        source: Name of the exchange.
        target: Name of what it sends to.
        dead: Whether it takes what is unroutable.
        labels: Of its bindings.
        ids: Of its bindings.
        spots: Its ends, and where it passes in between.
    """

    source: str
    target: str
    dead: bool
    labels: list[str]
    ids: list[str]
    spots: list[Spot] = field(factory=list)

    @property
    def label(self) -> str:
        """What is written on it."""
        if self.dead:
            return "unroutable"
        first = shortened(next(filter(None, self.labels), ""), LABEL)
        more = f" +{len(self.labels) - 1}" if len(self.labels) > 1 else ""
        return first + more

    @property
    def title(self) -> str:
        """All of what it says."""
        said = "what is unroutable" if self.dead else "; ".join(filter(None, self.labels[:12]))
        return f"{self.source} to {self.target}: {said or 'everything'}"


def lines_of(edges: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[Line]:
    """
    Put bindings together that lead to the same target.

    Args:
        edges: One for each binding.
        names: Of the boxes that are drawn; other lines are left out.
    """
    found: dict[tuple[str, str, bool], Line] = {}
    for edge in edges:
        key = (edge["from"], edge["to"], bool(edge["dead_letter"]))
        if key[0] not in names or key[1] not in names or key[0] == key[1]:
            continue
        line = found.setdefault(key, Line(*key, [], []))
        line.labels.append(str(edge["label"] or ""))
        line.ids.append(str(edge["id"] or ""))
    return list(found.values())


def layers_of(names: Sequence[str], lines: Sequence[Line]) -> dict[str, int]:
    """
    Give every box a layer: one more than the last of those that send to it.

    Args:
        names: Of the boxes.
        lines: Those between them; one that would close a circle does not count.
    """
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


def spots_of(layer: Mapping[str, int], lines: Iterable[Line]) -> list[list[Spot]]:
    """
    Make the layers with all that stands or passes in them.

    Args:
        layer: The layer of each box.
        lines: Are told their places.
    """
    rows: list[list[Spot]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    boxes = {name: Spot(name, at) for name, at in layer.items()}
    for spot in boxes.values():
        rows[spot.layer].append(spot)
    for line in lines:
        start, end = boxes[line.source], boxes[line.target]
        line.spots = [start]
        for at in range(start.layer + 1, end.layer):
            line.spots.append(Spot(f"{line.source}>{line.target}", at, passing=True))
            rows[at].append(line.spots[-1])
        line.spots.append(end)
        for one, other in zip(line.spots, line.spots[1:], strict=False):
            one.right.append(other)
            other.left.append(one)
    return rows


def _mean(spots: Sequence[Spot], missing: float) -> float:
    return sum(spot.y for spot in spots) / len(spots) if spots else missing


def _stack(row: list[Spot]) -> None:
    """Give a layer its heights in the order that it has."""
    y = 0.0
    for spot in row:
        spot.y = y + spot.room / 2
        y += spot.room


def _settle(row: list[Spot], wanted: Sequence[float], height: float) -> None:
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


def place(rows: list[list[Spot]]) -> None:
    """
    Order the layers so that few lines cross, then draw them near to their neighbours.

    Args:
        rows: The layers from left to right; the order in each is changed.
    """
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
            spot.y += MARGIN - top
