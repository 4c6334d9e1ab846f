"""How the records of one topic find their partitions, and wait while it is unknown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from attrs import frozen

from tinymq.client.core.batches import Batch
from tinymq.client.core.config import Choice
from tinymq.client.core.intake import Row, Rows
from tinymq.client.core.lane import Lane
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.partitioners import KeyCache, Turn
from tinymq.errors import UsageError
from tinymq.wire.records import Headers


@frozen
class Favour:
    """
    Which brokers get records that may go anywhere.

    Attributes:
        failing: Those that were tried in vain; left out if others are there.
        near: Those of the client's zone; preferred if one is there.
    """

    failing: frozenset[int] = frozenset()
    near: frozenset[int] = frozenset()

    def choose(self, leaders: Sequence[int]) -> list[int]:
        """
        Choose partitions.

        Args:
            leaders: The leader of each, -1 where there is none.
        """
        led = [number for number, leader in enumerate(leaders) if leader >= 0]
        alive = [number for number in led if leaders[number] not in self.failing] or led
        return [number for number in alive if leaders[number] in self.near] or alive


@frozen
class Parked:
    """
    Records that wait for their topic to be known.

    Attributes:
        batch: The records, as one batch, for the case that nothing comes of it.
        place: Puts them into lanes, given the time.
    """

    batch: Batch
    place: Callable[[float], None]


class Route:
    """
    One topic as a producer sees it.

    Args:
        topic: Its name.
        partitioner: A name or a function, from the configuration.
        chance: Gives random numbers from 0 to 1.

    Attributes:
        info: What is known about the topic, or None.
        lanes: The ways to its partitions.
        delays: The ways of records that are not due yet, which have an order of
            their own there.
        parked: What waits for `info`.
        sought: Whether it was asked for.
        sticky: The lane to which records without key and partition go until
            its batch is closed, once it is known.
        by_record: Whether records without key choose one by one.
    """

    def __init__(self, topic: str, partitioner: str | Choice, chance: Callable[[], float]) -> None:
        self.topic = topic
        self.info: TopicInfo | None = None
        self.lanes: dict[int, Lane] = {}
        self.delays: dict[int, Lane] = {}
        self.parked: deque[Parked] = deque()
        self.sought = False
        self.sticky: Lane | None = None
        self.by_record = partitioner == "round_robin" or callable(partitioner)
        self._function = partitioner if callable(partitioner) else None
        self._turn = Turn(chance())
        self._keys = KeyCache(1)
        self._usable: list[int] = []
        self._chosen = -1

    def learn(self, info: TopicInfo, favour: Favour = Favour()) -> None:
        """
        Take what is known about the topic.

        Args:
            info: From the metadata.
            favour: Which brokers are preferred.
        """
        if self.info is None or info.partitions != self.info.partitions:
            self._keys = KeyCache(info.partitions)
        self.info = info
        self._leave()
        chosen = favour.choose(info.leaders)
        self._usable = chosen if 0 < len(chosen) < info.partitions else []

    def choose(self, key: bytes | None) -> int:
        """
        Choose the partition of one record.

        Args:
            key: Its key.
        """
        if self._function is not None:
            return self._ask(key)
        if key is not None:
            return self._keys[key]
        if self.by_record:
            return self._next()
        if self._chosen < 0:
            self._chosen = self._next()
        return self._chosen

    @property
    def dedup_header(self) -> str | None:
        """The header whose bytes are the message id, if the topic has a window by one."""
        config = {} if self.info is None else self.info.config
        rule = config.get("dedup.by")
        if type(rule) is not str:
            return None
        name = rule.removeprefix("header:")
        return None if name == rule else name

    def mark(self, row: Row) -> bytes | None:
        """
        Find by what a record without key comes to the partition that knows it.

        Args:
            row: The record.

        Returns:
            Its message id, as its topic has it, or None.
        """
        if row.timing is not None and row.timing.id is not None:
            return row.timing.id
        return None if row.headers is None else _first(row.headers, self.dedup_header)

    def marks(self, rows: Rows) -> list[bytes | None] | None:
        """
        Do the same for many records.

        Args:
            rows: The records.
        """
        if rows.timings is not None and rows.timings.ids is not None:
            return rows.timings.ids
        name = None if rows.headers is None else self.dedup_header
        if name is None or rows.headers is None:
            return None
        return [_first(each, name) for each in rows.headers]

    def with_mark(self, mark: bytes) -> int:
        """
        Choose the partition of a record by its message id.

        Args:
            mark: From `mark`.
        """
        return self._keys[mark]

    def next_batch(self) -> int:
        """Choose the partition of a whole batch of records without keys."""
        return self._next()

    def sealed(self, partition: int) -> None:
        """
        Leave a partition after its batch was closed.

        Args:
            partition: Which.
        """
        if partition == self._chosen:
            self._leave()

    def split(
        self,
        keys: Sequence[bytes | None] | None,
        count: int,
        marks: Sequence[bytes | None] | None = None,
    ) -> dict[int, list[int]]:
        """
        Divide records over partitions one by one.

        Args:
            keys: Their keys, or None.
            count: How many.
            marks: From `marks`.

        Returns:
            For each partition the places of its records, in order.
        """
        if self._function is None and keys is not None and None not in keys:
            parts = map(self._keys.__getitem__, keys)  # type: ignore[arg-type]
        elif marks is not None:
            parts = map(self._marked, keys or [None] * count, marks)
        else:
            parts = map(self.choose, keys or [None] * count)
        found: dict[int, list[int]] = {}
        for place, part in enumerate(parts):
            if part in found:
                found[part].append(place)
            else:
                found[part] = [place]
        return found

    def _marked(self, key: bytes | None, mark: bytes | None) -> int:
        return self._keys[mark] if key is None and mark is not None else self.choose(key)

    def _leave(self) -> None:
        self._chosen = -1
        self.sticky = None

    def _next(self) -> int:
        assert self.info is not None
        return self._turn.next(self.info.partitions, self._usable)

    def _ask(self, key: bytes | None) -> int:
        assert self.info is not None
        assert self._function is not None
        count = self.info.partitions
        part = self._function(self.topic, key, count)
        if type(part) is not int or not 0 <= part < count:
            raise UsageError(f"the partitioner chose {part!r} of {count} partitions")
        return part


def _first(headers: Headers, name: str | None) -> bytes | None:
    """The first value of a header, None if it is not there."""
    return next((value for each, value in headers if each == name), None)
