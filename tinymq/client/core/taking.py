"""What a subscription and its face are to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.held import BatchMaker, Maker
from tinymq.client.core.message import QueueMessage
from tinymq.errors import TinyMQError

#: Told that something which was asked for is done, or failed.
Told = Callable[[TinyMQError | None], None]


class Face(NamedTuple):
    """
    What a subscription needs of its face.

    Attributes:
        make: Makes messages, of a subclass of `QueueMessage`.
        wake: Called when `take` may have something, or an error.
        soon: Called when `pump` is wanted at the end of the turn.
        batch: Makes batches, of a subclass of `QueueBatch`.
    """

    make: Maker
    wake: Callable[[], None]
    soon: Callable[[], None]
    batch: BatchMaker = QueueBatch


class Core(Protocol):
    """What a face needs of a subscription, or of several that are taken from as one."""

    channel: str
    failed: TinyMQError | None

    @property
    def topic(self) -> str:
        """Name of the topic, or of several."""

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and are not settled."""

    @property
    def delivered(self) -> int:
        """Messages that were delivered so far."""

    @property
    def late(self) -> int:
        """Messages whose settle came too late so far."""

    def begin(self, now: float) -> None:
        """Join."""

    def take(self, now: float) -> QueueMessage | None:
        """Take the next message, if one is ready."""

    def take_many(self, most: int, now: float) -> QueueBatch | None:
        """Take the next messages together, if some are ready."""

    def more(self, now: float) -> None:
        """Ask for more, after messages without leases were handed out."""

    def ready_when(self, told: Told, now: float) -> None:
        """Call when a broker has let us join, or says why not."""

    def pump(self, now: float) -> None:
        """Tell brokers what became of messages, at the end of a turn."""

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call when everything that was said of messages up to now is confirmed."""

    def drain(self, now: float) -> None:
        """Take no more messages, and give back those that were not handed out."""

    def close(self, done: Callable[[], None], now: float) -> None:
        """Leave."""
