"""A subscription to a channel of a broker in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from attrs import define

from tinymq.client.core.fate import Fate
from tinymq.client.core.message import QueueMessage
from tinymq.errors import UnknownChannel
from tinymq.wire.messages import FINISH, GIVE_BACK, REJECT, REQUEUE

if TYPE_CHECKING:
    from tests.fakes.memory_broker import MemoryBroker

_NAMES = {FINISH: "finish", REQUEUE: "requeue", REJECT: "reject", GIVE_BACK: "give_back"}
#: Looks for a message in vain, with none at work, after which somebody presses Ctrl-C.
_PATIENCE = 100


class MemorySubscription:
    """
    Hands out the records of partition 0, each once.

    Attributes:
        config: Settings.
        settled: Offset and verb of each settle, in order, with what was said.
        held: Messages that were handed out and not settled.
        lost: Offsets of messages that are lost as soon as they were handed out.
    """

    def __init__(
        self, broker: MemoryBroker, topics: str | Sequence[str], name: str, config: Any
    ) -> None:
        self.config = config
        self.settled: list[tuple[int, str, Any]] = []
        self.held: list[QueueMessage] = []
        self.lost: set[int] = set()
        self._broker = broker
        self._places = [(each, name) for each in ([topics] if isinstance(topics, str) else topics)]
        self._vain = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for message in [*self.held]:
            message.give_back()

    def ready(self) -> None:
        """Join, and make the channels if that may be."""
        self._broker.check()
        for topic, name in self._places:
            records = self._broker.find(topic).partitions[0].records
            if (topic, name) not in self._broker.channels.found:
                if not self.config.create:
                    raise UnknownChannel(f"the topic {topic} has no channel {name}")
                start = self.config.begins
                cursor = {"earliest": 0, "latest": len(records)}.get(start, start)
                if isinstance(cursor, str):  # a time
                    times = [record.timestamp for record in records]
                    cursor = bisect_left(times, int(cursor[1:]))
                self._broker.channels.make(topic, name, start=start, cursor=cursor)
            self._broker.channels.find(topic, name).end = len(records)

    @property
    def in_flight(self) -> int:
        """How many are held."""
        return len(self.held)

    def next(self, timeout: float) -> QueueMessage | None:
        """Hand out the next one, of the first topics before others; or let something happen."""
        for topic, name in self._places:
            message = self._take(topic, name)
            if message is not None:
                return message
        if timeout:
            self._wait()
        return None

    def _take(self, topic: str, name: str) -> QueueMessage | None:
        channel = self._broker.channels.find(topic, name)
        records = self._broker.find(topic).partitions[0].records
        channel.end = len(records)
        full = len(self.held) >= self.config.max_in_flight
        if channel.paused or channel.cursor >= channel.end or full:
            return None
        record = records[channel.cursor]
        channel.cursor += 1
        message = QueueMessage(record, MemoryLease(self, topic), 0.0)
        self.held.append(message)
        if record.offset in self.lost:
            self.held.remove(message)
            message.lose()
        return message

    def _wait(self) -> None:
        if self._broker.idle:
            self._broker.idle.pop(0)()
            return
        self._broker.rest.wait(0.001)  # lets the threads that work go on
        self._vain += not self.held
        if self._vain > _PATIENCE:
            raise KeyboardInterrupt


@define
class MemoryLease:
    """The lease that a message of a subscription is in."""

    subscription: MemorySubscription
    topic: str
    partition: int = 0
    lease_id: int = 7
    base: int = 0
    attempt: int = 1
    failures: int = 0

    def finish(self, message: QueueMessage) -> Fate:
        """Note that a message is done."""
        return self.settle(message, FINISH, {})

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """Note what became of a message, and take it."""
        self.subscription.held.remove(message)
        self.subscription.settled.append((message.offset, _NAMES[verb], facts.get("x", "")))
        fate = Fate(1 << message.bit)
        fate.tell(0, None)
        return fate

    def touch(self, message: QueueMessage) -> None:
        """Nothing here ever ends by itself."""
