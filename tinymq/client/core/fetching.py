"""What a consumer asks for, and what it has ready: looking up, fetching ahead, trouble."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.cursor import Cursor, Standing
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.starts import WORDS, At, Mark, Place
from tinymq.errors import (
    ClosedError,
    CorruptBatch,
    DeadlineExceeded,
    LogTruncated,
    NotLeader,
    OffsetOutOfRange,
    TinyMQError,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    WireError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import PARTITIONS, Fetch, FetchReply, Offsets, error_from_meta

#: Errors after which the topic must be looked up anew.
MOVED = (UnknownTopicId, UnknownTopic, UnknownPartition)


class Fetching:
    """
    The cursors of one consumer, and what was fetched for them.

    Args:
        cluster: The brokers.
        config: Settings.
        changed: Called with the time after each answer.

    Attributes:
        cursors: By topic and partition; who was served last stands last.
        line: What is to be handed out or told, in order: cursor, its ticket
            then, and an error or None for a batch.
        ready_bytes: Bytes fetched and not handed out.
        heard_at: When a broker last answered.
        why: Why no broker answers, or None.
        lost: The brokers that do not answer, None for any.
        starved: Whether something would have been fetched, had there been room.
    """

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, changed: Callable[[float], None]
    ) -> None:
        self.cursors: dict[tuple[str, int], Cursor] = {}
        self.line: deque[tuple[Cursor, int, TinyMQError | None]] = deque()
        self.ready_bytes = 0
        self.heard_at = -inf
        self.why: TinyMQError | None = None
        self.lost: set[int | None] = set()
        self.starved = False
        self._cluster = cluster
        self._config = config
        self._changed = changed

    def take(self) -> ConsumerBatch | None:
        """
        Take the next batch, if one is ready.

        Raises:
            TinyMQError: What happened to one partition.
        """
        line = self.line
        while line:
            cursor, ticket, error = line.popleft()
            if cursor.ticket != ticket:
                continue
            if error is not None:
                raise error
            batch = cursor.hand_out()
            self.ready_bytes -= batch.size
            return batch
        return None

    def drop_ready(self, cursor: Cursor) -> None:
        """
        Throw away what was fetched for a cursor, before it moves.

        Args:
            cursor: The cursor.
        """
        self.ready_bytes -= sum(batch.size for batch in cursor.ready)
        cursor.ready.clear()

    def reads(self, cursor: Cursor) -> bool:
        """
        Tell whether a cursor is read with, and no other has taken its place.

        Args:
            cursor: The cursor.
        """
        return self.cursors.get(cursor.where) is cursor

    def remove(self, cursor: Cursor) -> None:
        """
        Stop reading with a cursor.

        Args:
            cursor: The cursor.
        """
        self.drop_ready(cursor)
        cursor.back()
        if self.reads(cursor):
            del self.cursors[cursor.where]

    def clear(self) -> None:
        """Stop reading altogether."""
        for cursor in tuple(self.cursors.values()):
            self.remove(cursor)
        self.line.clear()

    @property
    def wake_at(self) -> float:
        """When something may be asked for again."""
        at = inf
        for cursor in self.cursors.values():
            waits = cursor.retry_at > -inf and not cursor.busy
            if waits and cursor.standing in (Standing.READING, Standing.LOOKING):
                at = min(at, cursor.retry_at)
        return at

    def retry(self, now: float) -> None:
        """
        Ask again for what has waited long enough.

        Args:
            now: The time.
        """
        for cursor in self.cursors.values():
            if cursor.retry_at <= now:
                cursor.retry_at = -inf
        self.pump(now)

    # --- asking ----------------------------------------------------------------

    def pump(self, now: float) -> None:
        """
        Ask for whatever may be asked for.

        Args:
            now: The time.
        """
        looking: dict[tuple[int | None, bytes], list[Cursor]] = {}
        reading: dict[int | None, list[Cursor]] = {}
        metadata = self._cluster.metadata
        room = self.ready_bytes < self._config.prefetch_bytes
        self.starved = False
        for cursor in self.cursors.values():
            if cursor.busy or cursor.retry_at > now:
                continue
            reads = cursor.standing is Standing.READING
            if reads and not room:
                self.starved = True
                continue
            if not reads and cursor.standing is not Standing.LOOKING:
                continue
            leader = metadata.leader(cursor.topic, cursor.partition)
            if leader == -1:
                self._leaderless(cursor, now)
            elif reads:
                reading.setdefault(leader, []).append(cursor)
            else:
                looking.setdefault((leader, cursor.topic_id), []).append(cursor)
        for (leader, _), cursors in looking.items():
            self._look(leader, cursors, now)
        for leader, cursors in reading.items():
            # Each waits by itself, so that the partitions of none starve the others.
            for first in range(0, len(cursors), PARTITIONS):
                self._fetch(leader, cursors[first : first + PARTITIONS], now)

    def _look(self, leader: int | None, cursors: list[Cursor], now: float) -> None:
        message = Offsets(
            topic_id=cursors[0].topic_id,
            queries=[(cursor.partition, _query(cursor.start)) for cursor in cursors],
        )
        asked = {cursor.partition: (cursor, cursor.ticket) for cursor in cursors}
        for cursor in cursors:
            cursor.busy = True

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            live = _live(asked)
            self._heard(leader, error, now)
            if error is not None:
                for cursor in live.values():
                    self._failed(cursor, error, now)
            else:
                self._looked(live, reply.results, now)
            self.pump(now)
            self._changed(now)

        self._request(leader, message, now + self._cluster.config.request_timeout_s, told, now)

    def _looked(
        self, live: dict[int, Cursor], results: list[tuple[int, int, int, int, Any]], now: float
    ) -> None:
        for partition, offset, epoch, _time, fault in results:
            cursor = live.get(partition)
            if cursor is None:
                continue
            if fault is not None:
                self._failed(cursor, error_from_meta(fault), now)
            else:
                cursor.failures = 0
                cursor.found(offset, epoch)

    def _fetch(self, leader: int | None, cursors: list[Cursor], now: float) -> None:
        topics: dict[bytes, list[tuple[int, int, int]]] = {}
        asked: dict[tuple[bytes, int], tuple[Cursor, int]] = {}
        for cursor in cursors:
            cursor.busy = True
            row = (cursor.partition, cursor.fetch_offset, cursor.fetch_epoch)
            topics.setdefault(cursor.topic_id, []).append(row)
            asked[cursor.topic_id, cursor.partition] = cursor, cursor.ticket
        config = self._config
        message = Fetch(
            topics=list(topics.items()),
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            uncommitted=config.isolation == "uncommitted",
        )

        def told(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
            live = _live(asked)
            self._heard(leader, error, now)
            if error is not None:
                for cursor in live.values():
                    self._failed(cursor, error, now)
            else:
                self._fetched(live, reply, payload, now)
            self.pump(now)  # read ahead, before anything is handed out
            self._changed(now)

        timeout = self._cluster.config.request_timeout_s + config.max_wait_ms / 1000
        self._request(leader, message, now + timeout, told, now)

    def _request(
        self, leader: int | None, message: Any, deadline: float, told: Any, now: float
    ) -> None:
        link = self._cluster.link(leader)
        link.request(message.type, message.to_meta(), (), deadline, told, now)

    def _fetched(
        self,
        live: dict[tuple[bytes, int], Cursor],
        reply: FetchReply,
        payload: Bytes,
        now: float,
    ) -> None:
        start = 0
        limits = self._cluster.limits
        aborted = {
            (topic_id, partition): {*identities}
            for topic_id, partition, identities in reply.aborted or ()
        }
        for topic_id, rows in reply.topics:
            for partition, high_watermark, low, following, size, fault in rows:
                data, start = payload[start : start + size], start + size
                cursor = live.get((topic_id, partition))
                if cursor is None:
                    continue
                if high_watermark >= 0:
                    cursor.high_watermark, cursor.low = high_watermark, low
                if fault is not None:
                    self._failed(cursor, error_from_meta(fault), now)
                    continue
                cursor.failures = 0
                if not size and following <= cursor.fetch_offset:
                    continue
                before = len(cursor.ready)
                try:
                    cursor.take(
                        data,
                        limits,
                        self._gap,
                        check_crc=self._config.check_crc,
                        aborted=aborted.get((topic_id, partition), ()),
                    )
                    cursor.go_on(following, self._gap)
                except CorruptBatch as error:
                    self._line_up(cursor, before)
                    self.stop(cursor, error)
                    continue
                self._line_up(cursor, before)
                # Who was served stands behind the others next time.
                self.cursors[cursor.where] = self.cursors.pop(cursor.where)

    def _gap(self, topic: str, partition: int, expected: int, found: int) -> None:
        """Tell the caller of missing offsets; what his function does wrong stays his."""
        on_gap = self._config.on_gap
        if on_gap is None:
            return
        try:
            on_gap(topic, partition, expected, found)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._cluster.report("on_gap failed", error)

    def _line_up(self, cursor: Cursor, before: int) -> None:
        for batch in list(cursor.ready)[before:]:
            self.ready_bytes += batch.size
            self.line.append((cursor, cursor.ticket, None))

    # --- trouble ---------------------------------------------------------------

    def _heard(self, leader: int | None, error: TinyMQError | None, now: float) -> None:
        """Note whether a broker answers; the log gets a line when that changes."""
        if error is None or isinstance(error, WireError):
            self.heard_at = now
            self.why = None
            if leader in self.lost:
                self.lost.discard(leader)
                self._cluster.say(f"connection to {self._name(leader)} is back")
            return
        self.why = error
        if leader not in self.lost and not isinstance(error, ClosedError):
            self.lost.add(leader)
            self._cluster.say(f"connection to {self._name(leader)} lost, trying again: {error}")

    def _name(self, leader: int | None) -> str:
        return "the broker" if leader is None else self._cluster.metadata.describe(leader)

    def _leaderless(self, cursor: Cursor, now: float) -> None:
        """Wait for the broker of a partition, while the others go on."""
        error = self._cluster.metadata.leaderless(*cursor.where)
        self.why = self.why or error
        self._failed(cursor, error, now)

    def _failed(self, cursor: Cursor, error: TinyMQError, now: float) -> None:
        if isinstance(error, (OffsetOutOfRange, LogTruncated)):
            jump = WORDS.get(self._config.out_of_range)
            if jump is not None:
                cursor.go(jump)
                return
            error.data.setdefault("start", cursor.low)
            error.data.setdefault("end", cursor.high_watermark)
            self.stop(cursor, error)
        elif isinstance(error, DeadlineExceeded) or getattr(error, "retriable", False):
            self._later(cursor, now)
            if isinstance(error, NotLeader):
                self._cluster.refresh(now)
        elif isinstance(error, MOVED):
            self._moved(cursor, error, now)
        else:
            self.stop(cursor, error)

    def _moved(self, cursor: Cursor, error: WireError, now: float) -> None:
        """
        Look the topic up: a broker that lags behind may not have heard of it yet.

        Only when the topic is another one, or has no such partition, the cursor is
        stopped with what its leader said.
        """
        ticket = cursor.ticket
        cursor.busy = True

        def found(info: TopicInfo | None, wrong: TinyMQError | None, now: float) -> None:
            if cursor.ticket != ticket:
                return
            cursor.busy = False
            same = info is not None and info.id == cursor.topic_id
            unknown = info is None and not isinstance(wrong, MOVED)
            if unknown or (info is not None and same and cursor.partition < info.partitions):
                self._later(cursor, now)
            else:
                self.stop(cursor, error)
            self.pump(now)
            self._changed(now)

        deadline = now + self._config.deadline_s
        self._cluster.topic(cursor.topic, deadline, found, now, fresh=True)

    def _later(self, cursor: Cursor, now: float) -> None:
        cursor.failures += 1
        backoff = self._cluster.config.backoff
        cursor.retry_at = now + backoff.delay(cursor.failures, self._cluster.chance())

    def stop(self, cursor: Cursor, error: TinyMQError) -> None:
        """
        Stop a cursor, and put the error where the next batch would be.

        Args:
            cursor: The cursor.
            error: Why.
        """
        if isinstance(error, WireError):
            error.data.setdefault("topic", cursor.topic)
            error.data.setdefault("partition", cursor.partition)
        cursor.stop(error)
        self.line.append((cursor, cursor.ticket, error))


def _live(asked: Mapping[Any, tuple[Cursor, int]]) -> dict[Any, Cursor]:
    """Those that still want the answer; they are free for the next request."""
    live = {key: cursor for key, (cursor, ticket) in asked.items() if cursor.ticket == ticket}
    for cursor in live.values():
        cursor.busy = False
    return live


def _query(start: Place) -> int:
    assert not isinstance(start, Mark), "a mark need not be looked up"
    return start.ms if isinstance(start, At) else start
