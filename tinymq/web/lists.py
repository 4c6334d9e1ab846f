"""Lists of topics and of clients: which are wanted, and the page of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar, get_args

from attrs import frozen

from tinymq.stats import ClientSnapshot, TopicRow

SortField = Literal[
    "name", "partitions", "messages", "bytes", "messages_in", "messages_out", "last_write_ms"
]
SORT_FIELDS: Final[tuple[SortField, ...]] = get_args(SortField)
MAX_PAGE_SIZE: Final = 500
ClientSort = Literal[
    "slow",
    "client_id",
    "address",
    "agent",
    "broker",
    "since_ms",
    "messages_in",
    "messages_out",
    "buffered",
    "pending",
]
CLIENT_SORTS: Final[tuple[ClientSort, ...]] = get_args(ClientSort)
Row = TypeVar("Row")


@frozen(kw_only=True)
class TopicQuery:
    """
    Which topics to list.

    Attributes:
        name: Part of the name, in any case; empty for all.
        sort: The field to sort by; ties are sorted by name.
        reverse: Whether the largest comes first.
        page: Counted from 1. A page behind the last one is the last one.
        page_size: At most `MAX_PAGE_SIZE`.
        broker: Only topics that this broker leads a partition of; None for all.
    """

    name: str = ""
    sort: SortField = "name"
    reverse: bool = False
    page: int = 1
    page_size: int = 50
    broker: int | None = None


@frozen(kw_only=True)
class TopicPage:
    """
    One page of topics.

    Attributes:
        items: The rows, with their series.
        page: Which page this is, from 1.
        page_count: How many there are, at least 1.
        filtered_count: Topics that match.
        total_count: All topics.
        silent: Brokers that did not answer in time, so that figures are partial.
    """

    items: tuple[TopicRow, ...]
    page: int
    page_count: int
    filtered_count: int
    total_count: int
    silent: tuple[str, ...] = ()


def _sort_key(field: SortField) -> Callable[[TopicRow], Any]:
    if field == "name":
        return attrgetter("name")
    if field in {"messages_in", "messages_out"}:
        return lambda row: (getattr(row.rates, field), row.name)
    return lambda row: (getattr(row, field) or 0, row.name)


def select(
    rows: Iterable[TopicRow], query: TopicQuery, enrich: Callable[[TopicRow], TopicRow]
) -> TopicPage:
    """
    Filter, sort and cut rows, then enrich only those of the page.

    Args:
        rows: All topics, with cheap fields only.
        query: Which of them are wanted.
        enrich: Completes one row; called for the rows of the page.

    Returns:
        The page. With 10,000 topics this takes a few milliseconds.
    """
    everything = list(rows)
    wanted = query.name.lower()
    found = [row for row in everything if wanted in row.name.lower()] if wanted else everything
    if query.broker is not None:
        found = [row for row in found if query.broker in row.leaders]
    ordered = sorted(found, key=_sort_key(query.sort), reverse=query.reverse)
    items, page, count = cut(ordered, query.page, query.page_size)
    return TopicPage(
        items=tuple(map(enrich, items)),
        page=page,
        page_count=count,
        filtered_count=len(ordered),
        total_count=len(everything),
    )


def cut(ordered: Sequence[Row], page: int, page_size: int) -> tuple[Sequence[Row], int, int]:
    """Cut one page out of rows: the rows, the page's number, and how many there are."""
    size = min(max(page_size, 1), MAX_PAGE_SIZE)
    count = max(1, -(-len(ordered) // size))
    page = min(max(page, 1), count)
    return ordered[(page - 1) * size : page * size], page, count


@frozen(kw_only=True)
class ClientQuery:
    """
    Which clients to list.

    Attributes:
        name: Part of the client id, address, agent or user, in any case.
        broker: Id of the broker that they are connected to; None for all.
        sort: The field to sort by; ``slow`` has those first that take no more,
            the longest first. Ties are sorted by client id.
        reverse: Whether the largest comes first.
        page: Counted from 1. A page behind the last one is the last one.
        page_size: At most `MAX_PAGE_SIZE`.
        own: Also list the connections of the cluster's own processes.
    """

    name: str = ""
    broker: int | None = None
    sort: ClientSort = "slow"
    reverse: bool = False
    page: int = 1
    page_size: int = 50
    own: bool = False


@frozen(kw_only=True)
class ClientPage:
    """
    One page of clients.

    Attributes:
        items: The clients.
        page: Which page this is, from 1.
        page_count: How many there are, at least 1.
        filtered_count: Clients that match.
        total_count: All clients of the brokers that answered, without the cluster's own.
        own_count: Connections of the cluster's own processes, of the broker that was asked for.
        slow: How many take no more, of those that were asked for.
        silent: Names of brokers that did not answer in time; their clients are missing.
    """

    items: tuple[ClientSnapshot, ...]
    page: int
    page_count: int
    filtered_count: int
    total_count: int
    own_count: int = 0
    slow: int = 0
    silent: tuple[str, ...] = ()


def _client_key(field: ClientSort) -> Callable[[ClientSnapshot], tuple[Any, ...]]:
    def tie(one: ClientSnapshot) -> tuple[str, int, int]:
        return one.client_id, one.broker_id, one.id

    if field == "slow":
        return lambda one: (one.slow_since_ms is None, one.slow_since_ms or 0, *tie(one))
    if field in {"messages_in", "messages_out"}:
        return lambda one: (getattr(one.rates, field), *tie(one))
    return lambda one: (getattr(one, field), *tie(one))


def _words(one: ClientSnapshot) -> str:
    """Everything of a client that a filter looks at."""
    return f"{one.client_id}\n{one.address}\n{one.agent}\n{one.user}".lower()


def select_clients(
    rows: Iterable[ClientSnapshot], query: ClientQuery, silent: tuple[str, ...] = ()
) -> ClientPage:
    """
    Filter, sort and cut clients.

    Args:
        rows: All clients of the brokers that answered.
        query: Which of them are wanted.
        silent: Names of the brokers that did not answer.
    """
    everything = list(rows)
    own = [one for one in everything if one.own]
    counted = everything if query.own else [one for one in everything if not one.own]
    wanted = query.name.lower()
    found = [
        one
        for one in counted
        if (query.broker is None or query.broker == one.broker_id)
        and (not wanted or wanted in _words(one))
    ]
    ordered = sorted(found, key=_client_key(query.sort), reverse=query.reverse)
    items, page, count = cut(ordered, query.page, query.page_size)
    return ClientPage(
        items=tuple(items),
        page=page,
        page_count=count,
        filtered_count=len(ordered),
        total_count=len(everything) - len(own),
        own_count=sum(query.broker in (None, one.broker_id) for one in own),
        slow=sum(one.slow_since_ms is not None for one in counted),
        silent=silent,
    )
