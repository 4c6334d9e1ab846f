"""How records gather in the open batches of lanes, and come there already as batches."""

from __future__ import annotations

from math import inf
from typing import Any

from tinymq.client.core.batches import BATCH_OVERHEAD, Batch, Group, cut
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.intake import PLAIN_OVERHEAD, SURELY_FINE, Row, Rows
from tinymq.client.core.lane import Lane
from tinymq.client.core.ledger import Ledger
from tinymq.client.core.routes import Route
from tinymq.client.core.sending import Sending
from tinymq.client.core.timing import Timing, later
from tinymq.limits import Limits


class Gathering:
    """
    The open batches of one producer.

    Args:
        config: Settings.
        ledger: Counts what is taken.
        sending: Has the lanes.
    """

    def __init__(self, config: ProducerConfig, ledger: Ledger, sending: Sending) -> None:
        self._ledger = ledger
        self._sending = sending
        self._deadline_s = config.deadline_s
        self._linger = config.linger_ms / 1000
        self._wanted = config.batch_bytes
        self._batch_bytes = self._batch_records = 0
        self._open: dict[Lane, Route] = {}
        self._stamp = 0

    def obey(self, limits: Limits) -> None:
        """
        Make batches that a broker takes.

        Args:
            limits: The limits in force.
        """
        self._batch_bytes = max(1, min(self._wanted, limits.batch) - BATCH_OVERHEAD)
        self._batch_records = limits.records

    def stamp(self, generation: int, now: float) -> None:
        """
        Say which flush waits for the records that follow.

        Args:
            generation: From the ledger; batches of another one are closed.
            now: The time.
        """
        if generation != self._stamp:
            self._stamp = generation
            self.seal(now)

    # --- records in ------------------------------------------------------------

    def join(self, lane: Lane, value: bytes, token: Any) -> bool:
        """
        Put a plain record to the others of an open batch, if nothing speaks against it.

        Args:
            lane: Whose batch.
            value: The record's value.
            token: What the face is told with.

        Returns:
            Whether it was taken.

        Raises:
            BufferFull: Too much is held already.
        """
        batch = lane.open
        size = PLAIN_OVERHEAD + len(value)
        if (
            batch is None
            or size > SURELY_FINE
            or batch.size + size > self._batch_bytes
            or not batch.bare
            or len(batch.values) >= self._batch_records
        ):
            return False
        self._ledger.admit(size, 1)
        batch.size += size
        batch.values.append(value)
        batch.tokens.append(token)  # type: ignore[union-attr]
        return True

    def place(self, route: Route, row: Row, partition: int | None, token: Any, now: float) -> None:
        """
        Put a record into the open batch of its partition.

        Args:
            route: Of a topic that is known.
            row: The record.
            partition: Its partition, or None to choose one.
            token: What the face is told with.
            now: The time.

        Raises:
            UnknownPartition: The topic has no such partition.
            UsageError: It is no number.
        """
        value, key, headers, size, timing = row
        delayed = timing is not None and timing.due != 0
        plain = partition is None and key is None
        if partition is None:
            mark = None if key is not None else route.mark(row)
            plain = plain and mark is None
            partition = route.choose(key) if mark is None else route.with_mark(mark)
        lanes = route.delays if delayed else route.lanes
        lane = lanes.get(partition) or self._sending.lane(route, partition, delayed=delayed)
        if plain and not delayed and not route.by_record:
            route.sticky = lane
        batch = lane.open
        if batch is not None and (
            batch.size + size > self._batch_bytes or len(batch.values) >= self._batch_records
        ):
            self._seal(lane)
            lane.drain(now)
            self._ledger.fire()
            batch = None
        if batch is None:
            batch = self._begin(route, lane, now)
        values = batch.values
        if key is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys, batch.bare = [None] * len(values), False
            batch.keys.append(key)
        if headers is not None or batch.headers is not None:
            if batch.headers is None:
                batch.headers, batch.bare = [()] * len(values), False
            batch.headers.append(headers or ())
        if timing is not None or batch.ttls is not None or batch.ids is not None:
            _add_times(batch, timing)
        values.append(value)
        batch.tokens.append(token)  # type: ignore[union-attr]
        batch.size += size

    def _begin(self, route: Route, lane: Lane, now: float) -> Batch:
        """Open a batch."""
        batch = lane.open = Batch([], now + self._deadline_s, self._stamp)
        lane.open_until = now + self._linger
        batch.tokens = []
        self._open[lane] = route
        return batch

    def place_many(
        self, route: Route, rows: Rows, partition: int | None, group: Group, now: float
    ) -> None:
        """
        Put records into batches of their own.

        Args:
            route: Of a topic that is known.
            rows: The records.
            partition: The partition of all, or None to choose.
            group: What they belong to.
            now: The time.

        Raises:
            UnknownPartition: The topic has no such partition.
            UsageError: It is no number.
        """
        made: list[tuple[Lane, Batch]] = []
        for some in [rows] if rows.timings is None else rows.parted():
            marks = route.marks(some) if partition is None else None
            if partition is None and (some.keys or route.by_record or marks):
                split = route.split(some.keys, len(some.values), marks)
                for number, places in split.items():
                    self._slice(route, number, some.pick(places), made)
            else:
                self._slice(route, partition, some, made)
        group.expected = len(made)
        deadline = now + self._deadline_s
        for lane, batch in made:
            batch.group = group
            batch.deadline = deadline
            lane.add(batch)
        for lane in dict.fromkeys(lane for lane, _ in made):
            self._open.pop(lane, None)
            lane.drain(now)
        self._ledger.fire()

    def _slice(
        self, route: Route, partition: int | None, rows: Rows, made: list[tuple[Lane, Batch]]
    ) -> None:
        """Cut records into batches; without a partition each batch gets its own."""
        values, keys, headers, sizes, timings = rows
        delayed = timings is not None and timings.dues is not None
        start = 0
        for end in cut(sizes, self._batch_bytes, self._batch_records):
            whole = start == 0 and end == len(values)
            batch = Batch(list(values) if whole else values[start:end], inf, self._stamp)
            batch.keys = keys and keys[start:end]
            batch.headers = headers and headers[start:end]
            batch.size = sum(sizes[start:end])
            if timings is not None:
                batch.dues, batch.ttls, batch.since, batch.ids = timings.cut(start, end)
            number = route.next_batch() if partition is None else partition
            made.append((self._sending.lane(route, number, delayed=delayed), batch))
            start = end

    # --- batches out -----------------------------------------------------------

    def drain(self, now: float) -> None:
        """
        Close the batches whose time has come, and write what may be written.

        Args:
            now: The time.
        """
        for lane in [one for one in self._open if one.open_until <= now]:
            if lane in self._open:  # a link that fails at once may have closed it
                self._seal(lane)
                lane.drain(now)

    def seal(self, now: float) -> None:
        """
        Close every open batch, and write what may be written.

        Args:
            now: The time.
        """
        for lane in tuple(self._open):
            if lane in self._open:
                self._seal(lane)
                lane.drain(now)

    def forget(self) -> None:
        """Forget the open batches, which their lanes gave up."""
        self._open.clear()

    def _seal(self, lane: Lane) -> None:
        lane.seal()
        self._open.pop(lane).sealed(lane.partition)


def _add_times(batch: Batch, timing: Timing | None) -> None:
    """Note when the next record of a batch comes, how long it lives, and its id."""
    batch.bare = False
    if timing is not None and timing.due:
        if batch.dues is None:
            batch.dues, batch.since = [], timing.since
        batch.dues.append(later(timing.due, timing.since, batch.since))
    ttl = None if timing is None else timing.ttl
    if ttl is not None or batch.ttls is not None:
        if batch.ttls is None:
            batch.ttls = [None] * len(batch.values)
        batch.ttls.append(ttl)
    given = None if timing is None else timing.id
    if given is not None or batch.ids is not None:
        if batch.ids is None:
            batch.ids = [None] * len(batch.values)
        batch.ids.append(given)
