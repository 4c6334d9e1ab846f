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
        topics: Names of the topics; of several, those named first go before.
        channel: Name of the channel, the same on each.
        start: Where the channel begins if it is made now; None is as the client does.
        create: Whether it may be made.
        temporary: Whether one that is made goes when nobody takes its messages.
        most: Stop after so many; None goes on.
        stop: Whether to stop when nothing is left to be given out.
    """

    topics: tuple[str, ...]
    channel: str
    start: str | int | None = None
    create: bool = True
    temporary: bool = False
    most: int | None = None
    stop: bool = False

    def held(self, most: int) -> int:
        """
        Bound what is held at once.

        Of several topics some messages of each must be here, or none would go before.

        Args:
            most: Messages that are worked on at once.
        """
        few = most if self.most is None else min(most, self.most)
        return few if len(self.topics) == 1 else 2 * few * len(self.topics)


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
        most: Messages that are worked on at once.
    """
    from tinymq.sync import SubscriptionConfig  # noqa: PLC0415 - not needed for --help

    if work.start is not None:
        _tell_where_it_begins(session, work)
    config = SubscriptionConfig(
        max_in_flight=work.held(most),
        create=work.create,
        start=work.start,
        temporary=work.temporary,
        deadline_s=session.timeout,
    )
    topics = work.topics[0] if len(work.topics) == 1 else work.topics
    with session.client.subscription(topics, work.channel, config) as subscription:
        subscription.ready()
        yield subscription


def _tell_where_it_begins(session: Session, work: Work) -> None:
    """Say so when the start that was asked for means nothing."""
    for topic in work.topics:
        with contextlib.suppress(UnknownChannel):
            session.operate("channel.info", topic=topic, name=work.channel)
            note(
                f"{topic}/{work.channel} exists, and goes on where it is; --from is for one that "
                "is made now (`tinymq channel seek` moves it)"
            )


@define
class Rest:
    """
    Finds out whether channels have nothing left to give out.

    Attributes:
        session: Where to ask.
        work: Which channels.
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
        channel = self.work.channel
        found = [
            self.session.operate("channel.info", topic=topic, name=channel)["channel"]
            for topic in self.work.topics
        ]
        silent = {name: None for each in found for name in each["silent"]}
        if silent:
            self._bear(", ".join(silent))
            return False
        self._silent_since = None
        left = [each for each in found if each["ready"]]
        if not all(each["paused"] for each in left):
            return False
        for each in left:
            note(f"{each['topic']}/{channel} is paused with {each['lag']} left to do")
        return True

    def _bear(self, silent: str) -> None:
        now = self.session.clock()
        self._silent_since = now if self._silent_since is None else self._silent_since
        if now - self._silent_since >= self.session.timeout:
            raise Failed(
                f"what {self.work.channel} holds is not known: {silent} does not answer",
                "without --exit the broker is waited for",
                UNREACHABLE,
            )


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
