"""`tinymq consume --group`: a member of a group, in a pipe or with a command a message."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from tinymq.cli.failure import REFUSED, UNREACHABLE, Failed
from tinymq.cli.jobs import Command, Job
from tinymq.cli.output import note, printable
from tinymq.cli.render import Placed
from tinymq.cli.session import Session
from tinymq.cli.values import Position
from tinymq.cli.work import BATCH, LOOK_S, Stop, stopping
from tinymq.errors import UnknownTopic

if TYPE_CHECKING:
    from tinymq.sync import GroupConsumer, GroupMessage

#: Of the protocol: the end of a partition; not imported, for --help must be quick.
_LATEST: Final = -1
#: Seconds before the end of a topic is looked at.
_BRIEF_S: Final = 0.05


@frozen(kw_only=True)
class Joined:
    """
    What a member of a group reads.

    Attributes:
        group: Name of the group.
        topics: Names of the topics.
        start: Where a partition begins of which the group has committed nothing.
        most: Stop after so many messages; None goes on.
        stop: Whether to stop at the end of all that this member is given.
    """

    group: str
    topics: tuple[str, ...]
    start: Position | None = None
    most: int | None = None
    stop: bool = False

    @property
    def begin(self) -> Any:
        """The same start, as the client takes it."""
        from tinymq.sync import At  # noqa: PLC0415 - not needed for --help

        start = self.start
        if start is None:
            return "earliest"
        if start.kind == "last":
            raise click.UsageError("with --group, --from is earliest, latest, an OFFSET or @TIME")
        places: dict[str, Any] = {"offset": start.value, "time": At(start.value)}
        return places.get(start.kind, start.kind)


def write_group(session: Session, joined: Joined, write: Callable[[list[Placed]], object]) -> None:
    """
    Write messages, and commit what was written.

    Args:
        session: Where the broker is.
        joined: What is read.
        write: Writes them where nothing is lost any more.
    """

    def wrote(messages: list[GroupMessage]) -> bool:
        write([_placed(each) for each in messages])
        for each in messages:
            each.done()
        return True

    with stopping() as stop, contextlib.suppress(KeyboardInterrupt):
        _read(session, joined, BATCH, wrote, stop)


def execute_group(session: Session, joined: Joined, command: Command) -> int:
    """
    Run a command for each message, one after the other, and commit what went well.

    Args:
        session: Where the broker is.
        joined: What is read.
        command: What is run.

    Returns:
        The exit status: 1 when a command failed. Its message comes again.
    """
    failed: list[str] = []

    def ran(messages: list[GroupMessage]) -> bool:
        for each in messages:
            task = Task(each)
            job = Job(command, task)  # type: ignore[arg-type]
            try:
                outcome = job.run()
            except KeyboardInterrupt:
                job.end(signal.SIGTERM)
                raise
            if outcome.what != "finished":
                name = f"{each.topic}/{each.partition}@{each.offset}"
                failed.append(name)
                note(f"{name}: {printable(outcome.reason)}; it comes again")
                return False
        return True

    with stopping() as stop, contextlib.suppress(KeyboardInterrupt):
        _read(session, joined, 1, ran, stop)
    return REFUSED if failed else 0


class Task:
    """
    A message of a group, as what runs commands wants it.

    Args:
        message: The message.
    """

    attempt = 1
    failures = 0
    lease = 1

    def __init__(self, message: GroupMessage) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def finish(self) -> None:
        """It is done."""
        self._message.done()

    def reject(self, reason: str) -> None:
        """It is not done."""
        self._message.let_go()

    def requeue(self, *, reason: str) -> None:
        """It is not done."""
        self._message.let_go()

    def give_back(self) -> None:
        """It is not done."""
        self._message.let_go()


def _placed(message: GroupMessage) -> Placed:
    return Placed(message.topic, message.partition, message.record)


def _read(
    session: Session,
    joined: Joined,
    most: int,
    handle: Callable[[list[GroupMessage]], bool],
    stop: Stop,
) -> None:
    """Hand out messages until that is enough; what is done is committed at once."""
    left = joined.most
    _check_topics(session, joined)
    with session.client.group(joined.group, joined.topics, start=joined.begin) as consumer:
        if not consumer.ready(session.timeout):
            raise Failed(
                f"group {joined.group} cannot be joined",
                "no broker that looks after it answers",
                UNREACHABLE,
            )
        while not stop.asked and left != 0:
            few = most if left is None else min(most, left)
            some = _some(consumer, few, _BRIEF_S if joined.stop else LOOK_S)
            if not some:
                if joined.stop and _at_end(session, joined, consumer):
                    if not consumer.assigned:
                        others = f"other members of group {joined.group} have all partitions"
                        note(f"{others}; nothing was read")
                    return
                continue
            left = None if left is None else left - len(some)
            if not handle(some):
                return
            consumer.commit_soon()


def _check_topics(session: Session, joined: Joined) -> None:
    """
    Ask for topics that are not there: a group waits until they are made, which may be a slip.

    Raises:
        UnknownTopic: One is not there, and nothing is waited for.
    """
    for topic in joined.topics:
        try:
            session.client.metadata([topic])
        except UnknownTopic:
            if joined.stop:
                raise
            note(f"there is no topic {topic} yet; it is read when it is made")


def _some(consumer: GroupConsumer, most: int, wait_s: float) -> list[GroupMessage]:
    """Take what is there, and wait a moment if that is nothing."""
    found: list[GroupMessage] = []
    while len(found) < most and (one := consumer.next(0 if found else wait_s)) is not None:
        found.append(one)
    return found


def _at_end(session: Session, joined: Joined, consumer: GroupConsumer) -> bool:
    """Whether nothing is left of what this member is given."""
    assigned = consumer.assigned
    for topic in joined.topics:
        mine = [number for name, number in assigned if name == topic]
        if not mine:
            continue
        found = session.client.survey(topic, mine, _LATEST, session.timeout)
        for error in found.faults.values():
            raise error
        if any(consumer.position(topic, one) < end for one, end in found.offsets.items()):
            return False
    return True
