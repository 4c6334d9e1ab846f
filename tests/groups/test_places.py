"""Which broker coordinates a group."""

from __future__ import annotations

from collections import Counter

from tinymq.groups.places import coordinator_of

GROUPS = [f"group-{number}" for number in range(300)]


def test_nobody_coordinates_where_nobody_lives() -> None:
    """Without brokers there is no coordinator."""
    assert coordinator_of("g", []) == -1


def test_the_order_of_brokers_does_not_matter() -> None:
    """Everybody who knows the same brokers picks the same one."""
    assert {coordinator_of("g", order) for order in ([1, 2, 3], [3, 1, 2], {2, 3, 1})} == {
        coordinator_of("g", (1, 2, 3))
    }


def test_groups_are_spread() -> None:
    """Each of three brokers coordinates about a third of the groups."""
    shares = Counter(coordinator_of(group, (1, 2, 3)) for group in GROUPS)
    assert all(70 < shares[broker] < 130 for broker in (1, 2, 3))


def test_only_the_groups_of_a_broker_that_goes_move() -> None:
    """A broker that goes leaves its own groups to others, and nothing else moves."""
    for group in GROUPS:
        before = coordinator_of(group, (1, 2, 3))
        if before != 3:
            assert coordinator_of(group, (1, 2)) == before


def test_a_place_stays_over_versions() -> None:
    """Brokers of different versions agree, so these never change."""
    assert [coordinator_of(group, (1, 2, 3, 4, 5)) for group in ("a", "b", "orders", "ü")] == [
        5,
        4,
        2,
        1,
    ]
