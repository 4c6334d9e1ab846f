"""What a transaction has beside records: positions of groups, and settles of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.message import lost
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.parcels import bits_at
from tinymq.client.core.settling import as_bytes
from tinymq.client.core.starts import Mark
from tinymq.client.core.transactions.errands import Attempt, Told
from tinymq.errors import (
    ClientError,
    ConnectionLost,
    NotLeader,
    TinyMQError,
    UnknownPartition,
    UsageError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import FINISH, Commit, CommitRow, Identity, Settle, error_from_meta

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch
    from tinymq.client.core.message import QueueMessage

#: Where something was told to a broker: topic ids and partitions.
Places = set[tuple[bytes, int]]


class Piece(Protocol):
    """Something that brokers are told before the transaction ends."""

    def attempt_for(self, identity: Identity, places: Places) -> Attempt:
        """
        Return what tells it once.

        Args:
            identity: The transaction.
            places: Takes the partitions that were told.
        """


class Rows(NamedTuple):
    """
    One position.

    Attributes:
        topic: Name of the topic.
        topic_id: Its identity, or None where that is to be looked up.
        partition: Number of the partition.
        generation: Of the share, or -1.
        offset: The first offset that is not handled.
        epoch: Epoch of the record before, or -1.
        note: What is kept with it.
    """

    topic: str
    topic_id: bytes | None
    partition: int
    generation: int
    offset: int
    epoch: int
    note: str

    @classmethod
    def of(cls, where: Any, place: Any) -> Rows:
        """
        Read a position that a caller gives.

        Args:
            where: Topic and partition.
            place: An offset, or a mark.

        Raises:
            UsageError: It is none.
        """
        mark = place if isinstance(place, Mark) else Mark(place, -1)
        try:
            topic, partition = where
        except (TypeError, ValueError):
            topic = partition = None
        numbers = type(partition) is int and type(mark.offset) is int
        if type(topic) is not str or not numbers or partition < 0 or mark.offset < 0:
            raise UsageError(
                "positions are a mapping of (topic, partition) to an offset or a mark, such as "
                f'{{("orders", 0): 17}}, not {where!r:.60}: {place!r:.60}'
            )
        return cls(topic, None, partition, -1, mark.offset, mark.epoch, "")


class Positions:
    """
    Positions of one group.

    Args:
        cluster: The brokers.
        group: Name of the group.
        member: Who commits, or empty.
        rows: The positions.
    """

    def __init__(self, cluster: Cluster, group: str, member: str, rows: Sequence[Rows]) -> None:
        self._cluster = cluster
        self._group = group
        self._member = member
        self._left = {(row.topic, row.partition): row for row in rows}

    def attempt_for(self, identity: Identity, places: Places) -> Attempt:
        """
        Return what tells them once, each to the leader of its partition.

        Args:
            identity: The transaction.
            places: Takes the partitions that were told.
        """

        def attempt(told: Told, until: float, now: float) -> None:
            _Telling(self._cluster, self._left, told).begin(
                self._group, self._member, (identity, places), until, now
            )

        return attempt


class _Telling:
    """
    One attempt to tell positions.

    Args:
        cluster: The brokers.
        left: Those that are not told; what is told goes.
        told: Told of the end.
    """

    def __init__(self, cluster: Cluster, left: dict[tuple[str, int], Rows], told: Told) -> None:
        self._cluster = cluster
        self._left = left
        self._told = told
        self._open = 1
        self._error: TinyMQError | None = None

    def begin(
        self,
        group: str,
        member: str,
        where: tuple[Identity, Places],
        until: float,
        now: float,
    ) -> None:
        """Look topics up, and tell."""
        topics = sorted({row.topic for row in self._left.values()})
        waiting = len(topics)
        infos: dict[str, TopicInfo] = {}

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            nonlocal waiting
            waiting -= 1
            if info is None:
                self._error = self._error or error
            else:
                infos[info.name] = info
            if not waiting:
                if self._error is None:
                    self._send(group, member, where, infos, until, now)
                self._end(now)

        if not topics:
            self._end(now)
        for topic in topics:
            self._cluster.topic(topic, until, found, now)

    def _send(
        self,
        group: str,
        member: str,
        where: tuple[Identity, Places],
        infos: dict[str, TopicInfo],
        until: float,
        now: float,
    ) -> None:
        identity, places = where
        leaders: dict[int, dict[bytes, list[CommitRow]]] = {}
        for row in tuple(self._left.values()):
            info = infos[row.topic]
            if row.partition >= info.partitions:
                self._error = UnknownPartition(f"{row.topic} has no partition {row.partition}")
                return
            leader = self._cluster.metadata.leader(row.topic, row.partition)
            if leader is None or leader < 0:
                self._error = self._cluster.metadata.leaderless(row.topic, row.partition)
                return
            topic_id = info.id if row.topic_id is None else row.topic_id
            rows = leaders.setdefault(leader, {}).setdefault(topic_id, [])
            rows.append((row.partition, row.generation, row.offset, row.epoch, row.note))
            places.add((topic_id, row.partition))
        names = {info.id: name for name, info in infos.items()}
        for row in self._left.values():
            if row.topic_id is not None:
                names[row.topic_id] = row.topic
        for leader, topics in leaders.items():
            self._open += 1
            message = Commit(
                group=group, member=member, topics=[*topics.items()], transaction=identity
            )
            self._cluster.link(leader).request(
                message.type, message.to_meta(), (), until, self._answered(names), now
            )

    def _answered(self, names: dict[bytes, str]) -> Any:
        def answered(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if error is not None:
                self._note(error, now)
            else:
                for topic_id, rows in reply.topics:
                    for partition, fault in rows:
                        if fault is None:
                            self._left.pop((names.get(topic_id, ""), partition), None)
                        else:
                            self._note(error_from_meta(fault), now)
            self._end(now)

        return answered

    def _note(self, error: TinyMQError, now: float) -> None:
        """Keep what went wrong; what cannot be mended goes before what may pass."""
        if isinstance(error, (NotLeader, ClientError)):
            self._cluster.refresh(now)
        passing = self._error is None or getattr(self._error, "retriable", False)
        if passing:
            self._error = error

    def _end(self, now: float) -> None:
        self._open -= 1
        if not self._open:
            self._told(None, self._error, now)


class Settles:
    """
    Messages of channels that are finished with the transaction.

    Args:
        messages: They are held.
    """

    def __init__(self, messages: Sequence[QueueMessage]) -> None:
        self._left = [*messages]
        #: What a broker may have been told: the transaction has it, and not its consumer.
        self.told: dict[QueueMessage, None] = {}

    def attempt_for(self, identity: Identity, places: Places) -> Attempt:
        """
        Return what tells it once, each to the broker that delivered the message.

        Args:
            identity: The transaction.
            places: Takes the partitions that were told.
        """

        def attempt(told: Told, until: float, now: float) -> None:
            if any(not message.held for message in self._left):
                told(None, lost(), now)
                return
            branches: dict[Branch, list[QueueMessage]] = {}
            for message in self._left:
                branches.setdefault(message.branch, []).append(message)
            left = len(branches)
            wrong: TinyMQError | None = None

            def answered(error: TinyMQError | None, now: float) -> None:
                nonlocal left, wrong
                left -= 1
                if error is not None and (wrong is None or getattr(wrong, "retriable", False)):
                    wrong = error
                if not left:
                    told(None, wrong, now)

            for branch, messages in branches.items():
                self._tell(branch, messages, (identity, places), (answered, until, now))

        return attempt

    def _tell(
        self,
        branch: Branch,
        messages: list[QueueMessage],
        where: tuple[Identity, Places],
        call: tuple[Any, float, float],
    ) -> None:
        identity, places = where
        answered, until, now = call
        leases: dict[int, dict[int, list[QueueMessage]]] = {}
        topic_id = branch.topic_id
        if topic_id is None or not branch.joined:
            answered(ConnectionLost("the channel's broker is away"), now)
            return
        self.told.update(dict.fromkeys(messages))
        for message in messages:
            places.add((topic_id, message.partition))
            leases.setdefault(message.partition, {}).setdefault(message.lease, []).append(message)
        rows: list[Any] = [
            (
                partition,
                FINISH,
                [
                    (lease, as_bytes(bits_at(0, [each.bit for each in some])))
                    for lease, some in found.items()
                ],
                {},
            )
            for partition, found in leases.items()
        ]

        def settled(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if error is None and reply.late:
                error = lost()
            if error is None:
                done = {*messages}
                self._left = [each for each in self._left if each not in done]
            answered(error, now)

        branch.ask(
            Settle(subscription=branch.number, rows=rows, transaction=identity),
            settled,
            until,
            now,
        )
