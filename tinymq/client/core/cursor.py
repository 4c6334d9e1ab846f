"""Where a consumer stands in one partition, and what was fetched for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from enum import Enum
from math import inf

from tinymq.client.core.config import GapReport
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.starts import Mark, Place
from tinymq.errors import CorruptBatch, TinyMQError
from tinymq.limits import Limits
from tinymq.wire.batch import CONTROL, TRANSACTIONAL, checked_header, read_header
from tinymq.wire.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Identity
from tinymq.wire.records import RecordBatch


class Standing(Enum):
    """What a cursor waits for."""

    #: Its start is not known as an offset yet.
    LOOKING = "looking"
    #: Data may be fetched.
    READING = "reading"
    #: The consumer paused it.
    PAUSED = "paused"
    #: An error was told; `seek` or `resume` goes on.
    STOPPED = "stopped"


class Cursor:
    """
    A consumer's place in one partition.

    Args:
        topic: Name of the topic.
        topic_id: Its identity.
        partition: Number of the partition.
        start: Where to start.

    Attributes:
        standing: What it waits for.
        position: The next offset to be handed out, or -1 before it is known.
        epoch: Epoch of the record before the position, or -1.
        fetch_offset: The next offset to be fetched.
        fetch_epoch: Epoch of the record before that, or -1.
        ticket: Changes when what is on its way must be dropped.
        busy: A request for it is on its way.
        retry_at: When it may be asked for again.
        failures: Failures since the last success.
        ready: Fetched and not handed out.
        high_watermark: As last told, or -1.
        low: First readable offset, as last told, or -1.
        gaps: Offsets that were missing.
        trouble: The error that stopped it, or None.
        paused: Whether the consumer paused it.
    """

    __slots__ = (
        "busy",
        "epoch",
        "failures",
        "fetch_epoch",
        "fetch_offset",
        "gaps",
        "high_watermark",
        "low",
        "partition",
        "paused",
        "position",
        "ready",
        "retry_at",
        "standing",
        "start",
        "ticket",
        "topic",
        "topic_id",
        "trouble",
    )

    def __init__(self, topic: str, topic_id: bytes, partition: int, start: Place) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.standing = Standing.LOOKING
        self.start: Place = start
        self.position = -1
        self.epoch = -1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.ticket = 0
        self.busy = False
        self.paused = False
        self.retry_at = -inf
        self.failures = 0
        self.ready: deque[ConsumerBatch] = deque()
        self.high_watermark = -1
        self.low = -1
        self.gaps = 0
        self.trouble: TinyMQError | None = None
        self.go(start)

    @property
    def where(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def go(self, start: Place) -> None:
        """
        Start anew, and drop what was fetched.

        Args:
            start: Where.
        """
        self._renew()
        self.start = start
        self.trouble = None
        self.failures = 0
        self.retry_at = -inf
        if isinstance(start, Mark):
            self.found(*start)
        elif isinstance(start, int) and start >= 0:
            self.found(start)
        else:
            self.standing = Standing.LOOKING
            self.position = self.epoch = -1

    @property
    def mark(self) -> Mark:
        """Where it stands; with the offset -1 before that is known."""
        return Mark(self.position, self.epoch)

    def found(self, offset: int, epoch: int = -1) -> None:
        """
        Take the offset at which to start.

        Args:
            offset: The offset.
            epoch: Epoch of the record before it, or -1.
        """
        self.standing = Standing.PAUSED if self.paused else Standing.READING
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch

    def back(self) -> None:
        """Drop what was fetched and not handed out; it will be fetched again."""
        self._renew()
        self.fetch_offset = self.position
        self.fetch_epoch = self.epoch

    def stop(self, error: TinyMQError) -> None:
        """
        Wait until somebody decides.

        Args:
            error: Why.
        """
        self.standing = Standing.STOPPED
        self.trouble = error

    def hand_out(self) -> ConsumerBatch:
        """Take the oldest batch that is ready."""
        batch = self.ready.popleft()
        self.position = batch.next_offset
        self.epoch = batch.leader_epoch
        self._settle()
        return batch

    def take(
        self,
        data: Bytes,
        limits: Limits,
        gap: GapReport,
        *,
        check_crc: bool,
        aborted: Container[Identity] = (),
    ) -> None:
        """
        Take fetched batches; they are ready afterwards.

        Args:
            data: Whole batches.
            limits: Bound what a batch may inflate to.
            gap: Told of offsets that do not exist.
            check_crc: Whether checksums are checked.
            aborted: The transactions among them that were aborted.

        Raises:
            CorruptBatch: At a batch that is damaged; those before it are ready.
        """
        view, start, size = memoryview(data), 0, len(data)
        while size - start >= BATCH_HEADER_SIZE:
            header = read_header(view, start)
            end = start + header.size
            if end > size or header.size < BATCH_HEADER_SIZE:
                raise CorruptBatch(f"a fetched batch says {header.size} bytes and has fewer")
            piece, start = view[start:end], end
            if header.next_offset <= self.fetch_offset:
                continue  # read before; a broker may send from the start of a segment's block
            if check_crc:
                header = checked_header(piece)
            if header.base_offset > self.fetch_offset:
                self._missed(header.base_offset, gap)
            skipped = self.fetch_offset
            self.fetch_offset = header.next_offset
            self.fetch_epoch = header.leader_epoch
            if header.attributes & CONTROL or not header.records:
                continue
            if (
                header.attributes & TRANSACTIONAL
                and (header.producer_id, header.producer_epoch) in aborted
            ):
                continue
            batch = RecordBatch(piece, header, limits.inflated)
            skip = 0
            if header.base_offset < skipped:
                skip = sum(offset < skipped for offset in batch.offsets)
            self.ready.append(
                ConsumerBatch(self.topic, self.partition, batch, skip, self.high_watermark)
            )

    def go_on(self, following: int, gap: GapReport) -> None:
        """
        Take the offset at which the broker says to go on.

        Args:
            following: The offset; if data end before it, all between is missing.
            gap: Told of that.
        """
        if following > self.fetch_offset:
            self._missed(following, gap)
            self.fetch_offset = following
            self.fetch_epoch = -1  # of a record there, which nobody has read
        self._settle()

    def _missed(self, following: int, gap: GapReport) -> None:
        self.gaps += following - self.fetch_offset
        gap(self.topic, self.partition, self.fetch_offset, following)

    def _settle(self) -> None:
        """When nothing is left to be handed out, pass over what never will be."""
        if not self.ready:
            self.position, self.epoch = self.fetch_offset, self.fetch_epoch

    def _renew(self) -> None:
        self.ticket += 1
        self.busy = False
        self.ready.clear()
