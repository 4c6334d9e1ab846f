"""The producer without I/O: placing, batching, sending and accounting for records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.exits import WATCH
from tinymq.client.core.gathering import Gathering
from tinymq.client.core.intake import many_records, one_record
from tinymq.client.core.lane import Lane
from tinymq.client.core.ledger import Deliver, Ledger
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.partitioners import Key
from tinymq.client.core.routes import Favour, Parked, Route
from tinymq.client.core.sending import Sending
from tinymq.client.core.timing import Timing, Timings
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    InvalidName,
    TinyMQError,
    UsageError,
)
from tinymq.wire.messages import NAME_BYTES


class ProducerCore:
    """
    The producer without I/O.

    Args:
        cluster: The brokers.
        config: Settings.
        deliver: Told of each settled batch of single records.
        sending: Makes the ways of its batches.

    Attributes:
        ledger: What it holds, and what became of it.
        sending: How its batches travel.
        gathering: How records become batches.
        closed: Whether it takes no more records.
        finished: Whether it was closed and every message is settled.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        deliver: Deliver,
        sending: Callable[[Cluster, ProducerConfig, Ledger], Sending] = Sending,
    ) -> None:
        self.config = config
        self.closed = False
        self.finished = False
        self._cluster = cluster
        quiet = config.acks == "none"
        self.ledger = Ledger(config.buffer_bytes, deliver, quiet=quiet)
        self.sending = sending(cluster, config, self.ledger)
        self.gathering = Gathering(config, self.ledger, self.sending)
        self.gathering.obey(cluster.limits)
        self._routes: dict[str, Route] = {}
        self._favour = Favour(cluster.failing, cluster.near)
        cluster.add(self)
        WATCH.add(self)

    @property
    def pending(self) -> int:
        """Records without an answer."""
        return self.ledger.pending

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
        timing: Timing | None = None,
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
            timing: When it comes and how long it lives, if it says so.

        Raises:
            BufferFull: Too much is held already.
            ClosedError: The producer was closed.
            UsageError: A field is of the wrong type.
            ValueTooLarge: Over a limit.
        """
        gathering = self.gathering
        known = self._routes.get(topic)
        if (
            known is not None
            and key is None
            and headers is None
            and partition is None
            and timing is None
        ):
            lane = known.sticky
            if lane is not None and type(value) is bytes and gathering.join(lane, value, token):
                return
        row = one_record(value, key, headers, self._cluster.limits, timing)
        route = self._route(topic)
        self.ledger.admit(row.size, 1)
        if route.info is None:
            batch = self._to_park([row.value], row.size, now)
            batch.tokens = [token]
            self._park(route, batch, partial(gathering.place, route, row, partition, token), now)
            return
        try:
            gathering.place(route, row, partition, token, now)
        except BaseException:
            self.ledger.dismiss(row.size, 1, self.ledger.generation)
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
        timing: Callable[[int], Timings | None] | None = None,
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
            timing: Says of so many when they come and how long they live.

        Raises:
            BufferFull: Too much is held already.
            ClosedError: The producer was closed.
            UsageError: A field is of the wrong type, or the lengths differ.
            ValueTooLarge: A record is over a limit.
        """
        rows = many_records(values, keys, headers, self._cluster.limits, timing)
        count, total = len(rows.values), sum(rows.sizes)
        route = self._route(topic)
        self.ledger.admit(total, count)
        group = Group(topic, count, done)
        if route.info is None:
            batch = self._to_park(rows.values, total, now)
            batch.group = group
            place = partial(self.gathering.place_many, route, rows, partition, group)
            self._park(route, batch, place, now)
            return
        try:
            self.gathering.place_many(route, rows, partition, group, now)
        except BaseException:
            self.ledger.dismiss(total, count, self.ledger.generation)
            raise

    # --- topics ----------------------------------------------------------------

    def _route(self, topic: str) -> Route:
        if self.closed:
            raise ClosedError("the producer was closed")
        route = self._routes.get(topic)
        return self._meet(topic) if route is None else route

    def _meet(self, topic: str) -> Route:
        """See a topic for the first time."""
        if type(topic) is not str or not topic or len(topic.encode()) > NAME_BYTES:
            raise InvalidName(
                f"the name of a topic has 1 to {NAME_BYTES} bytes, not {topic!r:.100}"
            )
        route = self._routes[topic] = Route(topic, self.config.partitioner, self._cluster.chance)
        known = self._cluster.metadata.get(topic)
        if known is not None:
            route.learn(known, self._favour)
        return route

    def _park(self, route: Route, batch: Batch, place: Callable[[float], None], now: float) -> None:
        """Keep records until their topic is known; the first asks for it, and may hear at once."""
        route.parked.append(Parked(batch, place))
        if not route.sought:
            route.sought = True
            self._look_up(route, now, create=self.config.create_topics)

    def _look_up(self, route: Route, now: float, *, create: bool) -> None:
        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is not None:
                route.learn(info, self._favour)
                self.gathering.obey(self._cluster.limits)
                self._unpark(route, now)
                self.drain(now)
                return
            assert error is not None
            passing = isinstance(error, DeadlineExceeded) or getattr(error, "retriable", False)
            parked = route.parked
            while parked and not (
                passing and not self._cluster.closed and parked[0].batch.deadline > now
            ):
                self.ledger.lose(route.topic, parked.popleft().batch, error)
            if parked:  # taken later than the one that made us ask
                self._look_up(route, now, create=create)
            else:
                del self._routes[route.topic]  # the next record asks again
            self.ledger.fire()

        deadline = now + self.config.deadline_s
        if route.parked:
            deadline = route.parked[0].batch.deadline
        self._cluster.topic(route.topic, deadline, found, now, create=create)

    def _to_park(self, values: list[bytes | None], size: int, now: float) -> Batch:
        batch = Batch(values, now + self.config.deadline_s, self.ledger.generation)
        batch.size = size
        return batch

    def _unpark(self, route: Route, now: float) -> None:
        """Place what waited for its topic, each under the flush that it belongs to."""
        parked = route.parked
        route.parked = deque()
        for one in parked:
            self.gathering.stamp(one.batch.generation, now)
            try:
                one.place(now)
            except TinyMQError as error:
                self.ledger.lose(route.topic, one.batch, error)
            except Exception as error:  # noqa: BLE001 - of the caller's own partitioner
                wrong = UsageError(f"the partitioner failed: {error!r}")
                wrong.__cause__ = error
                self.ledger.lose(route.topic, one.batch, wrong)
        self.gathering.stamp(self.ledger.generation, now)

    # --- sending ---------------------------------------------------------------

    def drain(self, now: float) -> None:
        """
        Close the batches whose time has come, and write what may be written.

        Args:
            now: The time.
        """
        self.gathering.drain(now)
        self.ledger.fire()

    def seal(self, now: float) -> None:
        """
        Close every open batch, and write what may be written.

        Args:
            now: The time.
        """
        self.gathering.seal(now)
        self.ledger.fire()

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
        if (
            route is None
            or route.info is None
            or self.closed
            or self.ledger.pending
            or self.sending.quiet
        ):
            return None
        partition = route.choose(key)
        lane = route.lanes.get(partition)
        if lane is None or not lane.calm or not self.sending.led(lane):
            return None
        route.sealed(partition)
        return lane

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = inf
        for lane in self.sending.lanes:
            at = min(at, lane.wake_at)
        return at

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        self.drain(now)
        for lane in self.sending.lanes:
            if lane.wake_at <= now:
                lane.tick(now)
        self.ledger.fire()

    def link_changed(self, now: float) -> None:
        """
        Go on sending.

        Args:
            now: The time.
        """
        self._prefer()
        for lane in self.sending.lanes:
            lane.drain(now)
        self.ledger.fire()

    def _prefer(self) -> None:
        """Prefer other brokers for records that may go anywhere, if something changed."""
        failing, near = self._cluster.failing, self._cluster.near
        if failing == self._favour.failing and near == self._favour.near:
            return
        self._favour = favour = Favour(failing, near)
        for route in self._routes.values():
            if route.info is not None:
                route.learn(route.info, favour)

    def topics_changed(self, now: float) -> None:
        """
        Take over new partitions, and identities of topics that were made anew.

        Args:
            now: The time.
        """
        self._prefer()
        for route in self._routes.values():
            info = self._cluster.metadata.get(route.topic)
            if info is None or route.info is None or info == route.info:
                continue
            moved = info.id != route.info.id
            route.learn(info, self._favour)
            if moved:
                for lane in (*route.lanes.values(), *route.delays.values()):
                    if lane.partition < info.partitions:
                        lane.located(info.id, now)
        self.ledger.fire()

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
                self.ledger.lose(route.topic, route.parked.popleft().batch, error)
        for lane in self.sending.lanes:
            lane.give_up(error)
        self.gathering.forget()
        self.ledger.fire()

    # --- settling --------------------------------------------------------------

    def flush(self, done: Callable[[], None], now: float) -> None:
        """
        Send everything now, and tell when all that was taken so far is settled.

        Args:
            done: Told once; every message has a deadline, so it will be.
            now: The time.
        """
        self.ledger.flush(done)
        self.gathering.stamp(self.ledger.generation, now)
        self.ledger.fire()

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
