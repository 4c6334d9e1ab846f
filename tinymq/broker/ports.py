"""What the domain asks of the world around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tinymq.errors import WireError
from tinymq.meta.observers import Observer
from tinymq.meta.registry import ChannelInfo, Registry, Start, Topic


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

    def producer_ids(self, done: Callable[[range | WireError], None]) -> None:
        """
        Ask for producer ids that were never given out.

        Args:
            done: Told the ids, or why there are none.
        """
