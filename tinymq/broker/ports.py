"""What the domain asks of the world around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from tinymq.errors import BrokerSilent, WireError
from tinymq.meta.observers import Observer
from tinymq.meta.registry import ChannelInfo, GroupInfo, Registry, Start, Topic


class Timer(Protocol):
    """A call that was scheduled."""

    def cancel(self) -> None:
        """Take the call back."""

    def active(self) -> bool:
        """Whether the call is still to come."""


class Scheduler(Protocol):
    """
    Real length of time; Twisted's reactors and test clocks have this shape.

    Its time is monotonic: steps of the wall clock move no deadline.
    """

    def seconds(self) -> float:
        """Seconds since some moment."""

    def callLater(  # noqa: N802 - Twisted's name
        self,
        delay: float,
        callable: Callable[..., Any],  # noqa: A002 - Twisted's name
        *args: Any,
    ) -> Timer:
        """Call something after `delay` seconds."""


class Background(Protocol):
    """Runs calls that wait for the disk (and hold no lock of Python meanwhile)."""

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """
        Run `work` elsewhere, then `done` here.

        Args:
            work: Must not raise and must not touch the domain's state.
            done: Called on the reactor's thread.
        """


class InlineBackground:
    """A `Background` that does everything at once, for tests and tools."""

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run both, here and now."""
        work()
        done()


#: Milliseconds since the epoch.
WallClock = Callable[[], int]


class World(NamedTuple):
    """Everything around a broker that tests replace."""

    scheduler: Scheduler
    wall: WallClock
    background: Background


class Wanted(NamedTuple):
    """
    A channel that is to be there.

    Attributes:
        name: Its name.
        start: Where it begins, if it is made.
        temporary: Whether it goes when nobody subscribes to it.
    """

    name: str
    start: Start = "earliest"
    temporary: bool = False


class Directory(Protocol):
    """
    The MetaServer as a broker sees it: in this process, or somewhere else.

    What is asked is answered through a callback, maybe before the call returns.
    """

    @property
    def registry(self) -> Registry:
        """What there is, as far as is known here."""

    def watch(self, observer: Observer) -> Callable[[], None]:
        """
        Call an observer after every change.

        Returns:
            What ends it.
        """

    def ensure_topic(self, name: str, done: Callable[[Topic | WireError], None]) -> None:
        """
        Make a topic for its first use, where that is allowed.

        Args:
            name: Its name.
            done: Told the topic once it is in `registry`, or why there is none.
        """

    def ensure_channel(
        self, topic: str, wanted: Wanted, done: Callable[[ChannelInfo | WireError], None]
    ) -> None:
        """
        Make a channel for its first use; a temporary one that is there stays for this.

        Args:
            topic: The name of its topic.
            wanted: The channel, if it is made.
            done: Told the channel once it is in `registry`, or why there is none.
        """

    def ensure_dead_letters(
        self, origin: str, name: str, done: Callable[[Topic | WireError], None]
    ) -> None:
        """
        Make a topic for dead letters, with the channel that knows which are still there.

        Args:
            origin: The name of the topic that they come from.
            name: The name of the topic for them.
            done: Told the topic once both are in `registry`, or why there is none.
        """

    def ensure_group(self, name: str, done: Callable[[GroupInfo | WireError], None]) -> None:
        """
        Make a consumer group for its first use.

        Args:
            name: Its name.
            done: Told the group once it is in `registry`, or why there is none.
        """

    def producer_ids(self, done: Callable[[range | WireError], None]) -> None:
        """
        Ask for producer ids that were never given out.

        Args:
            done: Told the ids, or why there are none.
        """


class Letters(NamedTuple):
    """
    Records that a broker brings to their partition, once and in order.

    Attributes:
        topic_id: The topic.
        partition: The partition.
        producer: The producer id by which they are told from others.
        first: The sequence of the first one.
        batch: The records.
    """

    topic_id: bytes
    partition: int
    producer: int
    first: int
    batch: bytes


class Neighbours(Protocol):
    """The other brokers of a cluster, as this one sees them."""

    def bring(
        self, broker_id: int, letters: Letters, done: Callable[[WireError | None], None]
    ) -> None:
        """
        Have another broker append records.

        Args:
            broker_id: Who leads their partition.
            letters: The records.
            done: Called once, later: with nothing when they are as safe as the topic
                promises, or with what is wrong; after that they may be there all the same.
        """

    def ask(
        self,
        broker_id: int,
        operation: str,
        arguments: Mapping[str, Any],
        done: Callable[[dict[str, Any] | WireError], None],
    ) -> None:
        """
        Have another broker carry out an operation.

        Args:
            broker_id: Who is asked.
            operation: One of ``node.…``.
            arguments: By name.
            done: Called once, maybe before this returns, with its answer or with what is wrong.
        """

    def place(self, key: bytes, partitions: int) -> int:
        """
        Say where clients put a record of a key.

        Args:
            key: The key.
            partitions: How many partitions its topic has.
        """


class NoNeighbours:
    """A broker that knows no other."""

    def bring(
        self, broker_id: int, letters: Letters, done: Callable[[WireError | None], None]
    ) -> None:
        """Say that nobody is there."""
        done(BrokerSilent(f"broker {broker_id} is not there", broker=broker_id))

    def ask(
        self,
        broker_id: int,
        operation: str,
        arguments: Mapping[str, Any],
        done: Callable[[dict[str, Any] | WireError], None],
    ) -> None:
        """Say that nobody is there."""
        done(BrokerSilent(f"broker {broker_id} is not there", broker=broker_id))

    def place(self, key: bytes, partitions: int) -> int:
        """Put everything into the first partition."""
        return 0
