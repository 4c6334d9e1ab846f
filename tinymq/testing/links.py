"""Connections in memory: the bytes of the real protocols, without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import read_header
from tinymq.wire.frames import Bytes, FrameDecoder, encode_frame
from tinymq.wire.header import HEADER, REPLY, MessageType
from tinymq.wire.messages import Produce, ProduceReply

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.protocol import BrokerProtocol

#: Most bytes handed over at once, as a socket does.
CHUNK: Final = 64 * 1024
BROKER_ADDRESS: Final = IPv4Address("TCP", "127.0.0.1", 7800)
_PING: Final = b"".join(encode_frame(MessageType.PING, 0))
_PRODUCED: Final = MessageType.PRODUCE | REPLY


@frozen
class Acknowledgement:
    """
    The answer to a publish.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        offset: Of the first record.
        count: How many records the batch has.
        client_id: `ClientConfig.client_id` of the publisher.
    """

    topic: str
    partition: int
    offset: int
    count: int
    client_id: str


class End:
    """
    One end of a link; the transport of a protocol.

    Args:
        link: The link.
        here: The address of this end.
        there: The address of the other end.
    """

    def __init__(self, link: Link, here: IPv4Address, there: IPv4Address) -> None:
        self.link = link
        self.bufferSize = CHUNK
        self.connected = True
        self.disconnecting = False
        self.reading = True
        self.protocol: Any = None
        self.outbox = bytearray()
        self._here, self._there = here, there
        self._producer: Any = None
        self._paused = False

    # --- ITCPTransport ----------------------------------------------------------

    def write(self, data: Bytes) -> None:
        """Send bytes, which arrive when the broker's `settle` moves them."""
        if not self.connected:
            return
        self.outbox += data
        if self._producer is not None and not self._paused and len(self.outbox) > self.bufferSize:
            self._paused = True
            self._producer.pauseProducing()

    def writeSequence(self, data: Iterable[Bytes]) -> None:  # noqa: N802 - Twisted's name
        """Send pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:  # noqa: N802 - Twisted's name
        """Close, once everything was sent."""
        self.disconnecting = True

    def abortConnection(self) -> None:  # noqa: N802 - Twisted's name
        """Close at once."""
        self.link.end(ConnectionLost())

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        """Pause this producer when much waits."""
        self._producer, self._paused = producer, False

    def unregisterProducer(self) -> None:  # noqa: N802 - Twisted's name
        """Pause nobody."""
        self._producer = None

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Read nothing more for now."""
        self.reading = False

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Read again."""
        self.reading = True

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Close."""
        self.loseConnection()

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: there is no TCP."""

    def getPeer(self) -> IPv4Address:  # noqa: N802 - Twisted's name
        """Return the address of the other end."""
        return self._there

    def getHost(self) -> IPv4Address:  # noqa: N802 - Twisted's name
        """Return the address of this end."""
        return self._here

    # --- for the link -----------------------------------------------------------

    def deliver(self, other: End) -> bool:
        """
        Hand what waits to the protocol at the other end.

        Args:
            other: The other end.

        Returns:
            Whether anything was handed over.
        """
        moved = False
        while self.outbox and other.reading and other.connected:
            data = bytes(self.outbox[:CHUNK])
            del self.outbox[:CHUNK]
            moved = True
            self.passing(data)
            other.protocol.dataReceived(data)
        if self._paused and not self.outbox and self._producer is not None:
            self._paused = False
            self._producer.resumeProducing()
        return moved

    def passing(self, data: bytes) -> None:
        """
        See what is handed over.

        Args:
            data: The bytes.
        """

    def lost(self, reason: Exception) -> None:
        """
        Tell the protocol that the connection is gone.

        Args:
            reason: Why.
        """
        if self.connected:
            self.connected = False
            self.outbox.clear()
            self._producer = None
            self.protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]


class ClientEnd(End):
    """The client's end, which lets the link know what was published."""

    @override
    def passing(self, data: bytes) -> None:
        self.link.note(data)


class BrokerEnd(End):
    """The broker's end, which may lose acknowledgements."""

    @override
    def write(self, data: Bytes) -> None:
        """Send one frame: `BrokerProtocol` writes each by itself."""
        if not self.link.doomed and not self.link.loses(data):
            super().write(data)


class Link:
    """
    A connection between a client and the broker.

    Args:
        broker: The broker's domain, which knows topics.
        lose: Asked whether an acknowledgement gets lost, and whether the link is
            cut then; None when it does not get lost.
        number: Counts connections.

    Attributes:
        alive: Whether it is connected.
        doomed: Whether it ends as soon as what was sent before has arrived.
    """

    def __init__(
        self, broker: Broker, lose: Callable[[Acknowledgement], bool | None], number: int
    ) -> None:
        address = IPv4Address("TCP", "127.0.0.1", 40_000 + number % 20_000)
        self.address = address
        self.alive = True
        self.doomed = False
        self._broker = broker
        self._lose = lose
        self._client_end: End = ClientEnd(self, address, BROKER_ADDRESS)
        self._broker_end: End = BrokerEnd(self, BROKER_ADDRESS, address)
        self._decoder = FrameDecoder(DEFAULT_LIMITS.body)
        self._produced: dict[int, tuple[str, int, int]] = {}

    def connect(self, client: IProtocol, broker: BrokerProtocol) -> None:
        """
        Join two protocols.

        Args:
            client: The client's.
            broker: The broker's.
        """
        self._client_end.protocol = client
        self._broker_end.protocol = broker
        broker.makeConnection(self._broker_end)  # type: ignore[no-untyped-call]
        client.makeConnection(self._client_end)  # type: ignore[arg-type]

    def move(self) -> bool:
        """Hand over what waits at both ends, and say whether there was anything."""
        client, broker = self._client_end, self._broker_end
        moved = client.deliver(broker)
        moved |= broker.deliver(client)
        if self.alive and self.doomed and not broker.outbox:
            self.end(ConnectionLost())
            moved = True
        for end in (client, broker):
            if self.alive and end.disconnecting and not end.outbox:
                self.end(ConnectionDone())
                moved = True
        return moved

    def end(self, reason: Exception) -> None:
        """
        Disconnect both ends; what was under way is lost.

        Args:
            reason: What they are told.
        """
        if self.alive:
            self.alive = False
            self._broker_end.lost(reason)
            self._client_end.lost(reason)

    def carry_heartbeats(self) -> None:
        """Let both ends hear from each other, as they did all the time that is jumped over."""
        broker: BrokerProtocol = self._broker_end.protocol
        under_way = self._client_end.outbox or self._broker_end.outbox
        if self.alive and broker.hello is not None and not under_way:
            broker.dataReceived(_PING)
            self._client_end.protocol.dataReceived(_PING)

    # --- acknowledgements -------------------------------------------------------

    def note(self, data: bytes) -> None:
        """
        Remember which publish each acknowledgement will be for.

        Args:
            data: Bytes on their way to the broker.
        """
        for frame in self._decoder.feed(data):
            if frame.type == MessageType.PRODUCE and frame.message_id:
                meta, batch = frame.split()
                request = Produce.from_meta(meta)
                topic = self._broker.meta.registry.topics.get(request.topic_id)
                facts = topic.name if topic else "", request.partition, read_header(batch).records
                self._produced[frame.message_id] = facts

    def loses(self, data: Bytes) -> bool:
        """
        Say whether a frame of the broker gets lost.

        Args:
            data: The frame.
        """
        _, _, type_, message_id, _ = HEADER.unpack_from(data)
        facts = self._produced.pop(message_id, None)
        if facts is None or type_ != _PRODUCED:
            return False
        (frame,) = FrameDecoder(DEFAULT_LIMITS.body).feed(bytes(data))
        reply = ProduceReply.from_meta(frame.split()[0])
        topic, partition, count = facts
        hello = self._broker_end.protocol.hello
        told = Acknowledgement(topic, partition, reply.base_offset, count, hello.client_id)
        cut = self._lose(told)
        if cut:
            self.doomed = True
        return cut is not None


@implementer(IStreamClientEndpoint)
class Dialer:
    """
    Connects one client.

    Args:
        dial: Makes a connection, or refuses it.

    Attributes:
        links: The connections that it made.
    """

    def __init__(self, dial: Callable[[IProtocolFactory], tuple[IProtocol, Link] | None]) -> None:
        self._dial = dial
        self.links: list[Link] = []

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect at once, or not at all."""
        made = self.dial(factory)
        if made is None:
            return fail(Refused())  # type: ignore[no-untyped-call]
        return succeed(made)

    def dial(self, factory: IProtocolFactory) -> IProtocol | None:
        """
        Make a connection, and return the client's protocol; None when it is refused.

        Args:
            factory: Makes that protocol.
        """
        made = self._dial(factory)
        if made is None:
            return None
        self.links = [*(link for link in self.links if link.alive), made[1]]
        return made[0]
