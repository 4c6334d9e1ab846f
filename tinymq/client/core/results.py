"""What calls of a client return."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from attrs import frozen

from tinymq.errors import ClientError, TinyMQError

#: Most failed messages that an account keeps in full; the count goes on.
MOST_FAILURES_KEPT: Final = 10_000


class Position(NamedTuple):
    """
    Where one record was stored.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        offset: The record's offset there; -1 when nobody was asked to confirm.
        timestamp: When the broker appended it, milliseconds since the epoch.
        volatile: Whether the topic lives in memory only.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    volatile: bool


@frozen
class Sent:
    """
    Where the records of one `send_batch` were stored.

    Attributes:
        count: How many records.
        positions: (partition, first offset, count) of each stored batch.
    """

    count: int
    positions: list[tuple[int, int, int]]


class Failed(NamedTuple):
    """A message that was not confirmed, and why."""

    topic: str
    value: bytes | None
    error: TinyMQError


@frozen
class Account:
    """
    What became of every message that a producer took.

    Attributes:
        sent: Confirmed by the broker.
        unconfirmed: Written to the link with ``acks="none"``; nobody knows more.
        failed_count: Not confirmed; the error says whether it may be stored.
        failed: The first of them in full.
        pending: Not settled yet; 0 after `close`.
    """

    sent: int
    unconfirmed: int
    failed_count: int
    failed: tuple[Failed, ...]
    pending: int


class PartlySent(ClientError):
    """
    A part of a `send_batch` was stored and a part was not.

    Attributes:
        sent: What was stored.
        failed: What was not, with the error of each.
    """

    retriable = False

    def __init__(self, sent: Sent, failed: list[Failed]) -> None:
        super().__init__(
            f"{sent.count} records were stored and {len(failed)} were not: {failed[0].error}"
        )
        self.sent = sent
        self.failed = failed


#: What one administrative operation returned.
Result = dict[str, Any]
