"""`tinymq consume --channel`: a worker of a channel, in a pipe or with a command a message."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from tinymq.cli.failure import UNREACHABLE, Failed
from tinymq.cli.output import note
from tinymq.cli.render import Placed
from tinymq.cli.session import Session
from tinymq.errors import LeaseLost, UnknownChannel

if TYPE_CHECKING:
    from tinymq.sync import Message, Subscription

#: Seconds between two looks at what else there is to do.
LOOK_S: Final = 0.25
#: Messages that are written at once, and held at most, when no command is run.
BATCH: Final = 256


@frozen(kw_only=True)
class Work:
    """
    Which messages are worked on.

    Attributes:
        topic: Name of the topic.
        channel: Name of the channel.
        start: Where the channel begins if it is made now; None is at the first message.
        create: Whether it may be made.
        most: Stop after so many; None goes on.
        stop: Whether to stop when nothing is left to be given out.
    """

    topic: str
    channel: str
    start: str | int | None = None
    create: bool = True
    most: int | None = None
    stop: bool = False


class Stop:
    """Whether somebody asked us to stop; who asks twice cannot wait."""

    def __init__(self) -> None:
        self.asked = False

    def hear(self, number: int, frame: Any) -> None:
        """Take a signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM ask for a clean end instead of making one at once."""
    stop = Stop()
    before = {each: signal.signal(each, stop.hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, heard in before.items():
            signal.signal(each, heard)


@contextlib.contextmanager
def subscribed(session: Session, work: Work, most: int) -> Iterator[Subscription]:
    """
    Take messages of a channel; what is not settled at the end is given back.

    Args:
        session: Where the broker is.
        work: Which channel.
        most: Messages that are held at most.
    """
    from tinymq.sync import SubscriptionConfig  # noqa: PLC0415 - not needed for --help

    if work.start is not None:
        _tell_where_it_begins(session, work)
    config = SubscriptionConfig(
        max_in_flight=most if work.most is None else min(most, work.most),
        create=work.create,
        start="earliest" if work.start is None else work.start,
        deadline_s=session.timeout,
    )
    with session.client.subscription(work.topic, work.channel, config) as subscription:
        subscription.ready()
        yield subscription


def _tell_where_it_begins(session: Session, work: Work) -> None:
    """Say so when the start that was asked for means nothing."""
    with contextlib.suppress(UnknownChannel):
        session.operate("channel.info", topic=work.topic, name=work.channel)
        note(
            f"{work.topic}/{work.channel} exists, and goes on where it is; --from is for one that "
            "is made now (`tinymq channel seek` moves it)"
        )


@define
class Rest:
    """
    Finds out whether a channel has nothing left to give out.

    Attributes:
        session: Where to ask.
        work: Which channel.
    """

    session: Session
    work: Work
    _silent_since: float | None = None

    def over(self) -> bool:
        """
        Whether nothing is ready; what waits for its next attempt does not count.

        Raises:
            Failed: Some broker is silent for too long to know.
        """
        name = f"{self.work.topic}/{self.work.channel}"
        reply = self.session.operate("channel.info", topic=self.work.topic, name=self.work.channel)
        found = reply["channel"]
        if found["silent"]:
            now = self.session.clock()
            since = self._silent_since = now if self._silent_since is None else self._silent_since
            if now - since < self.session.timeout:
                return False
            raise Failed(
                f"what {name} holds is not known: {', '.join(found['silent'])} does not answer",
                "without --exit the broker is waited for",
                UNREACHABLE,
            )
        self._silent_since = None
        if found["paused"]:
            note(f"{name} is paused with {found['lag']} left to do")
            return True
        return bool(found["ready"] == 0)


def placed(message: Message) -> Placed:
    """Give a message to what writes records."""
    more = {"attempt": message.attempt, "failures": message.failures}
    return Placed(message.topic, message.partition, message.record, more)


def acknowledge(session: Session, work: Work, write: Callable[[list[Placed]], object]) -> None:
    """
    Write messages, and finish each when it was written.

    Args:
        session: Where the broker is.
        work: Which messages.
        write: Writes them where nothing is lost any more.
    """
    with stopping() as stop, subscribed(session, work, BATCH) as subscription:
        rest, left = Rest(session, work), work.most
        with contextlib.suppress(KeyboardInterrupt):
            while not stop.asked and left != 0:
                some = _some(subscription, BATCH if left is None else min(BATCH, left))
                if not some:
                    if work.stop and rest.over() and subscription.in_flight == 0:
                        return
                    continue
                write([placed(each) for each in some])
                for each in some:
                    _finish(each)
                left = None if left is None else left - len(some)


def _some(subscription: Subscription, most: int) -> list[Message]:
    """Take what is there, and wait a moment if that is nothing."""
    found: list[Message] = []
    while len(found) < most and (one := subscription.next(0 if found else LOOK_S)) is not None:
        found.append(one)
    return found


def _finish(message: Message) -> None:
    try:
        message.finish()
    except LeaseLost:
        note(f"{name_of(message)} was not ours any more: it comes again")


def name_of(message: Message) -> str:
    """Name a message for people."""
    return f"{message.topic}/{message.partition}@{message.offset}"
