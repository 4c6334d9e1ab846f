"""A client with Deferreds, a puppet broker, and the fake reactor between them."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IAddress, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tests.client.puppet import ADDRESS, Line, Puppet
from tinymq.client import Client, ClientConfig
from tinymq.client.core.address import Address

T = TypeVar("T")
ADDRESS_SEEN: IAddress = IPv4Address("TCP", *ADDRESS)


class CutTransport(StringTransportWithDisconnection):
    """A transport that can be cut, and that knows what a TCP one knows."""

    nodelay = False
    bufferSize = 65536  # noqa: N815 - Twisted's name

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802 - Twisted's name
        """Note it."""
        self.nodelay = enabled

    @override
    def abortConnection(self) -> None:
        self.loseConnection()

    @override
    def loseConnection(self) -> None:
        if self.connected:
            super().loseConnection()


@implementer(IStreamClientEndpoint)
class StageEndpoint:
    """Connects to the puppet at once, or not at all."""

    def __init__(self, stage: Stage, address: Address) -> None:
        self.stage = stage
        self.address = address

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect, refuse, or leave it open."""
        self.stage.dialed.append(self.address)
        waiting: Deferred[Any] = Deferred()
        if self.stage.hang:
            return waiting
        if not self.stage.up:
            waiting.errback(Refused())
            return waiting
        protocol: Any = factory.buildProtocol(ADDRESS_SEEN)
        self.stage.join(protocol)
        waiting.callback(protocol)
        return waiting


class Stage:
    """
    One client and one puppet on a fake clock.

    Attributes:
        clock: The reactor.
        puppet: The broker.
        client: The client.
        up: Whether the broker can be reached.
    """

    def __init__(self, puppet: Puppet | None = None, **config: Any) -> None:
        self.clock = Clock()
        self.puppet = puppet or Puppet()
        self.up = True
        self.hang = False
        self.dialed: list[Address] = []
        self.joins: list[tuple[Protocol, CutTransport, Line]] = []
        self.client = Client(
            self.clock,
            f"tinymq://{ADDRESS}",
            ClientConfig(**config),
            endpoint_for=lambda address, timeout: StageEndpoint(self, address),
            chance=lambda: 0.5,
            environment={},
        )

    def join(self, protocol: Protocol) -> None:
        """Connect a protocol to the puppet."""
        transport = CutTransport()
        transport.protocol = protocol
        self.joins.append((protocol, transport, Line(self.puppet)))
        protocol.makeConnection(transport)

    def pump(self) -> None:
        """Move bytes and run what is due now, until nothing moves."""
        moved = True
        while moved:
            due = [call for call in self.clock.getDelayedCalls() if call.getTime() <= self._now]
            self.clock.advance(0)
            moved = bool(due)
            for join in tuple(self.joins):
                moved |= self._exchange(*join)

    def advance(self, seconds: float) -> None:
        """Let time pass, call by call."""
        until = self._now + seconds
        self.pump()
        while True:
            calls = [call.getTime() for call in self.clock.getDelayedCalls()]
            due = [time for time in calls if time <= until]
            if not due:
                break
            self.clock.advance(max(0.0, min(due) - self._now))
            self.pump()
        self.clock.advance(max(0.0, until - self._now))

    def cut(self, *, deliver: bool = False) -> None:
        """Lose every connection, before or after what was written arrived."""
        joins, self.joins = self.joins, []
        for _, transport, line in joins:
            if deliver:
                line.feed(transport.value())
            line.close()
            transport.loseConnection()

    def done(self, waiting: Deferred[T]) -> T:
        """Pump, and return the result that a Deferred must have then."""
        results: list[Any] = []
        waiting.addBoth(results.append)
        self.pump()
        assert results, "the Deferred has not fired"
        (result,) = results
        if isinstance(result, Failure):
            result.raiseException()
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Close the client; nothing may be left behind."""
        self.puppet.deaf = set()
        self.puppet.mute = set()
        self.puppet.refuse = lambda request: None
        self.up = True
        closing = self.client.close()
        self.advance(100)
        self.done(closing)
        assert self.clock.getDelayedCalls() == []

    @property
    def _now(self) -> float:
        return self.clock.seconds()

    def _exchange(self, protocol: Protocol, transport: CutTransport, line: Line) -> bool:
        data = transport.value()
        transport.clear()
        line.feed(data)
        back = line.take()
        if back and transport.connected:
            protocol.dataReceived(back)
        if not line.alive or not transport.connected:
            self.joins = [join for join in self.joins if join[1] is not transport]
            line.close()
            transport.loseConnection()
        return bool(data or back)
