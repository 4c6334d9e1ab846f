"""The bars of due times: which there are, what they say, and how they fit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tinymq.web.histogram import NARROW, WIDE, draw_due, due_in, far, shown, window

NOW = 1_000_000_000
MINUTE = 60_000


def bucket(begin: int, end: int, messages: int) -> dict[str, Any]:
    """Make a bar that begins and ends so many milliseconds from now."""
    return {"from_ms": NOW + begin, "to_ms": NOW + end, "messages": messages}


BUCKETS = [
    bucket(-MINUTE, 0, 2),
    bucket(0, MINUTE, 0),
    bucket(MINUTE, 2 * MINUTE, 40),
    bucket(2 * MINUTE, 60 * MINUTE, 1),
    bucket(60 * MINUTE, 120 * MINUTE, 0),
]


def test_nothing_is_no_picture() -> None:
    """Without messages there is nothing to draw."""
    assert draw_due([], NOW, WIDE) is None
    assert draw_due([bucket(0, MINUTE, 0)], NOW, WIDE) is None


@pytest.mark.parametrize("box", [WIDE, NARROW])
def test_bars_say_exactly_what_they_stand_for(box: Any) -> None:
    """Each has its number and its times; what is overdue is marked; empty ones are no bars."""
    found = draw_due(BUCKETS, NOW, box)

    assert found
    assert [slot.title for slot in found.slots] == [
        "2 messages overdue",
        "40 messages in 1 m to 2 m",
        "1 message in 2 m to 1 h",
    ]
    assert [slot.late for slot in found.slots] == [True, False, False]
    assert found.sentence == "43 messages by due time; most, 40, are due in 1 m to 2 m"
    for slot in found.slots:
        assert 0 < float(slot.height) <= box.bottom
        assert float(slot.x) + float(slot.width) <= box.width + 1
    assert found.grid[0][1] == "0"


def test_one_message_can_be_seen_beside_very_many() -> None:
    """A bar is never lower than a pixel and a half."""
    found = draw_due([bucket(0, MINUTE, 10**6), bucket(MINUTE, 2 * MINUTE, 1)], NOW, WIDE)

    assert found
    assert float(found.slots[1].height) == 1.5


def test_empty_end_is_left_out() -> None:
    """The last bar is the last one with messages."""
    assert shown(BUCKETS) == BUCKETS[:4]
    assert shown([]) == []


def test_words_for_times() -> None:
    """In, ago, overdue."""
    assert due_in(90_000) == "in 1 m 30 s"
    assert due_in(-2_000) == "2.0 s ago"
    assert window(BUCKETS[0], NOW) == "overdue"
    assert window(BUCKETS[1], NOW) == "within 1 m"
    assert far(3 * 365 * 86_400_000) == "3 y"
    assert far(400 * 86_400_000) == "400 d"


def test_most_buckets_have_room_for_their_times() -> None:
    """Forty-eight bars: the times below do not run into each other."""
    many = [bucket(i * MINUTE, (i + 1) * MINUTE, 5) for i in range(48)]
    for box in (WIDE, NARROW):
        found = draw_due(many, NOW, box)
        assert found
        marks = [float(x) for x, _, anchor in found.ticks if not anchor]
        last = [float(x) for x, _, anchor in found.ticks if anchor]
        assert all(x - marks[-1] >= 100 for x in last)
        assert all(b - a >= 60 for a, b in pairwise(marks))
