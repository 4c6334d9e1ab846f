"""Records, and what changes would do, as the web sees them: frozen values."""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

Headers = tuple[tuple[str, bytes], ...]


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


@frozen
class Times:
    """
    When a record comes, and how long it lives.

    Attributes:
        due: Milliseconds since the epoch; a number below 0 is a delay of so many
            milliseconds, and 0 is at once.
        ttl_ms: How long it lives in channels from when it comes, or None.
    """

    due: int = 0
    ttl_ms: int | None = None


#: Of a record that comes now and lives on.
AT_ONCE: Final = Times()


@frozen(kw_only=True)
class Position:
    """
    Where a published record went.

    Attributes:
        partition: Where it is.
        offset: Where it is; -1 of one that waits until it is due.
        time_ms: Its append time, or when it began to wait.
        durable: Whether it is on disk (the topic's sync policy decides).
        delayed: Its delay id, if it waits.
        due_ms: When it comes, if it waits.
        unroutable: Whether no binding of the exchange takes it.
    """

    partition: int
    offset: int
    time_ms: int
    durable: bool = True
    delayed: int | None = None
    due_ms: int | None = None
    unroutable: bool = False


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


@frozen(kw_only=True)
class DrainPlan:
    """
    What draining a broker would do, or did; or taking it back.

    Attributes:
        broker_id: Of which broker.
        broker: Its name.
        undo: Whether it is taken back.
        applied: False for a dry run.
        partitions: How many it leads, and keeps.
        takers: Names of the brokers that new partitions go to afterwards.
        warnings: Sentences that a person should read first.
    """

    broker_id: int
    broker: str
    undo: bool
    applied: bool
    partitions: int = 0
    takers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
