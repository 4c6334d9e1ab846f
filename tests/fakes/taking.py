"""A client of channels on a transport in memory: what it was delivered, and what it says."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.fakes.broker import BrokerFixture, Connection, error_of
from tinymq.broker.channel.runs import offsets_in
from tinymq.errors import WireError
from tinymq.wire.batch import split
from tinymq.wire.frames import Frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    FINISH,
    GIVE_BACK,
    REJECT,
    REQUEUE,
    TOUCH,
    Credit,
    Deliver,
    Ended,
    LeaseLost,
    Message,
    Settle,
    SettleReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    error_from_meta,
)
from tinymq.wire.records import RecordBatch

#: Seconds after which a client says that it lives.
_BEAT = 10.0


class Taken(NamedTuple):
    """A message that was delivered."""

    partition: int
    lease: int
    base: int
    offset: int
    value: bytes | None
    attempt: int
    failures: int

    @property
    def bit(self) -> bytes:
        """The bit of this message in its lease."""
        bits = 1 << self.offset - self.base
        return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class Taker:
    """
    One subscription.

    Args:
        fixture: The broker.
        connection: Its connection; a new one by default.
        number: Its number.
    """

    def __init__(
        self, fixture: BrokerFixture, connection: Connection | None = None, number: int = 1
    ) -> None:
        self.fixture = fixture
        self.connection = connection or fixture.connect()
        self.number = number
        #: Messages that were delivered and not yet looked at.
        self.messages: list[Taken] = []
        self.lost: list[Any] = []
        #: Why the broker ended it, with how much was lost before.
        self.ended: list[tuple[WireError, int]] = []
        self.replies: dict[int, Frame] = {}
        #: The size of each payload.
        self.payloads: list[bytes] = []

    def subscribe(self, channel: str = "c", topic: str = "t", **given: Any) -> SubscribeReply:
        """Subscribe, and let the broker do what it does."""
        given = {"credit": 100, "create": True, **given}
        topic_id = self.fixture.meta.describe(topic).id
        number = self.connection.post(
            Subscribe(subscription=self.number, topic_id=topic_id, channel=channel, **given)
        )
        self.run()
        frame = self.reply(number)
        return SubscribeReply.from_meta(frame.split()[0])

    def subscribe_soon(self, channel: str = "c", topic: str = "t", credit: int = 100) -> None:
        """Ask for a subscription, and do not wait for the answer."""
        topic_id = self.fixture.meta.describe(topic).id
        self.connection.post(
            Subscribe(subscription=self.number, topic_id=topic_id, channel=channel, credit=credit)
        )

    def run(self, seconds: float = 0) -> None:
        """Let time pass, and read what came."""
        while seconds > _BEAT:
            self.fixture.clock.advance(_BEAT)
            self.connection.send(MessageType.PING)
            seconds -= _BEAT
        self.fixture.clock.advance(seconds)
        for _ in range(6):
            self.fixture.clock.advance(0)
        self.read()

    def read(self) -> None:
        """Read what came."""
        for frame in self.connection.frames():
            if frame.type == MessageType.DELIVER:
                self._delivered(frame)
            elif frame.type == MessageType.LEASE_LOST:
                self.lost += LeaseLost.from_meta(frame.split()[0]).rows
            elif frame.type == MessageType.ENDED:
                ended = Ended.from_meta(frame.split()[0])
                assert ended.subscription == self.number
                self.ended.append((error_from_meta(ended.error), len(self.lost)))
            elif frame.message_id:
                self.replies[frame.message_id] = frame

    def _delivered(self, frame: Frame) -> None:
        meta, payload = frame.split()
        deliver = Deliver.from_meta(meta)
        self.payloads.append(bytes(payload))
        records = {
            record.offset: record.value
            for header, data in split(payload)
            for record in RecordBatch(data, header)
        }
        for lease, base, bits, count, attempt, failures, _ in deliver.rows:
            found = (1 << count) - 1 if bits is None else int.from_bytes(bits, "little")
            assert found.bit_count() == count
            self.messages += (
                Taken(deliver.partition, lease, base, each, records[each], attempt, failures)
                for each in offsets_in(base, found)
            )

    def take(self) -> list[Taken]:
        """What was delivered since the last call."""
        messages, self.messages = self.messages, []
        return messages

    @property
    def values(self) -> list[bytes | None]:
        """The values of what was delivered since the last call."""
        return [each.value for each in self.take()]

    def credit(self, granted: int) -> None:
        """Let more be delivered."""
        self._say(Credit(subscription=self.number, granted=granted))

    def _say(self, message: Message) -> None:
        self.connection.send(message.type, 0, message.to_meta())
        self.run()

    def post(self, verb: int, *messages: Taken, **facts: Any) -> int:
        """Settle messages one by one, without waiting."""
        rows: list[Any] = [
            (each.partition, verb, [(each.lease, each.bit)], facts) for each in messages
        ]
        return self.connection.post(Settle(subscription=self.number, rows=rows))

    def settle(self, verb: int, *messages: Taken, **facts: Any) -> SettleReply:
        """Settle messages one by one, and wait for the answer."""
        number = self.post(verb, *messages, **facts)
        self.run()
        return SettleReply.from_meta(self.reply(number).split()[0])

    def finish(self, *messages: Taken) -> SettleReply:
        """Finish messages."""
        return self.settle(FINISH, *messages)

    def requeue(self, *messages: Taken, **facts: Any) -> SettleReply:
        """Requeue messages."""
        return self.settle(REQUEUE, *messages, **facts)

    def reject(self, *messages: Taken, reason: str = "") -> SettleReply:
        """Reject messages."""
        return self.settle(REJECT, *messages, x=reason)

    def touch(self, *messages: Taken) -> SettleReply:
        """Renew leases."""
        return self.settle(TOUCH, *messages)

    def give_back(self, *messages: Taken) -> SettleReply:
        """Give messages back."""
        return self.settle(GIVE_BACK, *messages)

    def unsubscribe(self) -> None:
        """End the subscription."""
        number = self.connection.post(Unsubscribe(subscription=self.number))
        self.run()
        self.reply(number)

    def reply(self, number: int) -> Frame:
        """The good answer to a request, which must be there."""
        frame = self.replies.pop(number)
        if not frame.type & REPLY or frame.type == MessageType.ERROR:
            raise error_of(frame)
        return frame

    def error(self, number: int) -> WireError:
        """The error that answers a request."""
        return error_of(self.replies.pop(number))
