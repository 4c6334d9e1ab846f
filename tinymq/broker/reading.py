"""
Long polls: a FETCH waits until enough is visible, or until its time is up.

A waiting read costs nothing but a timer: partitions call it when their high
watermark rises, and it counts bytes instead of reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tinymq.broker.partition import Partition
from tinymq.broker.ports import Timer, World
from tinymq.errors import WireError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Fetch, FetchReply, error_meta


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
    """

    __slots__ = (
        "_answer",
        "_background",
        "_deadline",
        "_full",
        "_request",
        "_scheduler",
        "_wanted",
        "_warming",
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
        self._wanted = wanted
        self._answer: Fetched | None = answer
        self._full = full
        self._scheduler = world.scheduler
        self._background = world.background
        self._deadline: Timer | None = None
        self._warming = False

    def start(self) -> None:
        """Answer at once if possible, else begin to wait."""
        ready = self._available() >= self._request.min_bytes
        if ready or not self._request.max_wait_ms or self._refused():
            self._finish()
            return
        self._deadline = self._scheduler.callLater(self._request.max_wait_ms / 1000, self._finish)
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
        enough = self._request.min_bytes
        total = 0
        for wanted in self._wanted:
            partition = wanted.partition
            if partition is None:
                continue
            visible = partition.high_watermark
            if wanted.offset < visible:
                total += 1 if enough <= 1 else partition.log.bytes_between(wanted.offset, visible)
                if total >= enough:
                    break
        return total

    def _advanced(self) -> None:
        if not self._warming and (self._available() >= self._request.min_bytes or self._refused()):
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
        if self._answer is not None and self._full():
            self._answer = None
        self._collect(nowait=True)

    def _collect(self, *, nowait: bool) -> None:
        """Read everything and answer; go through the background for a cold page."""
        if self._answer is None:
            return
        pieces: list[Bytes] = []
        topics: list[tuple[bytes, list[Any]]] = []
        left = self._request.max_bytes
        for wanted in self._wanted:
            if not topics or topics[-1][0] != wanted.topic_id:
                topics.append((wanted.topic_id, []))
            error = self._error(wanted)
            if error is not None or wanted.partition is None:
                row = (wanted.number, -1, -1, 0, error_meta(error) if error is not None else None)
                topics[-1][1].append(row)
                continue
            partition = wanted.partition
            size = 0
            if left > 0:
                try:
                    data = partition.read(wanted.offset, left, nowait=nowait)
                except WireError as failure:
                    topics[-1][1].append((wanted.number, -1, -1, 0, error_meta(failure)))
                    continue
                if data is None:
                    self._warm(partition, wanted.offset, left)
                    return
                size = len(data)
                if size:
                    pieces.append(data)
                    left -= size
            topics[-1][1].append(
                (wanted.number, partition.high_watermark, partition.log.start_offset, size, None)
            )
        answer, self._answer = self._answer, None
        answer(FetchReply(topics=topics), pieces)

    def _warm(self, partition: Partition, offset: int, size: int) -> None:
        """Let the background pull pages from the disk, then read them here."""
        warm = partition.log.warmer(offset, size)
        self._warming = True

        def warmed() -> None:
            self._warming = False
            self._collect(nowait=False)

        self._background.submit(warm, warmed)
