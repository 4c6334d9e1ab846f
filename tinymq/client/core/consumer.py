"""The consumer without I/O: looking up, fetching ahead and handing out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from attrs import define

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.cursor import Cursor, Standing
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.fetching import MOVED, Fetching
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.starts import EARLIEST, Mark, Place, Start, Starts, read_start
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    TinyMQError,
    UnknownPartition,
    UnknownTopic,
    UsageError,
)

#: Told that something which was asked for is done, or failed.
Told = Callable[[TinyMQError | None], None]


@define(eq=False)
class _Assignment:
    """Somebody waits until the starts of these cursors are known."""

    cursors: set[Cursor]
    deadline: float
    done: Told
    #: The topic, if it is read as a whole only since this call.
    whole: str | None


class ConsumerCore:
    """
    The consumer without I/O.

    Args:
        cluster: The brokers.
        config: Settings.
        wake: Called when `take` may have something, or an error.

    Attributes:
        fetching: What is asked for, and what is ready.
        closed: Whether it was closed.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, wake: Callable[[], None]) -> None:
        self.config = config
        self.closed = False
        self._cluster = cluster
        self._wake = wake
        self._whole: set[str] = set()
        self._assignments: list[_Assignment] = []
        self.fetching = Fetching(cluster, config, self._settle)
        cluster.add(self)

    @property
    def ready_bytes(self) -> int:
        """Bytes fetched and not handed out."""
        return self.fetching.ready_bytes

    @property
    def gaps(self) -> int:
        """Offsets that were missing so far."""
        return sum(cursor.gaps for cursor in self.fetching.cursors.values())

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
            start: Where, for all or for some; the others start at `EARLIEST`.
            done: Told when every start is known as an offset, or that one is not.
            now: The time.
        """
        self._check()
        numbers = None if partitions is None else sorted(set(partitions))
        starts = Starts.read(start)
        deadline = now + self.config.deadline_s
        if numbers == []:
            raise UsageError("assign needs at least one partition")

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None or self.closed:
                done(error or ClosedError("the consumer was closed"))
                return
            for number in starts.named if numbers is None else numbers:
                if not 0 <= number < info.partitions:
                    done(_no_partition(info, number))
                    return
            whole = topic if numbers is None and topic not in self._whole else None
            if numbers is None:
                self._whole.add(topic)
            chosen = range(info.partitions) if numbers is None else numbers
            cursors = {self._put(info, number, starts.of(number)) for number in chosen}
            self._assignments.append(_Assignment(cursors, deadline, done, whole))
            self.fetching.pump(now)
            self._settle(now)

        create = self.config.create_topics
        self._cluster.topic(topic, deadline, found, now, create=create)

    def unassign(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Stop reading; who waits is woken, as there may be nothing left to wait for.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        self._whole.discard(topic)
        for cursor in self._chosen(topic, partitions):
            self.fetching.remove(cursor)
        self._wake()

    def read(self, info: TopicInfo, partition: int, start: Place) -> Cursor:
        """
        Read a partition whose topic is known; `link_changed` begins to fetch.

        Args:
            info: The topic.
            partition: Number of the partition.
            start: Where.
        """
        return self._put(info, partition, start)

    def leave(self, cursor: Cursor) -> None:
        """
        Stop reading with a cursor; where it stands is kept.

        Args:
            cursor: From `read`.
        """
        self.fetching.remove(cursor)

    def _put(self, info: TopicInfo, number: int, start: Place) -> Cursor:
        old = self.fetching.cursors.get((info.name, number))
        if old is not None:
            self.fetching.remove(old)
        cursor = Cursor(info.name, info.id, number, start)
        self.fetching.cursors[cursor.where] = cursor
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
        return self.fetching.take()

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        return self.closed or bool(self.fetching.line)

    @property
    def quiet(self) -> bool:
        """Whether something is assigned and all of it is paused."""
        cursors = self.fetching.cursors.values()
        return bool(cursors) and all(one.standing is Standing.PAUSED for one in cursors)

    @property
    def stuck(self) -> TinyMQError | None:
        """Why `take` will never have anything again unless somebody acts, or None."""
        cursors = self.fetching.cursors.values()
        if self.fetching.line or self._assignments:
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
                self.fetching.drop_ready(cursor)
                cursor.back()
                cursor.standing = Standing.PAUSED
        self.fetching.pump(now)

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
                self._move(cursor, _again(cursor), now)
            elif cursor.standing is Standing.PAUSED:
                cursor.standing = Standing.READING
        self.fetching.pump(now)

    def seek(self, topic: str, partition: int, start: Start, now: float) -> None:
        """
        Go on elsewhere; what was fetched is dropped.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: Where.
            now: The time.
        """
        place = read_start(start)
        for cursor in self._chosen(topic, [partition]):
            self.fetching.drop_ready(cursor)
            self._move(cursor, place, now)
        self.fetching.pump(now)

    def position(self, topic: str, partition: int) -> int:
        """
        Say which offset is handed out next, or -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        return self._chosen(topic, [partition])[0].position

    def mark(self, topic: str, partition: int) -> Mark:
        """
        Say the same as `position`, with the epoch that belongs to it.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        return self._chosen(topic, [partition])[0].mark

    def marks(self, topic: str) -> dict[int, Mark]:
        """
        Say where every partition that is read stands, if that is known.

        Args:
            topic: Name of the topic.
        """
        known = [cursor for cursor in self._chosen(topic, None) if cursor.position >= 0]
        return {cursor.partition: cursor.mark for cursor in sorted(known, key=_number)}

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        return sorted(self.fetching.cursors)

    def _move(self, cursor: Cursor, start: Place, now: float) -> None:
        moved = isinstance(cursor.trouble, MOVED)
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
                self.fetching.stop(cursor, error or UnknownTopic())
            elif cursor.partition >= info.partitions:
                self.fetching.stop(cursor, _no_partition(info, cursor.partition))
            else:
                cursor.topic_id = info.id
            self.fetching.pump(now)
            self._settle(now)

        deadline = now + self.config.deadline_s
        self._cluster.topic(cursor.topic, deadline, found, now, fresh=True)

    def _settle(self, now: float) -> None:
        """Tell whom it concerns that starts are known, and that data are ready."""
        for one in tuple(self._assignments):
            # Those that were assigned anew, or are not read any more, concern nobody here.
            live = [each for each in one.cursors if self.fetching.reads(each)]
            lost = [cursor for cursor in live if cursor.trouble is not None]
            looking = [cursor for cursor in live if cursor.standing is Standing.LOOKING]
            # Partitions whose broker is away do not keep the others from being read.
            some = len(looking) < len(live)
            wait = looking and not (some and all(map(self._away, looking)))
            if wait and not lost and now < one.deadline:
                continue
            self._assignments.remove(one)
            if lost:
                error = lost[0].trouble
            elif looking and not some:
                error = self._cluster.trouble(*looking[0].where) or self.fetching.why
                error = error or DeadlineExceeded("the starts were not found in time")
            else:
                error = None
            if error is not None:
                if one.whole is not None:
                    self._whole.discard(one.whole)
                for cursor in live:
                    self.fetching.remove(cursor)
            one.done(error)
        self._wake()

    def _away(self, cursor: Cursor) -> bool:
        return self._cluster.metadata.leader(*cursor.where) == -1

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = min((one.deadline for one in self._assignments), default=inf)
        return min(at, self.fetching.wake_at)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        self.fetching.retry(now)
        self._settle(now)

    def more(self, now: float) -> None:
        """
        Fetch on, after something was handed out, if that has waited for room.

        Args:
            now: The time.
        """
        fetching = self.fetching
        if fetching.starved and fetching.ready_bytes < self.config.prefetch_bytes:
            fetching.pump(now)

    def link_changed(self, now: float) -> None:
        """
        Go on fetching.

        Args:
            now: The time.
        """
        self.fetching.pump(now)

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
                if (topic, number) not in self.fetching.cursors:
                    self._put(info, number, EARLIEST)
        self.fetching.pump(now)
        if self._assignments:
            self._settle(now)

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
        self.fetching.clear()
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
            return [cursor for cursor in self.fetching.cursors.values() if cursor.topic == topic]
        found = []
        for number in partitions:
            cursor = self.fetching.cursors.get((topic, number))
            if cursor is None:
                raise UsageError(f"partition {number} of {topic} is not assigned")
            found.append(cursor)
        return found


def _number(cursor: Cursor) -> int:
    return cursor.partition


def _again(cursor: Cursor) -> Place:
    """Where a cursor that was stopped stands; in a topic made anew no epoch is known."""
    if cursor.position < 0:
        return cursor.start
    return cursor.position if isinstance(cursor.trouble, MOVED) else cursor.mark


def _no_partition(info: TopicInfo, partition: int) -> TinyMQError:
    return UnknownPartition(
        f"topic {info.name} has {info.partitions} partitions and no number {partition}",
        topic=info.name,
        partition=partition,
    )
