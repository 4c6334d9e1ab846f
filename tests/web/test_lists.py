"""Which rows a list shows, in which order, and the page of them."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.web.fleet import connected, slowed, three
from tinymq.stats import ClientSnapshot, TopicRow
from tinymq.web.lists import CLIENT_SORTS, ClientQuery, TopicQuery, select, select_clients

CLIENTS = connected(three())


@pytest.mark.parametrize("sort", CLIENT_SORTS)
def test_clients_are_sorted_by_every_field(sort: str) -> None:
    """Each order holds everybody once, also where values are equal or missing."""
    field = next(one for one in CLIENT_SORTS if one == sort)

    for reverse in (False, True):
        found = select_clients(CLIENTS, ClientQuery(sort=field, reverse=reverse, page_size=500))
        assert {one.id for one in found.items} == {one.id for one in CLIENTS}


def test_longest_slow_client_is_first() -> None:
    """Who takes no more for longest stands first, then by name."""
    rows = [CLIENTS[0], slowed(CLIENTS[1], 5, 1), slowed(CLIENTS[2], 50, 1)]

    found = select_clients(rows, ClientQuery(), ("mq-9",))

    assert [one.id for one in found.items] == [1002, 1001, 1000]
    assert (found.slow, found.silent) == (2, ("mq-9",))


def test_the_clusters_own_are_left_out_unless_asked_for() -> None:
    """They are counted apart, whatever is asked for, and their slowness counts with them."""
    meta = slowed(evolve(CLIENTS[0], client_id="tinymq-meta"), 5, 1)
    rows = [meta, evolve(CLIENTS[1], client_id="tinymq-cli"), CLIENTS[2]]

    usual = select_clients(rows, ClientQuery())
    every = select_clients(rows, ClientQuery(own=True))

    assert [one.id for one in usual.items] == [1002, 1001]
    assert (usual.total_count, usual.own_count, usual.slow) == (2, 1, 0)
    assert [one.id for one in every.items] == [1000, 1002, 1001]
    assert (every.total_count, every.own_count, every.slow) == (2, 1, 1)
    assert select_clients(rows, ClientQuery(broker=CLIENTS[2].broker_id)).own_count == 0


@pytest.mark.parametrize(
    "needle",
    [
        evolve(CLIENTS[1], client_id="the Needle"),
        evolve(CLIENTS[1], address="the Needle"),
        evolve(CLIENTS[1], agent="the Needle"),
        evolve(CLIENTS[1], user="the Needle"),
    ],
)
def test_clients_are_found_by_what_they_say(needle: ClientSnapshot) -> None:
    """The filter looks at id, address, agent and user, in any case."""
    rows = [CLIENTS[0], needle, CLIENTS[2]]

    found = select_clients(rows, ClientQuery(name="nEEdle"))

    assert [one.id for one in found.items] == [1001]
    assert (found.filtered_count, found.total_count) == (1, 3)


def test_a_page_behind_the_last_is_the_last() -> None:
    """A list that shrank does not end in nothing."""
    found = select_clients(CLIENTS, ClientQuery(page=99, page_size=60))

    assert (found.page, found.page_count, len(found.items)) == (2, 2, 4)
    assert select_clients([], ClientQuery()).page_count == 1


def test_topics_of_a_broker() -> None:
    """Only topics that it leads a partition of."""
    rows = [
        TopicRow(name=str(i), partitions=2, messages=0, bytes=0, leaders=(i, 7)) for i in range(3)
    ]

    found = select(rows, TopicQuery(broker=2), lambda row: row)

    assert [row.name for row in found.items] == ["2"]
    assert select(rows, TopicQuery(broker=7), lambda row: row).filtered_count == 3
