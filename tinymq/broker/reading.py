"""
Long polls: a FETCH waits until enough is visible, or until its time is up.

A waiting read costs nothing but a timer: partitions call it when their high
watermark rises, and it counts bytes instead of reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.partition import Partition
from tinymq.broker.ports import Timer, World
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import InternalError, WireError
from tinymq.storage.facts import Chunk
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Fetch, FetchReply, error_meta

#: Aborted transactions in one answer: so many fit into its head.
MOST_ABORTED: Final = 1000


class Wanted(NamedTuple):
    """One partition of a FETCH; without a partition there is an error to tell."""

    topic_id: bytes
    number: int
    partition: Partition | None
    offset: int
    epoch: int
    error: WireError | None


#: What goes into the reply: its message and the pieces of its payload.
Fetched = Callable[[FetchReply, list[Bytes]], None]


class Reader:
    """
    One FETCH under way.

    Args:
        request: What was asked.
        wanted: Its partitions, found or not.
        answer: Called once with the reply.
        full: Asked before anything is read: whether the peer does not take more
            now. Who says yes has taken the request back.
        world: Scheduler and background.

    Attributes:
        records: How many it handed out, as the partitions count them.
    """

    _log = Logger()

    __slots__ = (
        "_answer",
        "_background",
        "_deadline",
        "_enough",
        "_full",
        "_request",
        "_scheduler",
        "_uncommitted",
        "_wanted",
        "records",
    )

    def __init__(
        self,
        request: Fetch,
        wanted: list[Wanted],
        answer: Fetched,
        full: Callable[[], bool],
        world: World,
    ) -> None:
        self._request = request
        self._uncommitted = request.uncommitted
        #: What would never be answered in one go is not waited for.
        self._enough = min(request.min_bytes, request.max_bytes)
        self._wanted = wanted
        self._answer: Fetched | None = answer
        self._full = full
        self._scheduler = world.scheduler
        self._background = world.background
        self._deadline: Timer | None = None
        self.records = 0

    def start(self) -> None:
        """Answer at once if possible, else begin to wait."""
        if self._ready() or not self._request.max_wait_ms:
            self._finish()
        else:
            self._wait()

    def _wait(self) -> None:
        delay = self._request.max_wait_ms / 1000
        self._deadline = self._scheduler.callLater(delay, self._finish)
        for wanted in self._wanted:
            if wanted.partition is not None:
                wanted.partition.watchers.add(self._advanced)

    def cancel(self) -> None:
        """Forget the request: its connection is gone."""
        self._answer = None
        self._let_go()

    def _refused(self) -> bool:
        return any(self._error(wanted) is not None for wanted in self._wanted)

    @staticmethod
    def _error(wanted: Wanted) -> WireError | None:
        if wanted.partition is None:
            return wanted.error
        try:
            wanted.partition.check_position(wanted.offset, wanted.epoch)
        except WireError as error:
            return error
        return None

    def _available(self) -> int:
        """Bytes visible behind the positions, as far as it matters."""
        enough = self._enough
        total = 0
        for wanted in self._wanted:
            partition = wanted.partition
            if partition is None:
                continue
            visible = self._visible(partition)
            if wanted.offset < visible:
                total += 1 if enough <= 1 else partition.log.bytes_between(wanted.offset, visible)
                if total >= enough:
                    break
        return total

    def _visible(self, partition: Partition) -> int:
        """How far the request may read in a partition."""
        return partition.high_watermark if self._uncommitted else partition.stable_offset

    def _ready(self) -> bool:
        return self._available() >= self._enough or self._refused()

    def _advanced(self) -> None:
        if self._ready():
            self._finish()

    def _let_go(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None
        for wanted in self._wanted:
            if wanted.partition is not None:
                wanted.partition.watchers.discard(self._advanced)

    @property
    def finished(self) -> bool:
        """Whether nothing is to be expected of it any more."""
        return self._answer is None

    def _finish(self) -> None:
        self._let_go()
        self._answer_with(nowait=True)

    def _answer_with(self, *, nowait: bool) -> None:
        """Read everything and answer, unless the peer takes no more just now."""
        if self._answer is not None and self._full():
            self._answer = None
        if self._answer is None:
            return
        try:
            reading = self._read(nowait=nowait)
        except Exception:  # noqa: BLE001 - must not reach the partition that woke this
            self._log.failure("reading for {request} failed", request=self._request)
            reading = _Reading()
            for wanted in self._wanted:
                reading.failed(wanted, InternalError())
        if reading is None:
            return
        for partition, offset, chunk in reading.parts:
            partition.handed_out(offset, chunk)
            self.records += max(0, chunk.next_offset - offset)
        answer, self._answer = self._answer, None
        reply = FetchReply(topics=reading.topics, aborted=reading.aborted or None)
        answer(reply, [chunk.data for _, _, chunk in reading.parts])

    def _read(self, *, nowait: bool) -> _Reading | None:
        """Read what is wanted; None when a page is cold, which the background then warms."""
        reading = _Reading()
        left = self._request.max_bytes
        for wanted in self._wanted:
            error, partition = self._error(wanted), wanted.partition
            if error is not None or partition is None:
                reading.failed(wanted, error)
                continue
            chunk = Chunk(b"", wanted.offset, wanted.offset)
            if left > 0:
                try:
                    found = partition.read(
                        wanted.offset, left, nowait=nowait, uncommitted=self._uncommitted
                    )
                except WireError as failure:
                    reading.failed(wanted, failure)
                    continue
                if found is None:
                    self._warm(partition, wanted.offset, left)
                    return None
                chunk = found
                if partition.transactions.aborted and not self._uncommitted:
                    chunk = reading.aborting(wanted, partition, chunk)
            left -= len(chunk.data)
            reading.found(wanted, partition, chunk, self._visible(partition))
        return reading

    def _warm(self, partition: Partition, offset: int, size: int) -> None:
        """Let the background pull pages from the disk, then read them here."""
        warm = partition.log.warmer(offset, size)
        self._background.submit(warm, lambda: self._answer_with(nowait=False))


class _Reading:
    """
    What was read for one FETCH.

    Attributes:
        topics: The rows of the reply.
        parts: What the payload is made of: partition, offset asked for, data.
        aborted: The transactions in it that were aborted: topic id, partition, which.
    """

    __slots__ = ("_left", "aborted", "parts", "topics")

    def __init__(self) -> None:
        self._left = MOST_ABORTED
        self.aborted: list[tuple[bytes, int, list[Identity]]] = []
        self.topics: list[tuple[bytes, list[Any]]] = []
        self.parts: list[tuple[Partition, int, Chunk]] = []

    def _row(self, wanted: Wanted, *facts: Any) -> None:
        if not self.topics or self.topics[-1][0] != wanted.topic_id:
            self.topics.append((wanted.topic_id, []))
        self.topics[-1][1].append((wanted.number, *facts))

    def failed(self, wanted: Wanted, error: WireError | None) -> None:
        """Enter an error."""
        self._row(wanted, -1, -1, -1, 0, None if error is None else error_meta(error))

    def aborting(self, wanted: Wanted, partition: Partition, chunk: Chunk) -> Chunk:
        """Enter which transactions in a chunk were aborted; cut it where they are too many."""
        chunk, found = partition.transactions.within(chunk, self._left)
        if found:
            self._left -= len(found)
            self.aborted.append((wanted.topic_id, wanted.number, found))
        return chunk

    def found(self, wanted: Wanted, partition: Partition, chunk: Chunk, visible: int) -> None:
        """Enter what was read."""
        size = len(chunk.data)
        if size:
            self.parts.append((partition, wanted.offset, chunk))
        start = partition.log.start_offset
        self._row(wanted, visible, start, chunk.next_offset, size, None)
