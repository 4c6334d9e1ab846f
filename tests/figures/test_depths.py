"""The memory of how deep queues were: bounded, and straight between two looks."""

from __future__ import annotations

import pytest

from tinymq.figures.depths import Depths
from tinymq.figures.history import IDLE_MS

START = 1_000_000_000_000 // 60_000 * 60_000


def test_nobody_knows_what_was_before_the_first_look() -> None:
    """There are no values then, and one value after one look."""
    depths = Depths()
    assert not depths.depth("a", START).recent.values

    depths.look(START, [("a", 7)])

    found = depths.depth("a", START + 500)
    assert [found.recent.values, found.long.values] == [(7,), (7,)]
    assert found.recent.end_ms == START + 500
    assert found.recent.step_ms == 2000


def test_last_look_of_a_step_counts() -> None:
    """Several looks in two seconds are one point."""
    depths = Depths()
    for later, depth in [(0, 1), (1999, 5), (2000, 6), (2500, 8)]:
        depths.look(START + later, [("a", depth)])
    found = depths.depth("a", START + 9000)
    assert list(found.recent.values) == [5, 8]
    assert found.recent.end_ms == START + 4000
    assert list(found.long.values) == [8]


def test_line_is_straight_between_looks() -> None:
    """Steps in which nobody looked lie between those before and after."""
    depths = Depths()
    for later, depth in [(0, 10), (8000, 30), (10_000, 0)]:
        depths.look(START + later, [("a", depth)])
    assert depths.depth("a", START + 11_000).recent.values == (10, 15, 20, 25, 30, 0)


def test_curves_end_at_their_length() -> None:
    """Ten minutes and six hours are kept; after a long silence only what is in them counts."""
    depths = Depths()
    for step in range(400):
        depths.look(START + step * 60_000, [("a", step)])
    long = depths.depth("a", START + 400 * 60_000).long
    assert long.values == tuple(range(41, 400))
    assert depths.depth("a", START + 399 * 60_000).recent.values[-1] == 399
    assert len(depths.depth("a", START + 399 * 60_000).recent.values) == 271

    assert depths.depth("a", START + 2000 * 60_000).long.values == ()


def test_clock_that_is_set_back_is_ignored() -> None:
    """Nothing is overwritten by a look that seems to be older."""
    depths = Depths()
    depths.look(START, [("a", 1)])
    depths.look(START + 4000, [("a", 3)])
    depths.look(START, [("a", 99)])
    assert depths.depth("a", START + 4000).recent.values == (1, 2, 3)


def test_deepest_have_the_places() -> None:
    """Where there are more than places, those with the largest lag are kept."""
    depths = Depths(most=2)
    depths.look(START, [("a", 1), ("b", 9), ("c", 5)])
    assert len(depths) == 2
    assert [bool(depths.depth(key, START).recent.values) for key in "abc"] == [False, True, True]


def test_only_one_that_stands_still_gives_way() -> None:
    """It loses its place after a minute; those that change keep theirs."""
    depths = Depths(most=2)
    depths.look(START, [("a", 1), ("b", 2)])
    depths.look(START + IDLE_MS - 1, [("a", 5), ("b", 2), ("c", 9)])
    assert depths.depth("c", START + IDLE_MS).recent.values == ()

    depths.look(START + IDLE_MS, [("a", 6), ("b", 2), ("c", 9)])

    assert len(depths) == 2
    assert depths.depth("c", START + IDLE_MS).recent.values == (9,)
    assert depths.depth("b", START + IDLE_MS).recent.values == ()


def test_one_that_is_looked_at_is_kept() -> None:
    """Somebody wants to see it, so the one that changed least recently goes."""
    depths = Depths(most=2)
    depths.look(START, [("a", 1), ("b", 2)])
    depths.see(START, "c", 0)
    depths.see(START + 2000, "c", 0)
    assert len(depths) == 2
    assert depths.depth("c", START + 2000).recent.values == (0, 0)


@pytest.mark.parametrize("keys", [set(), {"b"}])
def test_deleted_are_forgotten(keys: set[str]) -> None:
    """One that is made again under the same name begins anew."""
    depths = Depths()
    depths.look(START, [("a", 1), ("b", 2)])
    depths.keep(keys)
    assert len(depths) == len(keys)
