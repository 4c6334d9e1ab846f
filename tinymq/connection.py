"""
One client's connection to a broker: framing, back-pressure, signs of life, the end.

What the requests do stands in protocol.py; here are the bytes around them. A
connection never waits, so nothing here is a coroutine.

Bounds of one connection, so that no peer can make this process grow:

- *in*: a frame's header is checked before its body is kept; at most
  `FRAMES_PER_TURN` frames are handled in one turn of the reactor, and for no
  longer than `TURN_SECONDS`; reading stops while `MOST_PENDING` bytes of batches
  wait for the disk;
- *out*: reading stops while the transport has more than it can send, and FETCH
  requests that are already here are kept as requests, not as data.

::

    open --kicked, taken over, broker stops--> parting --batches answered, or time is up--> closing
      |                                                                                        ^
      +---------------- silent, fatal error, GOODBYE of the client ---------------------------+

A parting connection handles no frame any more, but its batches that wait for the
disk are still acknowledged: to refuse them would say that they are not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final
from typing import Protocol as Shape

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tinymq.broker.broker import Broker
from tinymq.broker.ports import Scheduler, Timer
from tinymq.broker.reading import Reader
from tinymq.caller import Caller
from tinymq.errors import (
    BadMagic,
    HelloRequired,
    InternalError,
    MessageIdInUse,
    ProtocolError,
    RequestError,
    ShuttingDown,
    TinyMQError,
    UnknownType,
    WireError,
)
from tinymq.stats import CLUSTER_CLIENTS, ClientSnapshot
from tinymq.traffic import Traffic
from tinymq.transports import MOST_SENT, send, unsent
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, VERSION, MessageType
from tinymq.wire.messages import Goodbye, Hello, Message, error_meta

#: Frames handled for one connection before others have their turn.
FRAMES_PER_TURN: Final = 500
#: Seconds for which one connection's frames are handled before others have their turn.
TURN_SECONDS: Final = 0.02
#: Bytes of one connection's batches that may wait for the disk.
MOST_PENDING: Final = 16 * 1024 * 1024
#: Bytes taken from the socket in one go.
READ_SIZE: Final = 256 * 1024
#: Bytes given to the socket in one go: the answer to a FETCH of the usual size. In smaller
#: pieces it would take several turns, and its reader would wake up for each of them.
SEND_SIZE: Final = 1024 * 1024
#: Silent heartbeats after which a peer is taken for dead.
MISSED_HEARTBEATS: Final = 3
#: Seconds that one frame may take to arrive. Bytes are signs of life, but a peer
#: must not hold megabytes here with one of them now and then.
FRAME_SECONDS: Final = 60
#: Seconds that the batches of a parting connection have to reach the disk, and
#: then a closed one to take its last bytes.
LINGER: Final = 5
#: Longest reason in GOODBYE, in bytes.
REASON_BYTES: Final = 1000

SPOKEN: Final = f"tinymq/{VERSION}"


class Shared(Shape):
    """What a connection needs of all connections' common part."""

    broker: Broker
    scheduler: Scheduler
    moved: set[Connection]

    def joined(self, connection: Connection) -> None:
        """A connection was made."""

    def left(self, connection: Connection) -> None:
        """A connection ended."""


def _stranger(data: bytes) -> str:
    """Say what came instead of frames; `tinymq` itself asks so who is there, after a silence."""
    if data.startswith((b"GET ", b"POST ", b"HEAD ")):
        return "asked for a web page, which is not to be had at this port"
    return "does not speak tinymq"


@implementer(IPushProducer)
class Connection(Protocol):
    """
    One client's connection.

    Args:
        shared: What all connections share.
        number: Unique among the connections of this broker since it started.
        caller: Who is there, for operations; it ends with the connection.
    """

    #: Who handles a frame, by its type.
    HANDLERS: ClassVar[Mapping[int, Callable[[Any, Frame], None]]] = {}

    _log = Logger()

    def __init__(self, shared: Shared, number: int, caller: Caller) -> None:
        self.shared = shared
        self.number = number
        self.caller = caller
        self.peer = caller.peer
        self.hello: Hello | None = None
        self.session = b""
        #: The interval in force.
        self.heartbeat = 0
        now = shared.scheduler.seconds()
        self.traffic = Traffic(now)
        self.connected_at = now
        self.seen_at = now
        self.told_at = now
        self.paused_since: float | None = None
        self._begun_at: float | None = None
        #: Since when silence is the peer's: what it says while nothing is read is not heard.
        self._heeded_at = now
        self._decoder = FrameDecoder(shared.broker.limits.hello)
        #: Ids of requests without an answer, in order, and their types.
        self._open: dict[int, int] = {}
        self._readers: set[Reader] = set()
        self._parked: deque[Callable[[], None]] = deque()
        self._pending = 0
        #: What was said in this turn and is sent at its end.
        self._said: list[Bytes] = []
        self._said_bytes = 0
        #: Whether that does not wait for what others are to be given in this turn.
        self._prompt = False
        self._reading = True
        self._more_frames = False
        #: Whether frames are still handled: it is open.
        self._listening = True
        #: Why it is parting, until it was told.
        self._reason: str | None = None
        self._closing = False
        self._abort: Timer | None = None

    # --- the transport's side -------------------------------------------------

    @override
    def connectionMade(self) -> None:
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(True)
        transport.bufferSize = min(READ_SIZE, self.shared.broker.limits.outgoing)
        transport.SEND_LIMIT = SEND_SIZE
        transport.registerProducer(self, True)
        self.shared.joined(self)

    @override
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._listening, self._closing = False, True
        self._stop_timer()
        self._cancel_reads()
        self._open.clear()
        self._said.clear()
        self.shared.left(self)
        self.caller.gone()

    def _cancel_reads(self) -> None:
        readers, self._readers = self._readers, set()
        for reader in readers:
            reader.cancel()
        self._parked.clear()

    def _stop_timer(self) -> None:
        if self._abort is not None and self._abort.active():
            self._abort.cancel()

    @override
    def dataReceived(self, data: bytes) -> None:
        # A parting connection's bytes are read and dropped: left unread, they
        # would make the system reset the connection and take its last answers along.
        if self._listening:
            self.seen_at = self.shared.scheduler.seconds()
            self.traffic.bytes_in += len(data)
            self.shared.moved.add(self)
            self._handle(data)

    def _handle(self, data: bytes) -> None:
        broker = self.shared.broker
        self._prompt = broker.channels.turning  # what others began is no reason to wait
        broker.outgoing.hold()
        broker.committer.hold()
        try:
            self._take(data)
        finally:
            broker.committer.write_staged()
            if self._prompt:
                self.send()
            broker.said()

    def _take(self, data: bytes) -> None:
        try:
            seconds = self.shared.scheduler.seconds
            until = seconds() + TURN_SECONDS
            complete = False
            for handled, frame in enumerate(self._decoder.feed(data), 1):
                complete = True
                self._frame(frame)
                if not self._listening:
                    break
                if handled >= FRAMES_PER_TURN or seconds() > until or not self._takes_more:
                    # The rest stays bytes: what it asks for might be a thousand times as long.
                    self._later()
                    break
            self._note_unfinished(complete=complete)
        except BadMagic:
            self._log.info("{peer} {sent}; closed", peer=self.peer, sent=_stranger(data))
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
        return self.paused_since is None and self._listening

    def _flow(self) -> None:
        """Read from the socket if, and only if, there is room for what comes."""
        want = self._takes_more and self._pending < MOST_PENDING and not self._more_frames
        if want == self._reading or not self._listening:
            return
        self._reading = want
        transport: Any = self.transport
        if want:
            # What it said meanwhile lies unread; that is not its silence, nor its slowness.
            self._heeded_at = self.shared.scheduler.seconds()
            if self._begun_at is not None:
                self._begun_at = self._heeded_at
            transport.resumeProducing()
        else:
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

    def _handler_of(self, frame: Frame) -> Callable[[Any, Frame], None]:
        """Find who handles a frame, and open its message id."""
        if self.hello is None and frame.type != MessageType.HELLO:
            raise HelloRequired("the first frame of a connection must be HELLO")
        if frame.message_id in self._open:
            raise MessageIdInUse(f"message id {frame.message_id} is still open; take another one")
        handler = self.HANDLERS.get(frame.type)
        if handler is None:
            raise UnknownType(
                f"message type 0x{frame.type:02x} is not known here; "
                "the broker may be older than its client"
            )
        if frame.message_id:
            self._open[frame.message_id] = frame.type
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
        # One that is not open was refused meanwhile, or never wanted an answer.
        if self._open.pop(message_id, None) is not None and not self._closing:
            # Who publishes waits for those who are given it, as they may be in this turn.
            self._prompt = self._prompt or frame_type != MessageType.PRODUCE
            self._write(encode_frame(frame_type | REPLY, message_id, reply.to_meta(), payload))

    def _refuse(self, message_id: int, error: WireError) -> None:
        if self._closing or not (self._listening or message_id in self._open):
            return  # its end refused what was open
        self._open.pop(message_id, None)
        self._prompt = True
        if message_id or error.fatal:
            self._write(encode_frame(MessageType.ERROR, message_id, error_meta(error)))
        if error.fatal:
            self._log.info("{peer} closed: {error}", peer=self.peer, error=error.text)
            self._close()

    def _write(self, pieces: list[Bytes]) -> None:
        self.told_at = self.shared.scheduler.seconds()
        data = b"".join(pieces) if len(pieces) > 1 else pieces[0]
        self.traffic.bytes_out += len(data)
        self.shared.moved.add(self)
        outgoing = self.shared.broker.outgoing
        if not outgoing.held:
            transport: Any = self.transport
            transport.write(data)
            return
        self._said.append(data)
        self._said_bytes += len(data)
        if self._said_bytes > MOST_SENT:
            self.send()  # the transport tells when that is more than the peer takes
        else:
            outgoing.add(self)

    def send(self) -> None:
        """Send what was said in this turn."""
        if self._said:
            said, self._said, self._said_bytes = self._said, [], 0
            send(self.transport, said)

    def _close(self) -> None:
        if not self._closing:
            self._listening, self._closing = False, True
            self._stop_timer()
            self.send()
            transport: Any = self.transport
            transport.unregisterProducer()
            transport.loseConnection()
            # What is still unsent may never go out to a peer that does not read.
            self._abort = self.shared.scheduler.callLater(LINGER, transport.abortConnection)

    # --- signs of life, and the end ---------------------------------------------

    def check(self, now: float) -> None:
        """
        Close the connection if the peer is silent for too long, else say something.

        Args:
            now: The scheduler's time.
        """
        if not self._listening:
            return
        limits = self.shared.broker.limits
        if self.hello is None:
            if now - self.connected_at > limits.hello_seconds:
                self._refuse(0, HelloRequired(f"no HELLO within {limits.hello_seconds} s"))
            return
        beat = self.heartbeat
        silent = now - max(self.seen_at, self._heeded_at)
        if silent > MISSED_HEARTBEATS * beat and self._reading:
            self._log.info("{peer} was silent for too long; closed", peer=self.peer)
            self._close()
        elif self._reading and self._begun_at is not None and now - self._begun_at > FRAME_SECONDS:
            self._refuse(0, ProtocolError(f"a frame was not complete within {FRAME_SECONDS} s"))
        elif now - self.told_at >= beat and self._takes_more:
            self._write(encode_frame(MessageType.PING, 0))

    def say_goodbye(self, reason: str, error: type[WireError] = ShuttingDown) -> None:
        """
        Tell the peer why the connection ends, and end it once that was sent.

        What is open is refused, in order, but for batches that wait for the disk:
        they are acknowledged as ever, for `LINGER` seconds; of those behind, the
        peer knows as much as if the connection had broken.

        Args:
            reason: A sentence for people.
            error: What refuses the requests that are open.
        """
        if not self._listening:
            return
        self._listening = False
        self._cancel_reads()
        for message_id, kind in tuple(self._open.items()):
            if kind != MessageType.PRODUCE:
                self._refuse(message_id, error(reason))
        self._reason = reason
        if self._pending:
            if not self._reading:
                transport: Any = self.transport
                transport.resumeProducing()
            self._abort = self.shared.scheduler.callLater(LINGER, self._part)
        else:
            self._part()

    def _part(self) -> None:
        """Say GOODBYE and close, if that was not done before."""
        reason, self._reason = self._reason, None
        if reason is not None and not self._closing:
            text = reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")
            self._write(encode_frame(MessageType.GOODBYE, 0, Goodbye(reason=text).to_meta()))
            self._close()

    # --- what is known of it ------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether batches of this connection wait for the disk."""
        return self._pending > 0

    @property
    def live(self) -> bool:
        """Whether it is neither closed nor about to be."""
        return self._listening

    @property
    def own(self) -> bool:
        """Whether it is a process of the cluster itself, as it says."""
        return self.hello is not None and self.hello.client_id in CLUSTER_CLIENTS

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.hello.client_id if self.hello else ""

    def snapshot(self, origin_ms: int) -> ClientSnapshot:
        """
        Say what is known of the connection.

        Args:
            origin_ms: The wall clock when the scheduler's was 0.
        """
        broker, hello, slow = self.shared.broker, self.hello, self.paused_since
        return ClientSnapshot(
            broker=broker.name,
            broker_id=broker.id,
            id=self.number,
            since_ms=origin_ms + int(self.connected_at * 1000),
            heard_ms=origin_ms + int(self.seen_at * 1000),
            client_id=self.client_id,
            address=self.peer,
            agent=hello.software if hello else "",
            protocol=SPOKEN if hello else "",
            user=self.caller.principal,
            counters=self.traffic.counters,
            rates=self.traffic.rates,
            buffered=unsent(self.transport),
            pending=self._pending,
            waiting=len(self._readers) + len(self._parked),
            slow_since_ms=None if slow is None else origin_ms + int(slow * 1000),
        )
