"""What calls of a client return."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from attrs import field, frozen
from typing_extensions import override

from tinymq.errors import ClientError, TinyMQError, UsageError

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
        duplicate: Whether a record with this message id was there before: then offset is
            that of the first one, timestamp is -1, and this one was not stored.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    volatile: bool
    duplicate: bool = False


class Delayed(NamedTuple):
    """
    Where one record waits until it is due; as text it is ``TOPIC/PARTITION~ID``.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        id: Its delay id, unique in the partition for ever; -1 when nobody was asked
            to confirm.
        due_ms: When it comes, milliseconds since the epoch; None where the broker
            only said that it has it, because it had been sent before.
        volatile: Whether the topic lives in memory only.
    """

    topic: str
    partition: int
    id: int
    due_ms: int | None = None
    volatile: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> Delayed:
        """
        Read the place of a delayed message.

        Args:
            text: As ``orders/0~17``.

        Raises:
            UsageError: It is no such place.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            raise UsageError(
                "the place of a delayed message is TOPIC/PARTITION~ID, such as orders/0~17, "
                f"not {text!r:.100}"
            )
        return cls(found[1], int(found[2]), int(found[3]))


#: Partition, first offset and count of records that lie one behind the other.
Run = tuple[int, int, int]

#: Most runs that a repr shows.
_MOST_SHOWN: Final = 4
_PLACE: Final = re.compile(r"(.{1,255})/(\d{1,10})~(\d{1,19})", re.ASCII)


@frozen(repr=False)
class Sent:
    """
    Where the records of one `send_batch` were stored.

    Attributes:
        count: How many records.
        positions: (partition, first offset, count) of each run of records that
            lie one behind the other, in order. Those of one partition have the
            order in which they were given, unless the topic is not synced always
            and a power cut took back some of them in between. The offset is -1
            when nobody was asked to confirm.
        volatile: Whether the topic lives in memory only.
        delayed: The same for records that wait until they are due: (partition, first
            delay id, count).
        duplicates: The same for records whose message ids were there before: where the
            first ones are.
    """

    count: int
    positions: list[Run]
    volatile: bool = False
    delayed: list[Run] = field(factory=list)
    duplicates: list[Run] = field(factory=list)

    @override
    def __repr__(self) -> str:
        runs = [
            *(("@", *run) for run in self.positions),
            *(("~", *run) for run in self.delayed),
            *(("=", *run) for run in self.duplicates),
        ]
        shown = [
            f"{partition}{mark}" + (f"{first}..{first + count - 1}" if first >= 0 else "?")
            for mark, partition, first, count in runs[:_MOST_SHOWN]
        ]
        more = len(runs) - len(shown)
        places = ", ".join(shown) + (f" and {more} more" if more else "")
        memory = ", in memory only" if self.volatile else ""
        return f"<Sent {self.count} records, {places or 'nowhere'}{memory}>"


def joined(runs: Iterable[Run]) -> list[Run]:
    """
    Put runs in order, and make one of those that follow one another.

    Args:
        runs: In any order.
    """
    found: list[Run] = []
    for partition, first, count in sorted(runs):
        if found:
            before, start, size = found[-1]
            if before == partition and first == (start + size if start >= 0 else start):
                found[-1] = (partition, start, size + count)
                continue
        found.append((partition, first, count))
    return found


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
    failed: tuple[Failed, ...] = field(repr=lambda failed: f"<{len(failed)} of them>")
    pending: int


class PartlySent(ClientError):
    """
    A part of a `send_batch` was stored and a part was not, or goes nowhere.

    Attributes:
        sent: What was stored.
        failed: What was not, with the error of each. Those with `Unroutable` are
            stored in the exchange, but no binding takes them.
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
