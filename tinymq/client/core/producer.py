"""The producer without I/O: placing, batching, sending and accounting for records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from tinymq.client.core.batches import (
    BATCH_OVERHEAD,
    ITEM_OVERHEAD,
    Batch,
    Group,
    as_headers,
    as_value,
    as_values,
    check_record,
    cut,
    headers_size,
)
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ACKS, CODECS, ProducerConfig
from tinymq.client.core.exits import WATCH
from tinymq.client.core.identities import Identities
from tinymq.client.core.lane import Lane
from tinymq.client.core.link import Link
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.partitioners import Key, key_bytes
from tinymq.client.core.results import MOST_FAILURES_KEPT, Account, Failed
from tinymq.client.core.routes import Parked, Route
from tinymq.errors import (
    BufferFull,
    ClosedError,
    InvalidName,
    TinyMQError,
    UnknownPartition,
    UsageError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.header import MessageType
from tinymq.wire.messages import NAME_BYTES, Produce
from tinymq.wire.records import Headers

#: Told that a batch of single records is settled; the face fires its tokens.
Deliver = Callable[[str, int, Batch], None]

#: Records below this size cannot break a limit, so they are not looked at one by one.
_SURELY_FINE = 32 * 1024


class Flight(NamedTuple):
    """A record that is written outside of the common way."""

    lane: Lane
    batch: Batch
    link: Link
    data: bytes


class ProducerCore:
    """
    The producer without I/O.

    Args:
        cluster: The brokers.
        config: Settings.
        deliver: Told of each settled batch of single records.

    Attributes:
        pending: Messages without an answer.
        held: Bytes of them.
        closed: Whether it takes no more records.
        finished: Whether it was closed and every message is settled.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, deliver: Deliver) -> None:
        self.config = config
        self.pending = 0
        self.held = 0
        self.closed = False
        self.finished = False
        self._cluster = cluster
        self._deliver = deliver
        self.acks = ACKS[config.acks]
        self._quiet = config.acks == "none"
        self._codec = CODECS[config.codec]
        self._idempotent = config.idempotent and not self._quiet
        self._linger = config.linger_ms / 1000
        self._routes: dict[str, Route] = {}
        self._lanes: list[Lane] = []
        self._open: dict[Lane, None] = {}
        self._identities = Identities(cluster, config.deadline_s, self._fire)
        self._settled: deque[tuple[str, int, Batch]] = deque()
        self._firing = False
        self._sent = 0
        self._unconfirmed = 0
        self._failures = 0
        self._failed: list[Failed] = []
        self._generation = 0
        self._stamp = 0
        self._batch_bytes = self._batch_records = 0
        self._counts: dict[int, int] = {}
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._apply_limits()
        cluster.add(self)
        WATCH.add(self)

    # --- records in ------------------------------------------------------------

    def append(  # noqa: PLR0913, PLR0917 - the fields of a record
        self,
        topic: str,
        value: Any,
        key: Key | None,
        headers: Any,
        partition: int | None,
        token: Any,
        now: float,
    ) -> None:
        """
        Take one record.

        Args:
            topic: Name of the topic.
            value: Its value.
            key: Its key.
            headers: Its headers.
            partition: Its partition, or None to choose one.
            token: What the face is told with; None tells nobody.
            now: The time.

        Raises:
            BufferFull: Too much is held already.
            ClosedError: The producer was closed.
            UsageError: A field is of the wrong type.
            ValueTooLarge: Over a limit.
        """
        if type(value) is not bytes:
            value = as_value(value)
        if key is not None:
            key = key_bytes(key)
        headers = None if headers is None else as_headers(headers)
        size = ITEM_OVERHEAD * 2 + (len(value) if value else 0)
        if key:
            size += len(key)
        if headers is not None:
            size += headers_size(headers)
        if headers or size > _SURELY_FINE:
            check_record(value, key, headers, self._cluster.limits)
        route = self._routes.get(topic)
        if route is None:
            route = self._meet(topic, now)
        self._admit(size, 1)
        if route.info is None:
            batch = self._to_park([value], size, now)
            batch.tokens = [token]

            def place(now: float) -> None:
                self._place(route, value, key, headers, partition, token, size, now)

            route.parked.append(Parked(batch, place))
            return
        try:
            self._place(route, value, key, headers, partition, token, size, now)
        except BaseException:
            self._dismiss(size, 1)
            raise

    def append_many(  # noqa: PLR0913, PLR0917 - the fields of records
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Key | None] | None,
        headers: Sequence[Any] | None,
        partition: int | None,
        done: Callable[[Group], None],
        now: float,
    ) -> None:
        """
        Take many records; nothing is taken when one of them is refused.

        Args:
            topic: Name of the topic.
            values: Their values, at least one.
            keys: As many keys, or None.
            headers: As many header lists, or None.
            partition: The partition of all, or None to choose.
            done: Told when all are settled.
            now: The time.

        Raises:
            BufferFull: Too much is held already.
            ClosedError: The producer was closed.
            UsageError: A field is of the wrong type, or the lengths differ.
            ValueTooLarge: A record is over a limit.
        """
        values = as_values(values)
        count = len(values)
        if not count:
            raise UsageError("send_batch needs at least one value")
        plain_keys = None if keys is None else [key_bytes(key) for key in keys]
        lists = None if headers is None else [as_headers(one or ()) for one in headers]
        if (plain_keys is not None and len(plain_keys) != count) or (
            lists is not None and len(lists) != count
        ):
            raise UsageError("send_batch needs as many keys and headers as values")
        sizes = self._sizes(values, plain_keys, lists)
        total = sum(sizes)
        route = self._routes.get(topic)
        if route is None:
            route = self._meet(topic, now)
        self._admit(total, count)
        group = Group(topic, count, done)
        if route.info is None:
            batch = self._to_park(values, total, now)
            batch.group = group

            def place(now: float) -> None:
                self._place_many(route, values, plain_keys, lists, sizes, partition, group, now)

            route.parked.append(Parked(batch, place))
            return
        try:
            self._place_many(route, values, plain_keys, lists, sizes, partition, group, now)
        except BaseException:
            self._dismiss(total, count)
            raise

    def _admit(self, size: int, count: int) -> None:
        if self.closed:
            raise ClosedError("the producer was closed")
        held = self.held
        if held and held + size > self.config.buffer_bytes:
            raise BufferFull(
                f"{held} bytes wait for their answer and {size} more are over buffer_bytes "
                f"({self.config.buffer_bytes}); wait for answers, or raise it"
            )
        self.held = held + size
        self.pending += count
        generation = self._generation
        self._counts[generation] = self._counts.get(generation, 0) + count

    def _dismiss(self, size: int, count: int) -> None:
        """Take back what `_admit` counted."""
        self.held -= size
        self.pending -= count
        left = self._counts[self._generation] - count
        if left:
            self._counts[self._generation] = left
        else:
            del self._counts[self._generation]

    def _sizes(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[Headers] | None,
    ) -> list[int]:
        """Bound the bytes of each record, and refuse those over a limit."""
        try:
            sizes = [len(value) + ITEM_OVERHEAD for value in values]  # type: ignore[arg-type]
        except TypeError:
            sizes = [len(value or b"") + ITEM_OVERHEAD for value in values]
        if keys is not None:
            sizes = [
                size + len(key or b"") + ITEM_OVERHEAD
                for size, key in zip(sizes, keys, strict=True)
            ]
        if headers is not None:
            sizes = [size + headers_size(one) for size, one in zip(sizes, headers, strict=True)]
        if headers is not None or max(sizes) > _SURELY_FINE:
            limits = self._cluster.limits
            for index, value in enumerate(values):
                key = None if keys is None else keys[index]
                check_record(value, key, None if headers is None else headers[index], limits)
        return sizes

    # --- placing ---------------------------------------------------------------

    def _meet(self, topic: str, now: float) -> Route:
        """See a topic for the first time."""
        if self.closed:
            raise ClosedError("the producer was closed")
        if type(topic) is not str or not topic or len(topic.encode()) > NAME_BYTES:
            raise InvalidName(
                f"the name of a topic has 1 to {NAME_BYTES} bytes, not {topic!r:.100}"
            )
        route = self._routes[topic] = Route(topic, self.config.partitioner, self._cluster.chance)
        known = self._cluster.metadata.get(topic)
        if known is not None:
            route.learn(known)
        else:
            self._look_up(route, now, create=self.config.create_topics)
        return route

    def _look_up(self, route: Route, now: float, *, create: bool) -> None:
        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is not None:
                route.learn(info)
                self._apply_limits()
                self._unpark(route, now)
                self.drain(now)
                return
            assert error is not None
            passing = bool(getattr(error, "retriable", False)) and not self.closed
            parked = route.parked
            while parked and not (passing and parked[0].batch.deadline > now):
                self._lose(route.topic, parked.popleft().batch, error)
            if parked:  # taken later than the one that made us ask
                self._look_up(route, now, create=create)
            else:
                del self._routes[route.topic]  # the next record asks again
            self._fire()

        deadline = now + self.config.deadline_s
        if route.parked:
            deadline = route.parked[0].batch.deadline
        self._cluster.topic(route.topic, deadline, found, now, create=create)

    def _to_park(self, values: list[bytes | None], size: int, now: float) -> Batch:
        batch = Batch(values, now + self.config.deadline_s, self._generation)
        batch.size = size
        return batch

    def _unpark(self, route: Route, now: float) -> None:
        """Place what waited for its topic, each under the flush that it belongs to."""
        parked = route.parked
        route.parked = deque()
        for one in parked:
            if one.batch.generation != self._stamp:
                self._seal_all(route)
                self._stamp = one.batch.generation
            try:
                one.place(now)
            except TinyMQError as error:
                self._lose(route.topic, one.batch, error)
        if self._stamp != self._generation:
            self._seal_all(route)
            self._stamp = self._generation

    def _seal_all(self, route: Route) -> None:
        for lane in route.lanes.values():
            self._seal(route, lane)

    def _place(  # noqa: PLR0913, PLR0917 - the fields of a record
        self,
        route: Route,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        token: Any,
        size: int,
        now: float,
    ) -> None:
        if partition is None:
            partition = route.choose(key)
        lane = route.lanes.get(partition)
        if lane is None:
            lane = self._lane(route, partition)
        batch = lane.open
        if batch is not None and (
            batch.size + size > self._batch_bytes or len(batch.values) >= self._batch_records
        ):
            self._seal(route, lane)
            lane.drain(now)
            if self._settled:
                self._fire()
            batch = None
        if batch is None:
            batch = lane.open = Batch([], now + self.config.deadline_s, self._stamp)
            lane.open_until = now + self._linger
            batch.tokens = []
            self._open[lane] = None
        values = batch.values
        if key is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys = [None] * len(values)
            batch.keys.append(key)
        if headers is not None or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [()] * len(values)
            batch.headers.append(headers or ())
        values.append(value)
        batch.tokens.append(token)  # type: ignore[union-attr]
        batch.size += size

    def _place_many(  # noqa: PLR0913, PLR0917 - the fields of records
        self,
        route: Route,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[Headers] | None,
        sizes: list[int],
        partition: int | None,
        group: Group,
        now: float,
    ) -> None:
        made: list[tuple[Lane, Batch]] = []
        if partition is None and (keys is not None or route.by_record):
            parts = route.split(keys, len(values))
            for number, indexes in parts.items():
                rows = [values[i] for i in indexes]
                row_keys = None if keys is None else [keys[i] for i in indexes]
                row_headers = None if headers is None else [headers[i] for i in indexes]
                row_sizes = [sizes[i] for i in indexes]
                self._slice(route, number, rows, row_keys, row_headers, row_sizes, made)
        else:
            self._slice(route, partition, values, keys, headers, sizes, made)
        group.expected = len(made)
        deadline = now + self.config.deadline_s
        for lane, batch in made:
            batch.group = group
            batch.deadline = deadline
            lane.add(batch)
        for lane in dict.fromkeys(lane for lane, _ in made):
            self._open.pop(lane, None)
            lane.drain(now)
        if self._settled:
            self._fire()

    def _slice(  # noqa: PLR0913, PLR0917 - the fields of records
        self,
        route: Route,
        partition: int | None,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[Headers] | None,
        sizes: list[int],
        made: list[tuple[Lane, Batch]],
    ) -> None:
        """Cut records into batches; without a partition each batch gets its own."""
        start = 0
        for end in cut(sizes, self._batch_bytes, self._batch_records):
            whole = start == 0 and end == len(values)
            batch = Batch(list(values) if whole else values[start:end], inf, self._stamp)
            batch.keys = keys and keys[start:end]
            batch.headers = headers and headers[start:end]
            batch.size = sum(sizes[start:end])
            number = route.next_batch() if partition is None else partition
            lane = route.lanes.get(number)
            made.append((lane or self._lane(route, number), batch))
            start = end

    def _lane(self, route: Route, partition: int) -> Lane:
        info = route.info
        assert info is not None
        if type(partition) is not int or partition < 0:
            raise UsageError(f"a partition is a number from 0, not {partition!r}")
        if partition >= info.partitions:
            raise _no_partition(info, partition)
        window = min(self.config.in_flight, self._cluster.limits.producer_window)
        if not self._idempotent:
            window = self.config.in_flight
        lane = Lane(route.topic, info.id, partition, self, window, idempotent=self._idempotent)
        route.lanes[partition] = lane
        self._lanes.append(lane)
        return lane

    def _seal(self, route: Route, lane: Lane) -> None:
        lane.seal()
        self._open.pop(lane, None)
        route.sealed(lane.partition)

    # --- sending ---------------------------------------------------------------

    def drain(self, now: float) -> None:
        """
        Close the batches whose time has come, and write what may be written.

        Args:
            now: The time.
        """
        for lane in [one for one in self._open if one.open_until <= now]:
            self._seal(self._routes[lane.topic], lane)
            lane.drain(now)
        self._fire()

    def seal(self, now: float) -> None:
        """
        Close every open batch, and write what may be written.

        Args:
            now: The time.
        """
        for lane in tuple(self._open):
            self._seal(self._routes[lane.topic], lane)
            lane.drain(now)
        self._fire()

    def fly(self, lane: Lane, batch: Batch, now: float) -> None:
        """
        Write a batch.

        Args:
            lane: Its lane.
            batch: The batch.
            now: The time.
        """
        data = batch.encode(self._codec, lane.identity)

        def answered(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            lane.answered(batch, reply, error, now)
            self._fire()

        meta = Produce(topic_id=lane.topic_id, partition=lane.partition, acks=self.acks).to_meta()
        self.link(lane).request(
            MessageType.PRODUCE, meta, (data,), batch.deadline, answered, now, quiet=self._quiet
        )

    # --- one record at a time ----------------------------------------------------

    def calm_lane(self, topic: str, key: bytes | None) -> Lane | None:
        """
        Choose the lane of a record that is sent while nothing else is under way.

        Args:
            topic: Name of the topic.
            key: The record's key.

        Returns:
            None unless everything is known and the record may be written at once.
        """
        route = self._routes.get(topic)
        if route is None or route.info is None or self.closed or self.pending or self._quiet:
            return None
        partition = route.choose(key)
        lane = route.lanes.get(partition)
        if lane is None or not lane.calm:
            return None
        route.sealed(partition)
        return lane

    def launch(self, lane: Lane, value: bytes, key: bytes | None, token: Any, now: float) -> Flight:
        """
        Encode a record for a caller that writes it at once.

        Args:
            lane: From `calm_lane`.
            value: Its value.
            key: Its key.
            token: What the face is told with if it ends by the common way.
            now: The time.
        """
        batch = Batch([value], now + self.config.deadline_s, self._generation)
        batch.keys = None if key is None else [key]
        batch.tokens = [token]
        batch.size = len(value) + len(key or b"") + 2 * ITEM_OVERHEAD
        link = self.link(lane)
        lane.launch(batch)
        return Flight(lane, batch, link, batch.encode(self._codec, lane.identity))

    def landed(self, flight: Flight) -> None:
        """
        Note that a launched record is stored.

        Args:
            flight: From `launch`.
        """
        flight.lane.landed()
        self._sent += 1

    def strayed(self, flight: Flight) -> None:
        """
        Note that a launched record takes the common way from here on.

        Args:
            flight: From `launch`.
        """
        self.held += flight.batch.size
        self.pending += 1
        self._counts[self._generation] = self._counts.get(self._generation, 0) + 1

    def returned(self, flight: Flight, reply: Any, error: TinyMQError | None, now: float) -> None:
        """
        Take the answer to a record that strayed.

        Args:
            flight: From `launch`.
            reply: Where it is stored.
            error: Or why it is not.
            now: The time.
        """
        flight.lane.answered(flight.batch, reply, error, now)
        self._fire()

    def clear(self, lane: Lane) -> bool:
        """
        Say whether the link takes more.

        Args:
            lane: Whose link.
        """
        return not self.link(lane).paused

    def link(self, lane: Lane) -> Link:
        """
        Find the link to the leader of a partition.

        Args:
            lane: The partition.
        """
        info = self._routes[lane.topic].info
        leader = -1
        if info is not None and lane.partition < info.partitions:
            leader = info.leaders[lane.partition]
        return self._cluster.link(leader if leader >= 0 else None)

    def settled(self, lane: Lane, batch: Batch) -> None:
        """
        Note that a batch is stored, or failed for good.

        Args:
            lane: Its lane.
            batch: The batch.
        """
        self._settled.append((lane.topic, lane.partition, batch))

    def identify(self, lane: Lane, now: float) -> None:
        """
        Get a producer id that a lane never had.

        Args:
            lane: The lane.
            now: The time.
        """
        self._identities.give(lane, now)

    def locate(self, lane: Lane, now: float) -> None:
        """
        Look a topic up anew.

        Args:
            lane: The lane that asks.
            now: The time.
        """

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None:
                assert error is not None
                lane.give_up(error)
            elif lane.partition >= info.partitions:
                lane.give_up(_no_partition(info, lane.partition))
            else:
                lane.located(info.id, now)
            self._fire()

        deadline = now + self.config.deadline_s
        self._cluster.topic(lane.topic, deadline, found, now, fresh=True)

    def refresh(self, now: float) -> None:
        """
        Ask for the leaders anew.

        Args:
            now: The time.
        """
        self._cluster.refresh(now)

    def delay(self, attempt: int) -> float:
        """
        Say how long to wait.

        Args:
            attempt: How many attempts have failed.
        """
        return self.config.backoff.delay(attempt, self._cluster.chance())

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min((lane.wake_at for lane in self._lanes), default=inf)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        self.drain(now)
        for lane in self._lanes:
            if lane.wake_at <= now:
                lane.tick(now)
        self._fire()

    def link_changed(self, now: float) -> None:
        """
        Go on sending.

        Args:
            now: The time.
        """
        for lane in self._lanes:
            lane.drain(now)
        self._fire()

    def topics_changed(self, now: float) -> None:
        """
        Take over new partitions, and identities of topics that were made anew.

        Args:
            now: The time.
        """
        for route in self._routes.values():
            info = self._cluster.metadata.get(route.topic)
            if info is None or route.info is None or info == route.info:
                continue
            moved = info.id != route.info.id
            route.learn(info)
            if moved:
                for lane in route.lanes.values():
                    if lane.partition < info.partitions:
                        lane.located(info.id, now)
        self._fire()

    def cluster_closed(self, now: float) -> None:
        """
        Fail everything, because the client was closed.

        Args:
            now: The time.
        """
        self.closed = self.finished = True
        WATCH.remove(self)
        error = ClosedError("the client was closed")
        for route in tuple(self._routes.values()):
            while route.parked:
                self._lose(route.topic, route.parked.popleft().batch, error)
        for lane in self._lanes:
            lane.give_up(error)
        self._open.clear()
        self._fire()

    # --- settling --------------------------------------------------------------

    @property
    def account(self) -> Account:
        """What became of every message so far."""
        return Account(
            sent=self._sent,
            unconfirmed=self._unconfirmed,
            failed_count=self._failures,
            failed=tuple(self._failed),
            pending=self.pending,
        )

    def flush(self, done: Callable[[], None], now: float) -> None:
        """
        Send everything now, and tell when all that was taken so far is settled.

        Args:
            done: Told once; every message has a deadline, so it will be.
            now: The time.
        """
        generation = self._generation
        self._generation += 1
        self._stamp = self._generation
        self.seal(now)
        self._flushes.append((generation, done))
        self._flushed()

    def close(self, done: Callable[[], None], now: float) -> None:
        """
        Take no more records, and tell when all are settled.

        Args:
            done: Told once.
            now: The time.
        """
        self.closed = True

        def closed() -> None:
            self.finished = True
            self._cluster.remove(self)
            WATCH.remove(self)
            done()

        self.flush(closed, now)

    def _fire(self) -> None:
        """Tell about settled batches, outermost call only: being told leads to new calls."""
        if self._firing:
            return
        self._firing = True
        try:
            while self._settled:
                topic, partition, batch = self._settled.popleft()
                self._count(topic, batch)
                if batch.group is not None:
                    batch.group.settle(batch, partition)
                else:
                    self._deliver(topic, partition, batch)
        finally:
            self._firing = False
        if self._flushes:
            self._flushed()

    def _count(self, topic: str, batch: Batch) -> None:
        count = len(batch.values)
        self.pending -= count
        self.held -= batch.size
        left = self._counts[batch.generation] - count
        if left:
            self._counts[batch.generation] = left
        else:
            del self._counts[batch.generation]
        if batch.error is not None:
            self._failures += count
            room = max(0, MOST_FAILURES_KEPT - len(self._failed))
            error = batch.error
            self._failed += [Failed(topic, value, error) for value in batch.values[:room]]
        elif self._quiet:
            self._unconfirmed += count
        else:
            self._sent += count

    def _lose(self, topic: str, batch: Batch, error: TinyMQError) -> None:
        """Fail records that never came into a lane."""
        batch.error = error
        if batch.group is not None:
            batch.group.expected = 1
        self._settled.append((topic, -1, batch))

    def _flushed(self) -> None:
        while self._flushes and not any(
            generation <= self._flushes[0][0] for generation in self._counts
        ):
            _, done = self._flushes.popleft()
            done()

    def _apply_limits(self) -> None:
        limits = self._cluster.limits
        self._batch_bytes = max(1, min(self.config.batch_bytes, limits.batch) - BATCH_OVERHEAD)
        self._batch_records = limits.records


def _no_partition(info: TopicInfo, partition: int) -> TinyMQError:
    return UnknownPartition(
        f"topic {info.name} has {info.partitions} partitions and no number {partition}",
        topic=info.name,
        partition=partition,
    )
