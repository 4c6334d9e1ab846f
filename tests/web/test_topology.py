"""The picture of exchanges and topics: layers, lines that go round boxes, bounds."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Any

from tinymq.web.layering import shortened
from tinymq.web.topology import MOST_LINES, MOST_NODES, Drawing, chosen, draw

Json = dict[str, Any]


def node(name: str, kind: str = "") -> Json:
    """Make an exchange of a kind, or a topic."""
    return {
        "name": name,
        "kind": "exchange" if kind else "topic",
        "exchange_kind": kind or None,
        "dead_letter": None,
    }


def edge(source: str, target: str, label: str = "", *, dead: bool = False, id_: str = "1") -> Json:
    """Make a line."""
    return {"from": source, "to": target, "id": id_, "label": label, "dead_letter": dead}


def drawn(nodes: list[Json], edges: list[Json], **more: Any) -> Drawing:
    """Draw what there is."""
    found = draw(nodes, edges, **more)
    assert found is not None
    return found


def places(found: Drawing) -> dict[str, tuple[float, float]]:
    """Say where each box is."""
    return {box.name: (box.x, box.y) for box in found.boxes}


CHAIN = [node("a", "topic"), node("b", "direct"), node("c"), node("a.unroutable")]
WAYS = [
    edge("a", "b", "x.#"),
    edge("b", "c", "k"),
    edge("a", "c", "*.y"),
    edge("a", "a.unroutable", dead=True),
]


def test_nothing_is_no_picture() -> None:
    """Without exchanges and topics there is nothing to draw."""
    assert draw([], []) is None


def test_what_sends_is_left_of_what_it_sends_to() -> None:
    """Layers go from left to right, however the lines are listed."""
    for edges in (WAYS, WAYS[::-1]):
        at = places(drawn(CHAIN, edges))
        assert at["a"][0] < at["b"][0] < at["c"][0]
        assert at["a"][0] < at["a.unroutable"][0]


def test_boxes_and_shapes_differ() -> None:
    """Exchanges have points, topics have none, and both say what they are."""
    found = {box.name: box for box in drawn(CHAIN, WAYS).boxes}

    assert found["a"].exchange == "topic"
    assert found["c"].exchange == ""
    assert found["a"].outline.count("l") == 3
    assert "l" not in found["c"].outline


def test_no_boxes_overlap_and_all_lies_inside() -> None:
    """In a layer, one box stands below the other; nothing sticks out."""
    edges = [edge(f"x{i}", f"t{i * 7 % 20 + j}", "k") for i in range(8) for j in range(3)]
    nodes = [node(f"x{i}", "direct") for i in range(8)] + [node(f"t{i}") for i in range(23)]
    found = drawn(nodes, edges)
    by_layer: dict[float, list[float]] = {}
    for box in found.boxes:
        by_layer.setdefault(box.x, []).append(box.y)
        assert 0 <= box.x <= found.width - box.width
        assert box.height / 2 <= box.y <= found.height - box.height / 2

    for column in by_layer.values():
        assert all(b - a >= 40 for a, b in pairwise(sorted(column)))
    for wire in found.wires:
        assert 0 < wire.at[0] < found.width
        assert 0 < wire.at[1] < found.height


def test_picture_is_as_high_as_its_fullest_layer() -> None:
    """Layers do not drift apart, however their lines pull."""
    edges = [edge(f"x{i}", f"x{i + 1}", "k") for i in range(7)]
    edges += [edge(f"x{i}", f"t{i * 3 + j}", "k") for i in range(8) for j in range(3)]
    edges += [edge(f"x{i}", f"t{(i * 11 + 5) % 24}", "k") for i in range(8)]
    nodes = [node(f"x{i}", "direct") for i in range(8)] + [node(f"t{i}") for i in range(24)]

    assert drawn(nodes, edges).height < 700


def test_long_line_passes_beside_the_boxes_between() -> None:
    """From the first layer to the third it keeps away from the box of the second."""
    found = drawn(CHAIN[:3], WAYS[:3])
    box = next(each for each in found.boxes if each.name == "b")
    long = next(each for each in found.wires if (each.source, each.target) == ("a", "c"))
    flat = re.search(r"([\d.]+) ([\d.]+)H([\d.]+)", long.path)

    assert flat
    assert (float(flat[1]), float(flat[3])) == (box.x, box.x + box.width)
    assert abs(float(flat[2]) - box.y) > box.height / 2


def test_labels_keep_apart() -> None:
    """Labels of lines from one exchange do not cover each other."""
    nodes = [node("x", "topic"), *(node(f"t{i}") for i in range(9))]
    found = drawn(nodes, [edge("x", f"t{i}", f"order.{i}.#") for i in range(9)])
    spots = sorted(wire.at[1] for wire in found.wires)

    assert all(b - a >= 12 for a, b in pairwise(spots))


def test_several_bindings_to_one_target_are_one_line() -> None:
    """It says the first and how many more; all of it is in the title."""
    edges = [edge("a", "c", f"key.{i}", id_=str(i)) for i in range(3)]
    (wire,) = drawn(CHAIN, edges).wires

    assert wire.label == "key.0 +2"
    assert "key.0; key.1; key.2" in wire.title


def test_dead_letters_and_marks() -> None:
    """The way of what is unroutable is told; marked lines lie on top."""
    found = drawn(CHAIN, WAYS, hot={("a", "b")}, reached={"a", "b"})

    assert [wire.dead for wire in found.wires].count(True) == 1
    assert next(wire for wire in found.wires if wire.dead).label == "unroutable"
    assert (found.wires[-1].source, found.wires[-1].target) == ("a", "b")
    assert {box.name for box in found.boxes if box.hot} == {"a", "b"}
    assert [wire.hot for wire in found.wires].count(True) == 1


def test_circles_are_drawn_too() -> None:
    """A way back, to itself or to what is unknown hangs nothing up and hides no box."""
    edges = [edge("a", "b"), edge("b", "a", dead=True), edge("b", "b"), edge("b", "nowhere")]
    found = drawn(CHAIN[:2], edges)

    assert {box.name for box in found.boxes} == {"a", "b"}
    assert {(w.source, w.target) for w in found.wires} == {("a", "b"), ("b", "a")}
    assert found.height >= 40


def test_long_names_are_shortened_in_the_middle() -> None:
    """Beginning and end stay; the title has all of it."""
    name = "a" * 30 + "z" * 30
    found = drawn([node(name, "fanout"), node("t")], [edge(name, "t", "k" * 80)])
    box = next(each for each in found.boxes if each.exchange)

    assert len(box.label) == 22
    assert box.label.startswith("aaa")
    assert box.label.endswith("zzz")
    assert box.name == name
    assert len(found.wires[0].label) == 20
    assert shortened("short", 20) == "short"


def test_picture_is_bounded() -> None:
    """Ten thousand bindings: sixty boxes, the rest counted, in no time."""
    nodes = [node("hub", "topic"), *(node(f"t{i}") for i in range(3000))]
    edges = [edge("hub", f"t{i % 3000}", f"k.{i}") for i in range(10_000)]
    begin = time.perf_counter()
    found = drawn(nodes, edges, first=["t2999"])

    assert time.perf_counter() - begin < 2
    assert len(found.boxes) == MOST_NODES
    assert found.more == 3001 - MOST_NODES
    assert {"hub", "t2999"} <= set(places(found))
    assert len(found.wires) <= MOST_LINES
    assert "1 exchanges and 59 topics" in found.sentence


def test_dense_picture_is_bounded() -> None:
    """Everything to everything: lines are counted that are not drawn, marked ones are drawn."""
    nodes = [node(f"x{i:02}", "fanout") for i in range(60)]
    edges = [edge(f"x{i:02}", f"x{j:02}") for i in range(60) for j in range(i + 1, 60)]
    found = drawn(nodes, edges, hot={("x57", "x59")})

    assert len(found.wires) == MOST_LINES
    assert found.more_wires == len(edges) - MOST_LINES
    assert found.wires[-1].hot


def test_near_ones_are_chosen_first() -> None:
    """What is asked for and its neighbours come before other exchanges and topics."""
    nodes = [node("z", "topic"), node("y", "topic"), *(node(f"t{i}") for i in range(9))]
    edges = [edge("z", "t8"), *(edge("y", f"t{i}") for i in range(8))]

    assert chosen(nodes, edges, ["t8"], 2) == ["t8", "z"]
    assert chosen(nodes, edges, [], 3)[0] == "y"
