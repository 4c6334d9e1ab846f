"""
What the web needs from the broker, and the values that cross.

`Console` is implemented by the broker's operations; tests implement it with an
in-memory fake. Every method either returns frozen values or raises an error
of `tinymq.errors`. Nothing that reads has a side effect: no attempt is
counted and no offset moves because somebody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, Protocol, get_args

from attrs import frozen

from tinymq.stats import ClusterSnapshot, TopicRow, TopicSnapshot

SortField = Literal[
    "name", "partitions", "messages", "bytes", "messages_in", "messages_out", "last_write_ms"
]
SORT_FIELDS: Final[tuple[SortField, ...]] = get_args(SortField)
MAX_PAGE_SIZE: Final = 500

Headers = tuple[tuple[str, bytes], ...]


# --- lists -------------------------------------------------------------------


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
    """

    name: str = ""
    sort: SortField = "name"
    reverse: bool = False
    page: int = 1
    page_size: int = 50


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


def _sort_key(field: SortField) -> Callable[[TopicRow], tuple[float, str] | tuple[str, str]]:
    if field == "name":
        return lambda row: (row.name, "")
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
    ordered = sorted(found, key=_sort_key(query.sort), reverse=query.reverse)
    size = min(max(query.page_size, 1), MAX_PAGE_SIZE)
    count = max(1, -(-len(ordered) // size))
    page = min(max(query.page, 1), count)
    return TopicPage(
        items=tuple(enrich(row) for row in ordered[(page - 1) * size : page * size]),
        page=page,
        page_count=count,
        filtered_count=len(ordered),
        total_count=len(everything),
    )


# --- messages ----------------------------------------------------------------


@frozen
class Newest:
    """The last records."""


@frozen
class Oldest:
    """The first records that are kept."""


@frozen
class At:
    """From this offset on."""

    offset: int


@frozen
class Since:
    """From the first record that was appended at this time or later."""

    ms: int


Start = Newest | Oldest | At | Since


@frozen(kw_only=True)
class RecordView:
    """
    A record in a list.

    Attributes:
        partition: Where it is.
        offset: Where it is.
        time_ms: When it was appended.
        key: The first 1 KiB of its key; None when it has none.
        size: Bytes of its value.
        headers: Names and values, in order.
        preview: The first 512 bytes of the value; None is a tombstone.
    """

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    size: int
    headers: Headers = ()
    preview: bytes | None = b""


@frozen(kw_only=True)
class Scanned:
    """
    What was looked at in one partition.

    Attributes:
        partition: Its number.
        first: First offset looked at.
        end: The offset after the last one looked at.
        log_start: First offset kept.
        log_end: The next offset to be written.
    """

    partition: int
    first: int
    end: int
    log_start: int
    log_end: int


@frozen(kw_only=True)
class Page:
    """
    What `Console.browse` found.

    Attributes:
        records: By offset in one partition; by time over several. Newest
            first when the newest were asked for, else oldest first.
        scanned: What was looked at, so that the page can say so.
        note: A sentence about what was left out (bytes, damage, partitions
            that are offline); empty when nothing was.
    """

    records: tuple[RecordView, ...]
    scanned: tuple[Scanned, ...] = ()
    note: str = ""


@frozen(kw_only=True)
class MessageView:
    """
    One record with a window of its value.

    Attributes:
        topic: Where it is.
        partition: Where it is.
        offset: Where it is.
        time_ms: When it was appended.
        produced_ms: What the producer said; None when it did not.
        key: All of the key; None when it has none.
        headers: Names and values, in order.
        size: Bytes of the whole value.
        skip: Where the window begins.
        value: The window; None is a tombstone.
        stored: Bytes on disk of the batch that holds it; None when unknown.
        codec: How the batch is compressed, such as ``zstd``; ``none`` if not.
        batch_records: How many records the batch has.
        leader_epoch: Of the batch.
        producer_id: None when the producer was not idempotent.
        sequence: The producer's number of this record.
        message_id: The producer's own id of the message, if it gave one.
        expires_ms: When it expires; None for never.
        previous: Nearest lower offset that can be shown.
        next: Nearest higher offset that can be shown.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    size: int
    key: bytes | None = None
    headers: Headers = ()
    produced_ms: int | None = None
    skip: int = 0
    value: bytes | None = b""
    stored: int | None = None
    codec: str = "none"
    batch_records: int = 1
    leader_epoch: int = 0
    producer_id: int | None = None
    sequence: int | None = None
    message_id: bytes | None = None
    expires_ms: int | None = None
    previous: int | None = None
    next: int | None = None


@frozen(kw_only=True)
class Position:
    """
    Where a published record went.

    Attributes:
        partition: Where it is.
        offset: Where it is.
        time_ms: Its append time.
        durable: Whether it is on disk (the topic's sync policy decides).
    """

    partition: int
    offset: int
    time_ms: int
    durable: bool = True


# --- changes -----------------------------------------------------------------


@frozen(kw_only=True)
class PlanPart:
    """What a purge or delete does to one partition."""

    partition: int
    first: int
    end: int
    records: int
    bytes: int
    oldest_ms: int | None = None


@frozen(kw_only=True)
class SettingChange:
    """One setting before and after; None where there is no such side."""

    name: str
    before: str | None
    after: str | None


@frozen(kw_only=True)
class Plan:
    """
    What an operation would do, or did. The same value for both.

    Attributes:
        action: ``create``, ``alter``, ``delete``, ``purge`` or ``undo``.
        topic: Of which topic.
        applied: False for a dry run.
        records: How many records go, or come back.
        bytes: How many bytes.
        oldest_ms: Append time of the oldest of them.
        parts: By partition; empty where that says nothing.
        changes: Settings that change.
        readers: Connected readers that would notice, by name.
        undo_until_ms: Until when it can be undone; None when it cannot.
        warnings: Sentences that a person should read first.
    """

    action: Literal["create", "alter", "delete", "purge", "undo"]
    topic: str
    applied: bool
    records: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    parts: tuple[PlanPart, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    readers: tuple[str, ...] = ()
    undo_until_ms: int | None = None
    warnings: tuple[str, ...] = ()


# --- the port ----------------------------------------------------------------


class Console(Protocol):
    """Everything that the web asks of the broker."""

    def cluster(self) -> ClusterSnapshot:
        """Look at the whole cluster. Cheap: called for every page."""

    def ready(self) -> str | None:
        """Say why publishing is refused, or None when it is not."""

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics; `select` does the work."""

    def topic(self, name: str) -> TopicSnapshot:
        """
        Look at one topic.

        Raises:
            UnknownTopic: There is none of this name.
        """

    async def browse(
        self, topic: str, partition: int | None, start: Start, limit: int, max_bytes: int
    ) -> Page:
        """
        Read records without any side effect.

        Args:
            topic: Name of the topic.
            partition: Its number, or None for all.
            start: Where to begin. An offset outside the log begins at the
                nearest end and is told in the note.
            limit: Most records.
            max_bytes: Stop after about as many bytes read from disk.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
        """

    async def message(
        self, topic: str, partition: int, offset: int, skip: int, length: int
    ) -> MessageView:
        """
        Read one record with `length` bytes of its value from `skip` on.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
            OffsetOutOfRange: There is no record with this offset.
        """

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> Position:
        """
        Append one record, durable as the topic's policy says.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
            ValueTooLarge: Value, key or headers are over the limit.
            StorageFull: Publishing is refused.
        """

    async def create_topic(
        self, name: str, partitions: int | None, config: Mapping[str, str], *, dry_run: bool
    ) -> Plan:
        """
        Make a topic. One that exists with the same settings is no error.

        Args:
            name: Its name.
            partitions: How many; as the broker is set when None.
            config: Settings that differ from the broker's defaults.
            dry_run: Only say what would happen.

        Raises:
            InvalidName: The name breaks the rule.
            InvalidRequest: A setting is wrong; `data["field"]` names it.
            TopicExists: It exists with other settings; `data["field"]` names one.
        """

    async def alter_topic(
        self, name: str, config: Mapping[str, str | None], *, dry_run: bool
    ) -> Plan:
        """
        Change settings; None returns one to its default.

        Raises:
            UnknownTopic: There is none of this name.
            InvalidRequest: A setting is wrong; `data["field"]` names it.
        """

    async def delete_topic(self, name: str, *, dry_run: bool) -> Plan:
        """Remove a topic with all its records. Raises `UnknownTopic`."""

    async def purge(
        self, topic: str, partition: int | None, before: At | Since | None, *, dry_run: bool
    ) -> Plan:
        """
        Move the start of the log, so that records before it are gone.

        Args:
            topic: Name of the topic.
            partition: Its number, or None for all.
            before: The first record to keep; None keeps none.
            dry_run: Only say what would happen.
        """

    async def undo_purge(self, topic: str) -> Plan:
        """
        Bring back what the last purge took.

        Raises:
            NothingToUndo: The window has passed.
        """
