"""A connection between a client and the broker of the same process: no socket, no port."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from tinymq.broker.ports import Scheduler

#: Most bytes handed over at once.
_CHUNK: Final = 64 * 1024
_HERE: Final = IPv4Address("TCP", "127.0.0.1", 0)


class End:
    """
    One end of the connection; the transport of a protocol.

    What is written arrives in a later turn of the reactor, as with sockets: no protocol
    is called from within itself.

    Args:
        later: Calls something in a later turn.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self.bufferSize = _CHUNK
        self.connected = True
        self.disconnecting = False
        self.protocol: Any = None
        self.other: End = self
        self._later = later
        self._outbox: list[bytes] = []
        self._size = 0
        self._reading = True
        self._moving = False
        self._producer: Any = None
        self._paused = False

    # --- of a transport ---------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self.connected and not self.disconnecting:
            self._outbox.append(bytes(data))
            self._size += len(data)
            if self._producer is not None and not self._paused and self._size > self.bufferSize:
                self._paused = True
                self._producer.pauseProducing()
            self._stir()

    def writeSequence(self, data: Iterable[bytes]) -> None:  # noqa: N802 - Twisted's name
        """Send pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:  # noqa: N802 - Twisted's name
        """Close, once everything was sent."""
        self.disconnecting = True
        self._stir()

    def abortConnection(self) -> None:  # noqa: N802 - Twisted's name
        """Close at once."""
        self._outbox.clear()
        self._size = 0
        self._later(lambda: self._end(ConnectionLost()))

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        """Pause this producer when much waits."""
        self._producer, self._paused = producer, False

    def unregisterProducer(self) -> None:  # noqa: N802 - Twisted's name
        """Pause nobody."""
        self._producer = None

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Read nothing more for now."""
        self._reading = False

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Read again."""
        self._reading = True
        self.other._stir()  # noqa: SLF001 - the other end

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Close."""
        self.loseConnection()

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: there is no TCP."""

    def getPeer(self) -> IPv4Address:  # noqa: N802 - Twisted's name
        """Return where the other end is: here."""
        return _HERE

    def getHost(self) -> IPv4Address:  # noqa: N802 - Twisted's name
        """Return where this end is."""
        return _HERE

    # --- inside -----------------------------------------------------------------

    def _stir(self) -> None:
        if not self._moving and self.connected:
            self._moving = True
            self._later(self._move)

    def _move(self) -> None:
        self._moving = False
        if not self.connected:
            return
        if self._outbox and self.other._reading:  # noqa: SLF001 - the other end
            data, self._outbox, self._size = b"".join(self._outbox), [], 0
            self.other.protocol.dataReceived(data)
        if self._paused and not self._outbox and self._producer is not None:
            self._paused = False
            self._producer.resumeProducing()
        if self.disconnecting and not self._outbox:
            self._end(ConnectionDone())

    def _end(self, reason: Exception) -> None:
        for end in (self.other, self):
            if end.connected:
                end.connected = False
                end._producer = None  # noqa: SLF001 - the other end
                end.protocol.connectionLost(Failure(reason))


@implementer(IStreamClientEndpoint)
class InsideEndpoint:
    """
    Connects to the broker of this process.

    Args:
        scheduler: The reactor.
        factory: Makes the broker's side of a connection.
    """

    def __init__(self, scheduler: Scheduler, factory: Any) -> None:
        self._scheduler = scheduler
        self._factory = factory

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect at once, or not at all."""

        def later(call: Callable[[], None]) -> object:
            return self._scheduler.callLater(0, call)

        broker = self._factory.buildProtocol(_HERE)
        if broker is None:
            return fail(Refused())
        client: Any = factory.buildProtocol(_HERE)
        ours, theirs = End(later), End(later)
        ours.other, theirs.other = theirs, ours
        ours.protocol, theirs.protocol = client, broker
        broker.makeConnection(theirs)
        client.makeConnection(ours)
        return succeed(client)
