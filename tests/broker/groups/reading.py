"""A reader of a group, for tests: what it says on the wire, and what it hears."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.fakes.broker import BrokerFixture, Connection, error_of
from tinymq.broker.groups.positions import Position
from tinymq.broker.hosted import Hosted
from tinymq.errors import WireError
from tinymq.wire.frames import Frame
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    Commit,
    CommitReply,
    Committed,
    CommittedReply,
    error_from_meta,
)


class Found(NamedTuple):
    """What is told of a group in a partition."""

    offset: int
    epoch: int
    note: str
    time: int
    start: int
    end: int
    error: WireError | None


class GroupReader:
    """
    One that reads for a group.

    Args:
        fixture: The broker.
        group: The group.
        member: Its id.
    """

    def __init__(self, fixture: BrokerFixture, group: str = "g", member: str = "m1") -> None:
        self.fixture = fixture
        self.group = group
        self.member = member
        self.connection: Connection = fixture.connect()

    def commit(
        self,
        offset: int,
        generation: int = -1,
        *,
        partition: int = 0,
        topic: str = "t",
        epoch: int = -1,
        note: str = "",
        **more: Any,
    ) -> WireError | None:
        """Commit in one partition, and tell what was wrong with it."""
        row = partition, generation, offset, epoch, note
        return self.commit_all({topic: [row]}, **more)[topic][0]

    def commit_all(
        self, rows: dict[str, list[tuple[int, int, int, int, str]]], **more: Any
    ) -> dict[str, list[WireError | None]]:
        """Commit in several partitions, and tell what was wrong, in order."""
        frame = self.ask(self.commit_request(rows, **more))
        if frame.type == MessageType.ERROR:
            raise error_of(frame)
        reply = CommitReply.from_meta(frame.split()[0])
        assert [(topic_id, [index for index, _ in told]) for topic_id, told in reply.topics] == [
            (self.topic_id(name), [row[0] for row in each]) for name, each in rows.items()
        ]
        return {
            name: [each and error_from_meta(each) for _, each in told]
            for name, (_, told) in zip(rows, reply.topics, strict=True)
        }

    def commit_request(
        self, rows: dict[str, list[tuple[int, int, int, int, str]]], **more: Any
    ) -> Commit:
        """Make a request."""
        topics = [(self.topic_id(name), each) for name, each in rows.items()]
        return Commit(group=self.group, member=self.member, topics=topics, **more)

    def committed(
        self,
        generation: int = -1,
        partition: int = 0,
        topic: str = "t",
        start: str | int | None = None,
    ) -> Found:
        """Look where the group is; with a generation, take the partition over."""
        topics = [(self.topic_id(topic), [(partition, generation)])]
        frame = self.ask(
            Committed(group=self.group, member=self.member, topics=topics, start=start)
        )
        if frame.type == MessageType.ERROR:
            raise error_of(frame)
        reply = CommittedReply.from_meta(frame.split()[0])
        (row,) = reply.topics[0][1]
        index, offset, epoch, note, time, start, end, error = row
        assert index == partition
        failed = error and error_from_meta(error)
        return Found(offset, epoch, note, time, start, end, failed)

    def taken(self, generation: int, partition: int = 0, topic: str = "t") -> int:
        """Take a partition over, and return where the group is in it."""
        found = self.committed(generation, partition, topic)
        assert found.error is None, found.error
        return found.offset

    def ask(self, request: Commit | Committed) -> Frame:
        """Ask, and wait."""
        message_id = self.connection.post(request)
        for _ in range(8):
            self.fixture.clock.advance(0)
        (frame,) = self.connection.frames()
        assert frame.message_id == message_id
        return frame

    def topic_id(self, name: str) -> bytes:
        """The id of a topic."""
        found = self.fixture.meta.registry.by_name.get(name)
        return bytes(16) if found is None else found.id


def hosted_of(broker: BrokerFixture, partition: int = 0, topic: str = "t") -> Hosted:
    """The place of the positions of a partition."""
    return broker.broker.channels.hosting(broker.partition(topic, partition))


def position(broker: BrokerFixture, group: str = "g", partition: int = 0) -> Position:
    """All that is known of a group in a partition."""
    return hosted_of(broker, partition).positions.of(broker.meta.registry.group(group).mark)
