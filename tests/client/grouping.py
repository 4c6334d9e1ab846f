"""A coordinator and positions at the puppet broker, which do what a test tells them to."""

from __future__ import annotations

from typing import Any

from attrs import Factory, define
from typing_extensions import override

from tests.client.puppet import Answer, Line, Puppet
from tinymq.errors import FencedGeneration, NotCoordinator, UnknownMember, WireError
from tinymq.wire.frames import Bytes, encode_frame
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    Commit,
    CommitReply,
    Committed,
    CommittedReply,
    Member,
    MemberReply,
    Message,
    error_meta,
    start_time,
)

#: A partition: topic id and number.
Key = tuple[bytes, int]


@define
class PuppetMember:
    """A member as the puppet knows it."""

    id: str
    #: What it is to read, with generations.
    shares: dict[Key, int] = Factory(dict)
    #: What it said it reads.
    owned: dict[Key, int] = Factory(dict)
    #: Where the answer goes to.
    poll: tuple[Line, int, Member] | None = None
    told: MemberReply | None = None
    left: bool = False
    last: Member | None = None


@define
class PuppetPosition:
    """What was committed in a partition."""

    offset: int = -1
    epoch: int = -1
    note: str = ""
    fence: int = -1


class Grouping(Puppet):
    """
    A puppet with one group.

    Attributes:
        members: By id, in the order in which they joined.
        positions: By partition.
        commits: Every commit that was taken: partition and offset.
        generation: Of the group.
        coordinator: Whom to ask, if not this one.
        deal: Whether partitions are dealt out among the members by itself.
    """

    def __init__(self, number: int = 1) -> None:
        super().__init__(number)
        self.members: dict[str, PuppetMember] = {}
        self.positions: dict[Key, PuppetPosition] = {}
        self.commits: list[tuple[int, int]] = []
        self.generation = 0
        self.coordinator: int | None = None
        self.deal = True

    @property
    def live(self) -> list[PuppetMember]:
        """The members that have not left."""
        return [one for one in self.members.values() if not one.left]

    # --- what a test does ------------------------------------------------------

    def give(self, member: PuppetMember, *partitions: int, topic: str = "t") -> None:
        """Let a member read these partitions, and no others."""
        self.deal = False
        self.generation += 1
        topic_id = self.topics[topic].id
        keep = member.shares
        member.shares = {
            (topic_id, one): keep.get((topic_id, one), self.generation) for one in partitions
        }
        self.answer_polls()

    def forget(self, member: PuppetMember) -> None:
        """Know a member no more."""
        self.members.pop(member.id)
        if member.poll is not None:
            line, message_id, _ = member.poll
            error = error_meta(UnknownMember())
            line.send(encode_frame(MessageType.ERROR, message_id, error))

    def committed(self, partition: int = 0, topic: str = "t") -> PuppetPosition:
        """Say what was committed in a partition."""
        return self.positions.setdefault((self.topics[topic].id, partition), PuppetPosition())

    def answer_polls(self, *, all_of_them: bool = False) -> None:
        """Answer those who wait and have something new, or all of them."""
        if self.deal:
            self._deal()
        for member in self.live:
            if member.poll is None:
                continue
            reply = self._reply(member)
            if reply != member.told or all_of_them:
                line, message_id, _ = member.poll
                member.poll, member.told = None, reply
                if line.alive:
                    self.reply(line, MessageType.MEMBER, message_id, (reply, ()))

    # --- requests --------------------------------------------------------------

    @override
    def _carry_out(
        self, line: Line, message_id: int, request: Message, payload: Bytes
    ) -> Answer | None:
        if isinstance(request, Member):
            reply = self._member(line, message_id, request)
            return None if reply is None else (reply, ())
        return super()._carry_out(line, message_id, request, payload)

    @override
    def _message(self, request: Message, payload: Bytes) -> Message | None:
        match request:
            case Commit():
                return self._commit(request)
            case Committed():
                return self._committed(request)
        return super()._message(request, payload)

    def _member(self, line: Line, message_id: int, request: Member) -> MemberReply | None:
        if self.coordinator not in (None, self.number):
            raise NotCoordinator(broker=self.coordinator)
        member = self.members.get(request.member)
        if member is None:
            if request.generation:
                if not request.owned:
                    raise UnknownMember
                self.generation = max(self.generation, request.generation)
            member = self.members[request.member] = PuppetMember(request.member)
            member.shares = _flat(request.owned)
        member.last = request
        self.generation = max(self.generation, request.generation)
        if member.poll is not None:
            before, number, _ = member.poll
            member.poll = None
            if before.alive:
                self.reply(before, MessageType.MEMBER, number, (self._reply(member), ()))
        if request.leaves:
            member.left, member.shares, member.owned = True, {}, {}
            self.answer_polls()
            return self._reply(member)
        fresh = member.owned != _flat(request.owned) or member.told is None
        member.owned = _flat(request.owned)
        member.poll = line, message_id, request
        if fresh:
            member.told = None
        self.answer_polls()
        return None

    def _reply(self, member: PuppetMember) -> MemberReply:
        topics: dict[bytes, list[tuple[int, int]]] = {}
        for (topic_id, partition), generation in sorted(member.shares.items()):
            topics.setdefault(topic_id, []).append((partition, generation))
        return MemberReply(generation=self.generation, assigned=list(topics.items()))

    def _deal(self) -> None:
        """Deal cooperatively: what somebody still reads is given to nobody else."""
        live = self.live
        keys = [
            (topic.id, one)
            for name, topic in sorted(self.topics.items())
            for one in range(len(topic.logs))
            if live and live[0].last is not None and name in live[0].last.topics
        ]
        if not live:
            return
        for place, key in enumerate(keys):
            owner = live[place % len(live)]
            for member in live:
                if member is not owner:
                    member.shares.pop(key, None)
            free = not any(key in one.owned for one in live if one is not owner)
            if free and key not in owner.shares:
                self.generation += 1
                owner.shares[key] = self.generation
        for member in live:
            member.shares = {key: one for key, one in member.shares.items() if key in keys}

    def _committed(self, request: Committed) -> CommittedReply:
        topics = []
        for topic_id, rows in request.topics:
            found: list[Any] = []
            for partition, generation in rows:
                try:
                    log = self.find(topic_id).logs[partition]
                    place = self.positions.setdefault((topic_id, partition), PuppetPosition())
                    if -1 < generation < place.fence:
                        raise FencedGeneration(generation=place.fence)
                except WireError as error:
                    found.append((partition, -1, -1, "", -1, -1, -1, error_meta(error)))
                    continue
                place.fence = max(place.fence, generation)
                if request.start is not None and place.offset < 0 <= generation:
                    start = request.start
                    place.offset = (
                        start if isinstance(start, int) else log.offset_at(start_time(start))
                    )
                    place.epoch = log.epoch_at(place.offset)
                row = (place.offset, place.epoch, place.note, 5, log.start, log.end, None)
                found.append((partition, *row))
            topics.append((topic_id, found))
        return CommittedReply(topics=topics)

    def _commit(self, request: Commit) -> CommitReply:
        topics = []
        for topic_id, rows in request.topics:
            found: list[tuple[int, Any]] = []
            for partition, generation, offset, epoch, note in rows:
                try:
                    self.find(topic_id)
                    place = self.positions.setdefault((topic_id, partition), PuppetPosition())
                    if generation < place.fence and generation >= 0:
                        raise FencedGeneration(generation=place.fence)
                except WireError as error:
                    found.append((partition, error_meta(error)))
                    continue
                place.offset, place.epoch, place.note = offset, epoch, note
                self.commits.append((partition, offset))
                found.append((partition, None))
            topics.append((topic_id, found))
        return CommitReply(topics=topics)


def _flat(shares: list[tuple[bytes, list[tuple[int, int]]]]) -> dict[Key, int]:
    return {(topic_id, one): number for topic_id, rows in shares for one, number in rows}
