"""Links over Twisted: endpoints, one protocol, one timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import cast

from twisted.internet import protocol
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IProtocol,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tinymq.client.core.address import Address
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.link import Link
from tinymq.errors import ConnectionLost, UnreachableError
from tinymq.transports import MOST_SENT, send
from tinymq.wire.frames import Bytes

#: Time for a closed connection to flush what was written, before it is cut.
_FLUSH_S = 2.0

#: Makes the endpoint for one address; the time-out is in seconds.
EndpointFor = Callable[[Address, float], IStreamClientEndpoint]


@implementer(IPushProducer)
class Peer(protocol.Protocol):
    """
    The connection of one link.

    Args:
        link: Where bytes go.
        network: Keeps the clock.
    """

    transport: ITCPTransport

    def __init__(self, link: Link, network: TwistedNetwork) -> None:
        self._link: Link | None = link
        self._network = network
        #: What was written in this turn and is sent at its end.
        self._pieces: list[Bytes] = []
        self._size = 0

    # --- from Twisted ----------------------------------------------------------

    @override
    def connectionMade(self) -> None:
        transport = self.transport
        transport.setTcpNoDelay(True)
        transport.bufferSize = self._network.config.read_bytes  # type: ignore[attr-defined]
        cast(IConsumer, transport).registerProducer(self, True)
        self._network.opened(self)
        if self._link is not None:
            self._link.connected(self, self._network.seconds())
        self._network.arm()

    @override
    def dataReceived(self, data: bytes) -> None:
        if self._link is not None:
            self._network.received(self._link, data)

    @override
    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self._network.gone(self)
        link, self._link = self._link, None
        if link is not None:
            error = ConnectionLost(f"the connection ended: {reason.getErrorMessage()}")
            link.lost(error, self._network.seconds())
        self._network.arm()

    def pauseProducing(self) -> None:  # noqa: N802 - of IPushProducer
        """Twisted's buffer is full."""
        if self._link is not None:
            self._link.pause()

    def resumeProducing(self) -> None:  # noqa: N802 - of IPushProducer
        """Twisted's buffer takes more."""
        if self._link is not None:
            self._link.resume(self._network.seconds())
            self._network.arm()

    def stopProducing(self) -> None:  # noqa: N802 - of IPushProducer
        """The connection is gone; `connectionLost` tells."""

    # --- from the link ---------------------------------------------------------

    def write(self, pieces: Sequence[Bytes]) -> None:
        """
        Send bytes; those of one turn go together.

        Args:
            pieces: The bytes.
        """
        if not self._network.holding:
            self.transport.writeSequence(pieces)  # type: ignore[arg-type]
            return
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size > MOST_SENT:
            self.send()  # the transport tells when that is more than the broker takes
        else:
            self._network.written(self)

    def send(self) -> None:
        """Send what was written in this turn."""
        if self._pieces:
            pieces, self._pieces, self._size = self._pieces, [], 0
            send(self.transport, pieces)

    def close(self) -> None:
        """Close after what was written is flushed, and at the latest soon."""
        self._link = None
        self.send()
        transport = self.transport
        cast(IConsumer, transport).unregisterProducer()
        transport.loseConnection()
        self._network.closing(self)

    def cut(self) -> None:
        """Close at once."""
        self.transport.abortConnection()


class TwistedNetwork:
    """
    Connects links and wakes the cluster.

    Args:
        reactor: The clock, and what endpoints need.
        config: Settings of the client.
        endpoint_for: Makes endpoints, if not for host and port.

    Attributes:
        config: Settings of the client.
        cluster: Whom to wake; set once it exists.
        holding: Whether `send` is about to be called, so that it is worth waiting for.
    """

    _log = Logger()

    def __init__(
        self, reactor: IReactorTime, config: ClientConfig, endpoint_for: EndpointFor | None
    ) -> None:
        self.config = config
        self.cluster: Cluster | None = None
        self.holding = False
        self.seconds = reactor.seconds
        self._reactor = reactor
        self._endpoint_for = endpoint_for or self._hostname
        self._dialing: dict[Link, Deferred[IProtocol]] = {}
        self._peers: set[Peer] = set()
        self._cuts: dict[Peer, IDelayedCall] = {}
        self._timer: IDelayedCall | None = None
        self._timer_at = inf
        self._idle: list[Deferred[None]] = []
        self._drains: dict[Callable[[float], None], None] = {}
        self._turn: IDelayedCall | None = None
        self._receiving = False
        #: Those to whom something was written.
        self._written: dict[Peer, None] = {}

    # --- Network ---------------------------------------------------------------

    def dial(self, link: Link, address: Address, now: float) -> None:
        """
        Connect a link.

        Args:
            link: The link.
            address: Where to.
            now: The time.
        """
        endpoint = self._endpoint_for(address, self.config.connect_timeout_s)
        dialing = endpoint.connect(_Peers(link, self))
        self._dialing[link] = dialing

        def connected(peer: IProtocol) -> None:
            self._dialing.pop(link, None)

        def failed(failure: Failure) -> None:
            if self._dialing.pop(link, None) is None:
                return
            if not isinstance(failure.value, CancelledError):
                text = f"{address}: {failure.getErrorMessage()}"
                self._log.debug(
                    "Cannot connect to {address}: {reason}", address=address, reason=text
                )
                error = UnreachableError(text)
                error.__cause__ = failure.value
                link.failed(error, self.seconds())
                self.arm()

        dialing.addCallbacks(connected, failed)
        dialing.addErrback(lambda failure: self._log.failure("A link failed", failure=failure))

    def hang_up(self, link: Link) -> None:
        """
        Stop connecting a link.

        Args:
            link: The link.
        """
        dialing = self._dialing.pop(link, None)
        if dialing is not None:
            dialing.cancel()

    def report(self, what: str, error: Exception) -> None:
        """
        Log an error of the caller's own code.

        Args:
            what: What failed.
            error: How.
        """
        self._log.failure("{what}", Failure(error), what=what)  # type: ignore[no-untyped-call]

    def say(self, text: str) -> None:
        """
        Log a line for people.

        Args:
            text: The line.
        """
        self._log.warn("{text}", text=text)

    # --- turns and time --------------------------------------------------------

    def received(self, link: Link, data: bytes) -> None:
        """
        Take bytes; what they stir is done at once, and not in a turn of its own.

        Args:
            link: Whose.
            data: The bytes.
        """
        self._receiving = self.holding = True
        try:
            link.received(data, self.seconds())
        finally:
            self._receiving = False
            self._drain()
            self.send()
        self.arm()

    def stir(self, drain: Callable[[float], None]) -> None:
        """
        Call something at the end of this turn of the reactor, once.

        Args:
            drain: Called with the time.
        """
        self._drains[drain] = None
        if self._turn is None and not self._receiving:
            self._turn = self._reactor.callLater(0, self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None
        self.hold()
        self._drain()
        self.send()
        self.arm()

    def written(self, peer: Peer) -> None:
        """
        Note that something was written.

        Args:
            peer: To whom.
        """
        self._written[peer] = None

    def hold(self) -> None:
        """Wait with what is written for `send`, which is called when this turn ends."""
        self.holding = True

    def send(self) -> None:
        """Send what was written in this turn."""
        self.holding = False
        if self._written:
            peers, self._written = self._written, {}
            for peer in peers:
                peer.send()

    def _drain(self) -> None:
        drains, self._drains = self._drains, {}
        for drain in drains:
            drain(self.seconds())

    def arm(self) -> None:
        """Make sure that the cluster is woken when it wants to be."""
        at = inf if self.cluster is None else self.cluster.wake_at
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at < inf:
                return  # wakes too early at worst, and is set anew then
            if at == inf and self.cluster is not None and not self.cluster.closed:
                return
            timer.cancel()
            self._timer = None
        if at < inf:
            self._timer_at = at
            self._timer = self._reactor.callLater(max(0.0, at - self.seconds()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.cluster is not None:
            self.cluster.tick(self.seconds())
        self.arm()

    def later(self, call: Callable[[], None]) -> None:
        """
        Call at the end of this turn of the reactor.

        Args:
            call: What to call.
        """
        self._reactor.callLater(0, call)

    def pause(self, seconds: float) -> Deferred[None]:
        """
        Wait.

        Args:
            seconds: How long.
        """
        timer: list[IDelayedCall] = []
        waiting: Deferred[None] = Deferred(lambda _: timer[0].cancel())
        timer.append(self._reactor.callLater(seconds, waiting.callback, None))
        return waiting

    # --- connections -----------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        """
        Note a connection.

        Args:
            peer: The connection.
        """
        self._peers.add(peer)

    def closing(self, peer: Peer) -> None:
        """
        Cut a connection if it does not close by itself.

        Args:
            peer: The connection.
        """
        if peer in self._peers and peer not in self._cuts:
            self._cuts[peer] = self._reactor.callLater(_FLUSH_S, self._cut, peer)

    def gone(self, peer: Peer) -> None:
        """
        Forget a connection.

        Args:
            peer: The connection.
        """
        self._peers.discard(peer)
        call = self._cuts.pop(peer, None)
        if call is not None:
            call.cancel()
        if not self._peers:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def when_idle(self) -> Deferred[None]:
        """Fire when no connection is open any more."""
        if not self._peers:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._idle.append(waiting)
        return waiting

    def _cut(self, peer: Peer) -> None:
        self._cuts.pop(peer, None)
        peer.cut()

    def _hostname(self, address: Address, timeout: float) -> IStreamClientEndpoint:
        return HostnameEndpoint(self._reactor, address.host, address.port, timeout=timeout)


class _Peers(Factory):
    """Makes the one protocol of one attempt to connect."""

    noisy = False

    def __init__(self, link: Link, network: TwistedNetwork) -> None:
        self._link = link
        self._network = network

    @override
    def buildProtocol(self, addr: IAddress | None) -> Peer:
        return Peer(self._link, self._network)
