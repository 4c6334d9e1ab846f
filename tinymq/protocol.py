"""
The protocol of the broker's side: framing, dispatch, replies and back-pressure.

A `BrokerProtocol` is a thin shell around the wire: bytes go into the frame
decoder, each frame goes to one small method by a table, answers come back
through plain callbacks. It never waits, so nothing here is a coroutine.

Bounds of one connection, so that no peer can make this process grow:

- *in*: a frame's header is checked before its body is kept; at most
  `FRAMES_PER_TURN` frames are handled in one turn of the reactor, and for no
  longer than `TURN_SECONDS`; reading stops while `MOST_PENDING` bytes of batches
  wait for the disk;
- *out*: reading stops while the transport has more than it can send, and FETCH
  requests that are already here are kept as requests, not as data.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.broker.partition import Appended
from tinymq.broker.ports import Timer
from tinymq.broker.reading import Reader
from tinymq.broker.searching import Searches
from tinymq.caller import Caller
from tinymq.errors import (
    BadMagic,
    HelloRequired,
    InternalError,
    MessageIdInUse,
    Overloaded,
    ProtocolError,
    RequestError,
    ShuttingDown,
    TinyMQError,
    UnknownType,
    UnsupportedVersion,
    WireError,
)
from tinymq.operations import Operator
from tinymq.wire.codec import pack
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, VERSION, MessageType
from tinymq.wire.messages import (
    ACKS_NONE,
    Fetch,
    FetchReply,
    Goodbye,
    Hello,
    HelloReply,
    InitProducer,
    Message,
    Metadata,
    Offsets,
    OffsetsReply,
    Operate,
    Ping,
    Produce,
    ProduceReply,
    error_meta,
)

#: Frames handled for one connection before others have their turn.
FRAMES_PER_TURN: Final = 500
#: Seconds for which one connection's frames are handled before others have their turn.
TURN_SECONDS: Final = 0.02
#: Bytes of one connection's batches that may wait for the disk.
MOST_PENDING: Final = 16 * 1024 * 1024
#: FETCH requests that one connection may have waiting.
MOST_FETCHES: Final = 100
#: OFFSETS requests that one connection may have waiting.
MOST_SEARCHES: Final = 100
#: Bytes taken from the socket in one go.
READ_SIZE: Final = 256 * 1024
#: Silent heartbeats after which a peer is taken for dead.
MISSED_HEARTBEATS: Final = 3
#: Seconds that one frame may take to arrive. Bytes are signs of life, but a peer
#: must not hold megabytes here with one of them now and then.
FRAME_SECONDS: Final = 60
#: Seconds that a closed connection has to take its last bytes.
LINGER: Final = 5

SOFTWARE: Final = f"tinymq/{__version__}"


@implementer(IPushProducer)
class BrokerProtocol(Protocol):
    """
    One client's connection.

    Args:
        factory: What all connections share.
        peer: Where the client is, for logs.
    """

    _log = Logger()

    def __init__(self, factory: BrokerFactory, peer: str) -> None:
        self.shared = factory
        self.peer = peer
        self.hello: Hello | None = None
        #: Who is there; everybody is nobody until there is something to prove.
        self.caller = Caller(peer=peer)
        self.connected_at = 0.0
        self.seen_at = 0.0
        self.told_at = 0.0
        self.paused_since: float | None = None
        self._begun_at: float | None = None
        self._decoder = FrameDecoder(factory.broker.limits.hello)
        self._open: set[int] = set()
        self._readers: set[Reader] = set()
        self._parked: deque[Callable[[], None]] = deque()
        self._pending = 0
        self._searches = 0
        self._reading = True
        self._more_frames = False
        self._closing = False
        self._abort: Timer | None = None

    # --- the transport's side -------------------------------------------------

    @override
    def connectionMade(self) -> None:
        now = self.shared.scheduler.seconds()
        self.connected_at = self.seen_at = self.told_at = now
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(True)
        transport.bufferSize = min(READ_SIZE, self.shared.broker.limits.outgoing)
        transport.registerProducer(self, True)
        self.shared.joined(self)

    @override
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._closing = True
        if self._abort is not None and self._abort.active():
            self._abort.cancel()
        readers, self._readers = self._readers, set()
        for reader in readers:
            reader.cancel()
        self._parked.clear()
        self._open.clear()
        self.caller.gone()
        self.shared.left(self)

    @override
    def dataReceived(self, data: bytes) -> None:
        if not self._closing:
            self.seen_at = self.shared.scheduler.seconds()
            self._handle(data)

    def _handle(self, data: bytes) -> None:
        try:
            seconds = self.shared.scheduler.seconds
            until = seconds() + TURN_SECONDS
            complete = False
            for handled, frame in enumerate(self._decoder.feed(data), 1):
                complete = True
                self._frame(frame)
                if self._closing:
                    break
                if handled >= FRAMES_PER_TURN or seconds() > until or not self._takes_more:
                    # The rest stays bytes: what it asks for might be a thousand times as long.
                    self._later()
                    break
            self._note_unfinished(complete=complete)
            self.shared.broker.committer.write_staged()
        except BadMagic:
            self._log.info("{peer} does not speak tinymq; closed", peer=self.peer)
            self._close()
        except ProtocolError as error:
            self._refuse(0, error)

    def _note_unfinished(self, *, complete: bool) -> None:
        """Remember since when there is the beginning of a frame."""
        if not self._decoder.buffered:
            self._begun_at = None
        elif complete or self._begun_at is None:
            self._begun_at = self.seen_at

    def _later(self) -> None:
        """Let other connections have their turn, then go on with what is here."""
        self._more_frames = True
        self._flow()
        if self._takes_more:
            self.shared.scheduler.callLater(0, self._go_on)

    def _go_on(self) -> None:
        if self._takes_more:
            self._more_frames = False
            self._handle(b"")
            self._flow()

    # --- back-pressure --------------------------------------------------------

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The transport has more than it can send."""
        if self.paused_since is None:
            self.paused_since = self.shared.scheduler.seconds()
            self._flow()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The transport takes more again."""
        self.paused_since = None
        while self._parked and self._takes_more:
            self._parked.popleft()()
        if self._more_frames and self._takes_more:
            self._later()
        self._flow()

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The connection is lost; `connectionLost` does the rest."""

    @property
    def _takes_more(self) -> bool:
        return self.paused_since is None and not self._closing

    def _flow(self) -> None:
        """Read from the socket if, and only if, there is room for what comes."""
        want = self._takes_more and self._pending < MOST_PENDING and not self._more_frames
        if want == self._reading:
            return
        self._reading = want
        transport: Any = self.transport
        if want:
            # What it said meanwhile lies unread; that is not its silence.
            self.seen_at = self.shared.scheduler.seconds()
            transport.resumeProducing()
        elif not self._closing:
            transport.pauseProducing()

    # --- frames ---------------------------------------------------------------

    def _frame(self, frame: Frame) -> None:
        if frame.type & REPLY:
            return  # an answer to our PING; any byte was a sign of life
        try:
            self._handler_of(frame)(self, frame)
        except Exception as error:  # noqa: BLE001 - told to the peer
            self._failed(frame, error)

    def _failed(self, frame: Frame, error: Exception) -> None:
        """Tell a peer why a request failed; what nobody expected, only in general."""
        if isinstance(error, WireError):
            self._refuse(frame.message_id, error)
        elif isinstance(error, TinyMQError):
            self._refuse(frame.message_id, RequestError(str(error)))
        else:
            failure = Failure(error)  # type: ignore[no-untyped-call]
            self._log.failure("{frame} of {peer} failed", failure, frame=frame, peer=self.peer)
            self._refuse(frame.message_id, InternalError())

    def _settle(self, frame_type: int, message_id: int, result: Message | WireError) -> None:
        if isinstance(result, WireError):
            self._refuse(message_id, result)
        else:
            self.reply(frame_type, message_id, result)

    def _handler_of(self, frame: Frame) -> Callable[[BrokerProtocol, Frame], None]:
        """Find who handles a frame, and open its message id."""
        if self.hello is None and frame.type != MessageType.HELLO:
            raise HelloRequired("the first frame of a connection must be HELLO")
        if frame.message_id in self._open:
            raise MessageIdInUse(f"message id {frame.message_id} is still open")
        handler = self._HANDLERS.get(frame.type)
        if handler is None:
            raise UnknownType(f"message type 0x{frame.type:02x} is not known here")
        if frame.message_id:
            self._open.add(frame.message_id)
        return handler

    def reply(self, frame_type: int, message_id: int, reply: Message, payload: Any = ()) -> None:
        """
        Answer a request, unless nobody wants to know.

        Args:
            frame_type: The request's type.
            message_id: The request's id.
            reply: The answer.
            payload: Pieces of the payload.
        """
        if not message_id or self._closing:
            return
        self._open.discard(message_id)
        self._write(encode_frame(frame_type | REPLY, message_id, reply.to_meta(), payload))

    def _refuse(self, message_id: int, error: WireError) -> None:
        if self._closing:
            return
        self._open.discard(message_id)
        if message_id or error.fatal:
            self._write(encode_frame(MessageType.ERROR, message_id, error_meta(error)))
        if error.fatal:
            self._log.info("{peer} closed: {error}", peer=self.peer, error=error.text)
            self._close()

    def _write(self, pieces: list[Bytes]) -> None:
        self.told_at = self.shared.scheduler.seconds()
        transport: Any = self.transport
        transport.write(b"".join(pieces) if len(pieces) > 1 else pieces[0])

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            transport: Any = self.transport
            transport.unregisterProducer()
            transport.loseConnection()
            # What is still unsent may never go out to a peer that does not read.
            self._abort = self.shared.scheduler.callLater(LINGER, transport.abortConnection)

    # --- one method for each type -----------------------------------------------

    def _on_hello(self, frame: Frame) -> None:
        hello = Hello.from_meta(frame.split()[0])
        if self.hello is not None:
            raise ProtocolError("HELLO was said before on this connection")
        if hello.versions is not None and VERSION not in hello.versions:
            raise UnsupportedVersion(
                f"versions {hello.versions} are not spoken here; use {VERSION}", versions=[VERSION]
            )
        if hello.mechanism != "anonymous":
            raise RequestError(f"mechanism {hello.mechanism!r} is not offered; use anonymous")
        broker = self.shared.broker
        self.hello = hello
        self._decoder.limit = broker.limits.body
        self.reply(
            frame.type,
            frame.message_id,
            HelloReply(
                broker_id=broker.id,
                name=broker.config.broker.name,
                software=SOFTWARE,
                cluster=broker.meta.registry.cluster,
                session=hello.session or os.urandom(16),
                heartbeat=hello.heartbeat,
                limits=asdict(broker.limits),
            ),
        )

    def _on_ping(self, frame: Frame) -> None:
        self.reply(frame.type, frame.message_id, Ping())

    def _on_goodbye(self, frame: Frame) -> None:
        Goodbye.from_meta(frame.split()[0])
        self._close()

    def _on_produce(self, frame: Frame) -> None:
        meta, batch = frame.split()
        request = Produce.from_meta(meta)
        size = len(batch)
        self._pending += size
        if request.acks == ACKS_NONE:
            self._open.discard(frame.message_id)
        # The level "all" is the same as "leader" while there is one copy.
        answer = partial(self._produced, frame.message_id if request.acks else 0, size)
        self.shared.broker.produce(request.topic_id, request.partition, batch, answer)
        if self._pending >= MOST_PENDING:
            self._flow()

    def _produced(self, message_id: int, size: int, result: Appended | WireError) -> None:
        was_full = self._pending >= MOST_PENDING
        self._pending -= size
        if isinstance(result, WireError):
            self._refuse(message_id, result)
        elif message_id:
            self.reply(
                MessageType.PRODUCE,
                message_id,
                ProduceReply(
                    base_offset=result.base_offset,
                    timestamp=result.timestamp,
                    duplicate=result.duplicate,
                    volatile=result.volatile,
                ),
            )
        if was_full:
            self._flow()

    def _on_fetch(self, frame: Frame) -> None:
        request = Fetch.from_meta(frame.split()[0])
        if not frame.message_id:
            return
        if len(self._readers) + len(self._parked) >= MOST_FETCHES:
            raise Overloaded(f"at most {MOST_FETCHES} FETCH requests wait on one connection")
        if self.paused_since is not None:
            self._parked.append(partial(self._fetch, frame.message_id, request))
        else:
            self._fetch(frame.message_id, request)

    def _fetch(self, message_id: int, request: Fetch) -> None:
        reader: Reader | None = None

        def answer(reply: FetchReply, payload: list[Bytes]) -> None:
            if reader is not None:
                self._readers.discard(reader)
            self.reply(MessageType.FETCH, message_id, reply, payload)

        def full() -> bool:
            """Keep the request, not its data, while the peer does not read."""
            if self.paused_since is None:
                return False
            if reader is not None:
                self._readers.discard(reader)
            self._parked.append(partial(self._fetch, message_id, request))
            return True

        reader = self.shared.broker.fetch(request, answer, full)
        if not reader.finished:
            self._readers.add(reader)

    def _on_offsets(self, frame: Frame) -> None:
        request = Offsets.from_meta(frame.split()[0])
        if not frame.message_id:
            return
        if self._searches >= MOST_SEARCHES:
            raise Overloaded(f"at most {MOST_SEARCHES} OFFSETS requests wait on one connection")

        def found(reply: OffsetsReply) -> None:
            self._searches -= 1
            self.reply(frame.type, frame.message_id, reply)

        self._searches += 1
        self.shared.searches.add(request, lambda: not self._closing, found)

    def _on_init_producer(self, frame: Frame) -> None:
        InitProducer.from_meta(frame.split()[0])
        self.shared.broker.init_producer(partial(self._settle, frame.type, frame.message_id))

    def _on_metadata(self, frame: Frame) -> None:
        request = Metadata.from_meta(frame.split()[0])
        self.shared.broker.metadata(request, partial(self.reply, frame.type, frame.message_id))

    def _on_operate(self, frame: Frame) -> None:
        request = Operate.from_meta(frame.split()[0])
        Deferred.fromCoroutine(self._operate(frame, request))

    async def _operate(self, frame: Frame, request: Operate) -> None:
        """Carry out an operation, which may have to wait for other brokers."""
        operator, arguments = self.shared.operations, request.arguments or {}
        try:
            result = pack(await operator.run(request.name, arguments, self.caller))
        except Exception as error:  # noqa: BLE001 - told to the peer
            self._failed(frame, error)
            return
        self._open.discard(frame.message_id)
        if frame.message_id and not self._closing:
            self._write(encode_frame(frame.type | REPLY, frame.message_id, None, [result]))

    _HANDLERS: ClassVar[dict[int, Callable[[BrokerProtocol, Frame], None]]] = {
        MessageType.HELLO: _on_hello,
        MessageType.PING: _on_ping,
        MessageType.GOODBYE: _on_goodbye,
        MessageType.PRODUCE: _on_produce,
        MessageType.FETCH: _on_fetch,
        MessageType.OFFSETS: _on_offsets,
        MessageType.INIT_PRODUCER: _on_init_producer,
        MessageType.METADATA: _on_metadata,
        MessageType.OPERATE: _on_operate,
    }

    # --- signs of life, and the end ---------------------------------------------

    def check(self, now: float) -> None:
        """
        Close the connection if the peer is silent for too long, else say something.

        Args:
            now: The scheduler's time.
        """
        limits = self.shared.broker.limits
        if self.hello is None:
            if now - self.connected_at > limits.hello_seconds:
                self._refuse(0, HelloRequired(f"no HELLO within {limits.hello_seconds} s"))
            return
        beat = self.hello.heartbeat
        if now - self.seen_at > MISSED_HEARTBEATS * beat and self._reading:
            self._log.info("{peer} was silent for too long; closed", peer=self.peer)
            self._close()
        elif self._reading and self._begun_at is not None and now - self._begun_at > FRAME_SECONDS:
            self._refuse(0, ProtocolError(f"a frame was not complete within {FRAME_SECONDS} s"))
        elif now - self.told_at >= beat and self._takes_more:
            self._write(encode_frame(MessageType.PING, 0))

    def say_goodbye(self, reason: str) -> None:
        """
        Tell the peer why the connection ends, and end it once that was sent.

        Args:
            reason: A sentence for people.
        """
        if self._closing:
            return
        for reader in tuple(self._readers):
            reader.cancel()
        self._readers.clear()
        for message_id in tuple(self._open):
            self._refuse(message_id, ShuttingDown(reason))
        self._write(encode_frame(MessageType.GOODBYE, 0, Goodbye(reason=reason).to_meta()))
        self._close()

    @property
    def busy(self) -> bool:
        """Whether batches of this connection wait for the disk."""
        return self._pending > 0

    @property
    def unsent(self) -> int:
        """FETCH requests that wait because the peer does not read."""
        return len(self._parked)


class BrokerFactory(Factory):
    """
    What all connections of a broker share.

    Args:
        broker: The domain.
        operations: The administrative operations.
    """

    noisy = False
    _log = Logger()

    def __init__(self, broker: Broker, operations: Operator) -> None:
        self.broker = broker
        self.operations = operations
        self.scheduler = broker.scheduler
        self.searches = Searches(broker)
        #: In the order in which they came, so that runs on a fake clock are alike.
        self.connections: dict[BrokerProtocol, None] = {}
        self.refusing: str | None = None
        self._full = False
        self._sweep: Any = None

    @override
    def buildProtocol(self, addr: IAddress | None) -> BrokerProtocol | None:
        if self.refusing is not None:
            return None
        most = self.broker.config.network.connections
        if len(self.connections) >= most:
            if not self._full:
                self._log.warn("{most} clients are connected; more are turned away", most=most)
            self._full = True
            return None
        self._full = False
        host = getattr(addr, "host", None)
        peer = f"{host}:{getattr(addr, 'port', '')}" if host else str(addr)
        return BrokerProtocol(self, peer)

    def joined(self, connection: BrokerProtocol) -> None:
        """A connection was made."""
        self.connections[connection] = None
        if self._sweep is None:
            self._sweep = self.scheduler.callLater(1, self._check)

    def left(self, connection: BrokerProtocol) -> None:
        """A connection ended."""
        self.connections.pop(connection, None)

    def _check(self) -> None:
        self._sweep = None
        now = self.scheduler.seconds()
        for connection in tuple(self.connections):
            connection.check(now)
        if self.connections:
            self._sweep = self.scheduler.callLater(1, self._check)

    def refuse(self, reason: str) -> None:
        """
        Take no new connections.

        Args:
            reason: Why, for those who are here already.
        """
        self.refusing = reason

    def close_all(self, reason: str) -> None:
        """
        End every connection in order.

        Args:
            reason: What the peers are told.
        """
        if self._sweep is not None and self._sweep.active():
            self._sweep.cancel()
        self._sweep = None
        for connection in tuple(self.connections):
            connection.say_goodbye(reason)
