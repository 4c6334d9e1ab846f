"""The consumer without I/O: looking up, fetching ahead and handing out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from attrs import define

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.cursor import Cursor, Standing
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.results import EARLIEST, LATEST, At, Start
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
    UsageError,
    WireError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Fetch, Offsets, error_from_meta

#: Told that something which was asked for is done, or failed.
Told = Callable[[TinyMQError | None], None]

_MOVED = (UnknownTopicId, UnknownTopic, UnknownPartition)
_JUMPS = {"earliest": EARLIEST, "latest": LATEST}


@define(eq=False)
class _Assignment:
    """Somebody waits until the starts of these cursors are known."""

    cursors: set[Cursor]
    deadline: float
    done: Told


class ConsumerCore:
    """
    The consumer without I/O.

    Args:
        cluster: The brokers.
        config: Settings.
        wake: Called when `take` may have something, or an error.

    Attributes:
        heard_at: When a broker last answered.
        why: Why no broker answers, or None.
        closed: Whether it was closed.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, wake: Callable[[], None]) -> None:
        self.config = config
        self.heard_at = -inf
        self.why: TinyMQError | None = None
        self.closed = False
        self._cluster = cluster
        self._wake = wake
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._whole: set[str] = set()
        self._line: deque[tuple[Cursor, int, TinyMQError | None]] = deque()
        self._ready_bytes = 0
        self._assignments: list[_Assignment] = []
        cluster.add(self)

    @property
    def ready_bytes(self) -> int:
        """Bytes fetched and not handed out."""
        return self._ready_bytes

    @property
    def gaps(self) -> int:
        """Offsets that were missing so far."""
        return sum(cursor.gaps for cursor in self._cursors.values())

    # --- what to read ----------------------------------------------------------

    def assign(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        start: Start | Mapping[int, Start],
        done: Told,
        now: float,
    ) -> None:
        """
        Read partitions of a topic, beside those that are read already.

        Args:
            topic: Its name.
            partitions: Which; None means all, also those added later.
            start: Where, for all or for each.
            done: Told when every start is known as an offset, or that one is not.
            now: The time.
        """
        self._check()
        numbers = None if partitions is None else sorted(set(partitions))
        starts: dict[int, Start] = {}
        usual: Start = EARLIEST
        if isinstance(start, Mapping):
            starts.update(start)
        else:
            usual = start
        if numbers is None and starts:
            numbers = sorted(starts)
        deadline = now + self.config.deadline_s
        if numbers == []:
            raise UsageError("assign needs at least one partition")
        for one in [usual, *starts.values()]:
            _check_start(one)

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None or self.closed:
                done(error or ClosedError("the consumer was closed"))
                return
            chosen = range(info.partitions) if numbers is None else numbers
            for number in chosen:
                if not 0 <= number < info.partitions:
                    done(_no_partition(info, number))
                    return
            if numbers is None:
                self._whole.add(topic)
            cursors = {self._put(info, number, starts.get(number, usual)) for number in chosen}
            self._assignments.append(_Assignment(cursors, deadline, done))
            self._pump(now)
            self._settle(now)

        create = self.config.create_topics
        self._cluster.topic(topic, deadline, found, now, create=create)

    def unassign(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Stop reading.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        self._whole.discard(topic)
        for cursor in self._chosen(topic, partitions):
            self._drop_ready(cursor)
            cursor.back()
            del self._cursors[cursor.where]

    def _put(self, info: TopicInfo, number: int, start: Start) -> Cursor:
        old = self._cursors.pop((info.name, number), None)
        if old is not None:
            self._drop_ready(old)
            old.back()
        cursor = Cursor(info.name, info.id, number, start)
        self._cursors[cursor.where] = cursor
        return cursor

    # --- handing out -----------------------------------------------------------

    def take(self) -> ConsumerBatch | None:
        """
        Take the next batch, if one is ready.

        Raises:
            TinyMQError: What happened to one partition; its data say which. The
                others go on, this one after `seek` or `resume`.
        """
        self._check()
        line = self._line
        while line:
            cursor, ticket, error = line.popleft()
            if cursor.ticket != ticket:
                continue
            if error is not None:
                raise error
            batch = cursor.hand_out()
            self._ready_bytes -= batch.size
            return batch
        return None

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        return self.closed or bool(self._line)

    @property
    def quiet(self) -> bool:
        """Whether something is assigned and all of it is paused."""
        cursors = self._cursors.values()
        return bool(cursors) and all(one.standing is Standing.PAUSED for one in cursors)

    @property
    def stuck(self) -> TinyMQError | None:
        """Why `take` will never have anything again unless somebody acts, or None."""
        cursors = self._cursors.values()
        if self._line or self._assignments:
            return None
        if not cursors:
            return UsageError("nothing is assigned; call assign first")
        if any(cursor.standing in (Standing.READING, Standing.LOOKING) for cursor in cursors):
            return None
        for cursor in cursors:
            if cursor.trouble is not None:
                return cursor.trouble
        return None

    # --- moving ----------------------------------------------------------------

    def pause(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Hand out nothing more of some partitions.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
            now: The time.
        """
        for cursor in self._chosen(topic, partitions):
            cursor.paused = True
            if cursor.standing is Standing.READING:
                self._drop_ready(cursor)
                cursor.back()
                cursor.standing = Standing.PAUSED
        self._pump(now)

    def resume(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
            now: The time.
        """
        for cursor in self._chosen(topic, partitions):
            cursor.paused = False
            if cursor.standing is Standing.STOPPED:
                self._move(cursor, cursor.start if cursor.position < 0 else cursor.position, now)
            elif cursor.standing is Standing.PAUSED:
                cursor.standing = Standing.READING
        self._pump(now)

    def seek(self, topic: str, partition: int, start: Start, now: float) -> None:
        """
        Go on elsewhere; what was fetched is dropped.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: Where.
            now: The time.
        """
        _check_start(start)
        for cursor in self._chosen(topic, [partition]):
            self._drop_ready(cursor)
            self._move(cursor, start, now)
        self._pump(now)

    def position(self, topic: str, partition: int) -> int:
        """
        Say which offset is handed out next, or -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        return self._chosen(topic, [partition])[0].position

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        return sorted(self._cursors)

    def _move(self, cursor: Cursor, start: Start, now: float) -> None:
        moved = isinstance(cursor.trouble, _MOVED)
        cursor.go(start)
        if not moved:
            return
        ticket = cursor.ticket
        cursor.busy = True  # until it is known which topic bears the name now

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if cursor.ticket != ticket:
                return
            cursor.busy = False
            if info is None:
                self._stop(cursor, error or UnknownTopic())
            elif cursor.partition >= info.partitions:
                self._stop(cursor, _no_partition(info, cursor.partition))
            else:
                cursor.topic_id = info.id
            self._pump(now)
            self._settle(now)

        deadline = now + self.config.deadline_s
        self._cluster.topic(cursor.topic, deadline, found, now, fresh=True)

    # --- asking ----------------------------------------------------------------

    def _pump(self, now: float) -> None:
        """Ask for whatever may be asked for."""
        looking: dict[tuple[int, bytes], list[Cursor]] = {}
        reading: dict[int, list[Cursor]] = {}
        room = self._ready_bytes < self.config.prefetch_bytes
        for cursor in self._cursors.values():
            if cursor.busy or cursor.retry_at > now:
                continue
            if cursor.standing is Standing.READING:
                if room:
                    reading.setdefault(self._leader(cursor), []).append(cursor)
            elif cursor.standing is Standing.LOOKING:
                key = self._leader(cursor), cursor.topic_id
                looking.setdefault(key, []).append(cursor)
        for (leader, _), cursors in looking.items():
            self._look(leader, cursors, now)
        for leader, cursors in reading.items():
            self._fetch(leader, cursors, now)

    def _leader(self, cursor: Cursor) -> int:
        info = self._cluster.metadata.get(cursor.topic)
        if info is None or cursor.partition >= info.partitions:
            return -1
        return info.leaders[cursor.partition]

    def _look(self, leader: int, cursors: list[Cursor], now: float) -> None:
        message = Offsets(
            topic_id=cursors[0].topic_id,
            queries=[(cursor.partition, _query(cursor.start)) for cursor in cursors],
        )
        asked = {cursor.partition: (cursor, cursor.ticket) for cursor in cursors}
        for cursor in cursors:
            cursor.busy = True

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            live = _live(asked)
            self._heard(error, now)
            if error is not None:
                for cursor in live.values():
                    self._failed(cursor, error, now)
            else:
                self._looked(live, reply.results, now)
            self._pump(now)
            self._settle(now)

        self._request(leader, message, now + self._cluster.config.request_timeout_s, told, now)

    def _looked(
        self, live: dict[int, Cursor], results: list[tuple[int, int, int, int, Any]], now: float
    ) -> None:
        for partition, offset, _epoch, _time, fault in results:
            cursor = live.get(partition)
            if cursor is None:
                continue
            if fault is not None:
                self._failed(cursor, error_from_meta(fault), now)
            else:
                cursor.failures = 0
                cursor.found(offset)

    def _fetch(self, leader: int, cursors: list[Cursor], now: float) -> None:
        topics: dict[bytes, list[tuple[int, int, int]]] = {}
        asked: dict[tuple[bytes, int], tuple[Cursor, int]] = {}
        for cursor in cursors:
            cursor.busy = True
            row = (cursor.partition, cursor.fetch_offset, cursor.fetch_epoch)
            topics.setdefault(cursor.topic_id, []).append(row)
            asked[cursor.topic_id, cursor.partition] = cursor, cursor.ticket
        config = self.config
        message = Fetch(
            topics=list(topics.items()),
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
        )

        def told(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
            live = _live(asked)
            self._heard(error, now)
            if error is not None:
                for cursor in live.values():
                    self._failed(cursor, error, now)
            else:
                self._fetched(live, reply.topics, payload, now)
            self._pump(now)  # read ahead, before anything is handed out
            self._settle(now)

        timeout = self._cluster.config.request_timeout_s + config.max_wait_ms / 1000
        self._request(leader, message, now + timeout, told, now)

    def _request(self, leader: int, message: Any, deadline: float, told: Any, now: float) -> None:
        link = self._cluster.link(leader if leader >= 0 else None)
        link.request(message.type, message.to_meta(), (), deadline, told, now)

    def _fetched(
        self,
        live: dict[tuple[bytes, int], Cursor],
        topics: list[tuple[bytes, list[Any]]],
        payload: Bytes,
        now: float,
    ) -> None:
        start = 0
        limits = self._cluster.limits
        for topic_id, rows in topics:
            for partition, high_watermark, low, size, fault in rows:
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
                if not size:
                    continue
                before = len(cursor.ready)
                try:
                    cursor.take(data, self.config, limits)
                except CorruptBatch as error:
                    self._line_up(cursor, before)
                    self._stop(cursor, error)
                    continue
                self._line_up(cursor, before)
                # Who was served stands behind the others next time.
                self._cursors[cursor.where] = self._cursors.pop(cursor.where)

    def _line_up(self, cursor: Cursor, before: int) -> None:
        for batch in list(cursor.ready)[before:]:
            self._ready_bytes += batch.size
            self._line.append((cursor, cursor.ticket, None))

    # --- trouble ---------------------------------------------------------------

    def _heard(self, error: TinyMQError | None, now: float) -> None:
        if error is None or isinstance(error, WireError):
            self.heard_at = now
            self.why = None
        else:
            self.why = error

    def _failed(self, cursor: Cursor, error: TinyMQError, now: float) -> None:
        if isinstance(error, (OffsetOutOfRange, LogTruncated)):
            jump = _JUMPS.get(self.config.out_of_range)
            if jump is not None:
                cursor.go(jump)
                return
            error.data.setdefault("start", cursor.low)
            error.data.setdefault("end", cursor.high_watermark)
            self._stop(cursor, error)
        elif isinstance(error, DeadlineExceeded) or getattr(error, "retriable", False):
            cursor.failures += 1
            backoff = self._cluster.config.backoff
            cursor.retry_at = now + backoff.delay(cursor.failures, self._cluster.chance())
            if isinstance(error, NotLeader):
                self._cluster.refresh(now)
        else:
            if isinstance(error, _MOVED):
                self._cluster.refresh(now)
            self._stop(cursor, error)

    def _stop(self, cursor: Cursor, error: TinyMQError) -> None:
        if isinstance(error, WireError):
            error.data.setdefault("topic", cursor.topic)
            error.data.setdefault("partition", cursor.partition)
        cursor.stop(error)
        self._line.append((cursor, cursor.ticket, error))

    def _settle(self, now: float) -> None:
        """Tell whom it concerns that starts are known, and that data are ready."""
        for one in tuple(self._assignments):
            lost = [cursor for cursor in one.cursors if cursor.trouble is not None]
            looking = any(cursor.standing is Standing.LOOKING for cursor in one.cursors)
            if not lost and looking and now < one.deadline:
                continue
            self._assignments.remove(one)
            if lost:
                error = lost[0].trouble
            elif looking:
                error = self.why or DeadlineExceeded("the starts were not found in time")
            else:
                error = None
            if error is not None:
                for cursor in one.cursors:
                    if self._cursors.get(cursor.where) is cursor:
                        self._drop_ready(cursor)
                        cursor.back()
                        del self._cursors[cursor.where]
            one.done(error)
        self._wake()

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = min((one.deadline for one in self._assignments), default=inf)
        for cursor in self._cursors.values():
            if (
                cursor.retry_at > -inf
                and not cursor.busy
                and cursor.standing in (Standing.READING, Standing.LOOKING)
            ):
                at = min(at, cursor.retry_at)
        return at

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        for cursor in self._cursors.values():
            if cursor.retry_at <= now:
                cursor.retry_at = -inf
        self._pump(now)
        self._settle(now)

    def more(self, now: float) -> None:
        """
        Fetch on, after something was handed out.

        Args:
            now: The time.
        """
        if self._ready_bytes < self.config.prefetch_bytes:
            self._pump(now)

    def link_changed(self, now: float) -> None:
        """
        Go on fetching.

        Args:
            now: The time.
        """
        self._pump(now)

    def topics_changed(self, now: float) -> None:
        """
        Read partitions that were added to topics read as a whole.

        Args:
            now: The time.
        """
        for topic in self._whole:
            info = self._cluster.metadata.get(topic)
            if info is None:
                continue
            for number in range(info.partitions):
                if (topic, number) not in self._cursors:
                    self._put(info, number, EARLIEST)
        self._pump(now)

    def cluster_closed(self, now: float) -> None:
        """
        End every pending call.

        Args:
            now: The time.
        """
        self.close()

    def close(self) -> None:
        """Stop reading; waiting calls are told `ClosedError`."""
        if self.closed:
            return
        self.closed = True
        self._cluster.remove(self)
        for cursor in self._cursors.values():
            cursor.back()
        self._cursors.clear()
        self._line.clear()
        self._ready_bytes = 0
        assignments, self._assignments = self._assignments, []
        for one in assignments:
            one.done(ClosedError("the consumer was closed"))
        self._wake()

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the consumer was closed")

    def _chosen(self, topic: str, partitions: Iterable[int] | None) -> list[Cursor]:
        self._check()
        if partitions is None:
            return [cursor for cursor in self._cursors.values() if cursor.topic == topic]
        found = []
        for number in partitions:
            cursor = self._cursors.get((topic, number))
            if cursor is None:
                raise UsageError(f"partition {number} of {topic} is not assigned")
            found.append(cursor)
        return found

    def _drop_ready(self, cursor: Cursor) -> None:
        self._ready_bytes -= sum(batch.size for batch in cursor.ready)
        cursor.ready.clear()


def _live(asked: Mapping[Any, tuple[Cursor, int]]) -> dict[Any, Cursor]:
    """Those that still want the answer; they are free for the next request."""
    live = {key: cursor for key, (cursor, ticket) in asked.items() if cursor.ticket == ticket}
    for cursor in live.values():
        cursor.busy = False
    return live


def _query(start: Start) -> int:
    return start.ms if isinstance(start, At) else start


def _check_start(start: object) -> None:
    low = start.ms if isinstance(start, At) else start
    if type(low) is not int or low < (0 if isinstance(start, At) else EARLIEST):
        raise UsageError(f"a start is EARLIEST, LATEST, an offset or At(ms), not {start!r}")


def _no_partition(info: TopicInfo, partition: int) -> TinyMQError:
    return UnknownPartition(
        f"topic {info.name} has {info.partitions} partitions and no number {partition}",
        topic=info.name,
        partition=partition,
    )
