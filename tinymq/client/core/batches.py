"""Batches on their way to a broker, and how a list of records is cut into them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

from tinymq.client.core.outcomes import left_over, stored_runs
from tinymq.client.core.results import Failed, PartlySent, Run, Sent, joined
from tinymq.client.core.timing import on_the_wire
from tinymq.errors import InvalidRequest, TinyMQError, UsageError, ValueTooLarge
from tinymq.limits import Limits
from tinymq.wire.batch import NO_PRODUCER, Codec
from tinymq.wire.records import Headers, encode_batch

#: Bytes that a batch needs beside its records: header and heads of columns.
BATCH_OVERHEAD: Final = 128
#: Bytes that a value or key needs at most beside its content.
ITEM_OVERHEAD: Final = 5

_ONLY_BYTES: Final = frozenset({bytes})


class Batch:
    """
    Records of one partition that are stored together.

    Attributes:
        values: The values.
        keys: As many keys, or None when no record has one.
        headers: As many header lists, or None.
        tokens: What the face is told with, one for each record; None for a
            batch of a group.
        group: The `send_batch` that it is a part of, or None.
        size: Upper bound of its bytes.
        deadline: When it fails if it is not stored.
        generation: Counts flushes; a flush waits for the generations before.
        sequence: Sequence of its first record, when it has one.
        flying: Written, and not answered.
        refused: The last answer said for certain that it is not stored.
        lost: The answer to some attempt was lost, so it may be stored.
        attempts: How often it was written.
        dues: When each record is due, as on the wire, or None for records that are
            not delayed.
        ttls: The time to live of each in milliseconds, or None.
        ids: The message id of each, or None.
        since: From when the delays of `dues` count.
        bare: Whether it has values alone; others look at the columns.
        data: The encoded batch, or None.
        written: Due times as they were written last, or None.
        transactional: Whether it belongs to the transaction of its identity.
        error: Why it failed, or None.
        base_offset: Offset of its first record, once stored.
        timestamp: When it was appended.
        volatile: Whether the topic lives in memory only.
        unroutable: Of an exchange: which records no binding takes, as bits, or None.
        known: Of a topic with a dedup window: the records that were there before, with the
            offsets of the first ones, by their places.
    """

    __slots__ = (
        "attempts",
        "bare",
        "base_offset",
        "data",
        "deadline",
        "dues",
        "error",
        "flying",
        "generation",
        "group",
        "headers",
        "ids",
        "keys",
        "known",
        "lost",
        "refused",
        "sequence",
        "since",
        "size",
        "timestamp",
        "tokens",
        "transactional",
        "ttls",
        "unroutable",
        "values",
        "volatile",
        "written",
    )

    def __init__(self, values: list[bytes | None], deadline: float, generation: int) -> None:
        self.values = values
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.dues: list[int] | None = None
        self.ttls: list[int | None] | None = None
        self.ids: list[bytes | None] | None = None
        self.known: dict[int, int] = {}
        self.since = 0.0
        self.bare = True
        self.tokens: list[Any] | None = None
        self.group: Group | None = None
        self.size = 0
        self.deadline = deadline
        self.generation = generation
        self.sequence = -1
        self.flying = False
        self.refused = False
        self.lost = False
        self.attempts = 0
        self.transactional = False
        self.data: bytes | None = None
        self.written: list[int] | None = None
        self.unroutable: bytes | None = None
        self.error: TinyMQError | None = None
        self.base_offset = -1
        self.timestamp = -1
        self.volatile = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mixed(self) -> bool:
        """Whether not the same holds for all its records, so that `outcomes` tells of each."""
        return self.dues is not None or self.unroutable is not None or bool(self.known)

    def encode(self, codec: Codec, identity: tuple[int, int] | None, now: float) -> bytes:
        """
        Encode it, once for each place in a sequence; with due times, every time.

        Args:
            codec: Compression.
            identity: Producer id and epoch, or None without a sequence.
            now: The time; what has passed is taken off delays.
        """
        if self.data is None or self.dues is not None:
            producer_id, epoch = identity or (NO_PRODUCER, -1)
            if self.dues is not None:
                self.written = on_the_wire(self.dues, self.since, now)
            self.data = encode_batch(
                self.values,
                keys=self.keys,
                headers=self.headers,
                ids=self.ids,
                ttls=self.ttls,
                dues=self.written,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.sequence,
                transactional=self.transactional,
            )
        return self.data


class Group:
    """
    The batches of one `send_batch`.

    Args:
        topic: Where they go.
        count: How many records.
        done: Called when the last batch is settled.

    Attributes:
        expected: Batches that are not settled, or -1 before they are cut.
    """

    __slots__ = (
        "count",
        "delayed",
        "done",
        "duplicates",
        "expected",
        "failed",
        "runs",
        "topic",
        "volatile",
    )

    def __init__(self, topic: str, count: int, done: Callable[[Group], None]) -> None:
        self.topic = topic
        self.count = count
        self.done = done
        self.expected = -1
        self.runs: list[Run] = []
        self.delayed: list[Run] = []
        self.duplicates: list[Run] = []
        self.failed: list[Failed] = []
        self.volatile = False

    def settle(self, batch: Batch, partition: int) -> None:
        """
        Note what became of one batch.

        Args:
            batch: The batch.
            partition: Where it went.
        """
        self.expected -= 1
        if batch.error is None:
            runs = self.runs if batch.dues is None else self.delayed
            runs += stored_runs(partition, batch)
            self.duplicates += [(partition, first, 1) for first in batch.known.values()]
            self.volatile = self.volatile or batch.volatile
            if batch.unroutable is not None:
                self.failed += left_over(self.topic, partition, batch)
        else:
            error = batch.error
            self.failed += [Failed(self.topic, value, error) for value in batch.values]
        if not self.expected:
            self.done(self)

    def result(self) -> Sent:
        """
        Say what became of all.

        Raises:
            TinyMQError: Nothing was stored; the first error.
            PartlySent: Some was stored and some was not.
        """
        stored = sum(count for _, _, count in self.runs + self.delayed + self.duplicates)
        delayed, duplicates = joined(self.delayed), joined(self.duplicates)
        sent = Sent(stored, joined(self.runs), self.volatile, delayed, duplicates)
        if not self.failed:
            return sent
        if not stored:
            raise self.failed[0].error
        raise PartlySent(sent, self.failed)


def as_values(values: Sequence[Any]) -> list[bytes | None]:
    """
    Take values as a caller gives them.

    Args:
        values: Bytes of any kind; None is a tombstone.

    Raises:
        UsageError: Something else.
    """
    if _ONLY_BYTES.issuperset(map(type, values)):
        return values if type(values) is list else list(values)
    return [as_value(value) for value in values]


def as_value(value: Any) -> bytes | None:
    """
    Take one value as a caller gives it.

    Args:
        value: Bytes of any kind; None is a tombstone.

    Raises:
        UsageError: Something else.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise UsageError(f"a value is bytes or None, not {type(value).__name__}; encode it first")


def as_headers(headers: Any) -> Headers:
    """
    Take the headers of one record as a caller gives them.

    Args:
        headers: Pairs of name and bytes, or a mapping.

    Raises:
        UsageError: Something else.
    """
    pairs = headers.items() if hasattr(headers, "items") else headers
    try:
        found = [(name, bytes(value)) for name, value in pairs if not isinstance(value, int)]
        "".join([name for name, _ in found]).encode()
    except (TypeError, ValueError) as error:
        raise UsageError("headers are pairs of a name and bytes") from error
    if len(found) != len(headers) or not all(type(name) is str for name, _ in found):
        raise UsageError("headers are pairs of a name and bytes")
    return found


def headers_size(headers: Headers | None) -> int:
    """
    Bound the bytes of one record's headers.

    Args:
        headers: The headers or None.
    """
    if not headers:
        return 1
    return 3 + sum(11 + 4 * len(name) + len(value) for name, value in headers)


def check_record(
    value: bytes | None, key: bytes | None, headers: Headers | None, limits: Limits
) -> None:
    """
    Refuse a record that no broker with these limits takes.

    Args:
        value: Its value.
        key: Its key.
        headers: Its headers.
        limits: The limits in force.

    Raises:
        ValueTooLarge: Over a limit, which the error names.
        InvalidRequest: More headers than allowed.
    """
    if value is not None and len(value) > limits.value:
        raise _too_large("value", len(value), limits.value)
    if key is not None and len(key) > limits.key:
        raise _too_large("key", len(key), limits.key)
    if headers:
        if len(headers) > limits.header_count:
            raise InvalidRequest(
                f"the record has {len(headers)} headers; the header_count limit is "
                f"{limits.header_count}",
                limit=limits.header_count,
                name="header_count",
            )
        size = sum(len(name.encode()) + len(content) for name, content in headers)
        if size > limits.headers:
            raise _too_large("headers", size, limits.headers)


def cut(sizes: Sequence[int], limit: int, most: int) -> list[int]:
    """
    Cut a run of records into batches.

    Args:
        sizes: Bytes of each record, at least one.
        limit: Most bytes of a batch; a record over it comes alone.
        most: Most records of a batch.

    Returns:
        Where each batch ends.
    """
    count = len(sizes)
    biggest = max(sizes)
    if count <= most and (count * biggest <= limit or sum(sizes) <= limit):
        return [count]
    if biggest == min(sizes):
        step = max(1, min(most, limit // biggest))
        return [*range(step, count, step), count]
    sums = list(accumulate(sizes))
    ends, start, before = [], 0, 0
    while start < count:
        end = bisect_right(sums, before + limit, start, min(count, start + most))
        end = max(end, start + 1)
        ends.append(end)
        before, start = sums[end - 1], end
    return ends


def _too_large(name: str, size: int, limit: int) -> ValueTooLarge:
    return ValueTooLarge(
        f"the record's {name} has {size} bytes; the {name} limit is {limit}",
        limit=limit,
        name=name,
    )
