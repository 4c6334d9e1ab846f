"""
Names are resolved here, and only addresses that may be are connected to.

A check of the name alone would be worth nothing: who owns the name can have it lead to a
public address while it is looked at, and to this network a moment later. So each
connection resolves its name anew, looks at every address, and goes to one of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import (
    IHostnameResolver,
    IHostResolution,
    IProtocol,
    IProtocolFactory,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.internet.ssl import optionsForClientTLS
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.web.iweb import IAgentEndpointFactory
from typing_extensions import override
from zope.interface import implementer

from tinymq.errors import EndpointRefused
from tinymq.outbound import Allowed, IPAddress, Target, as_address

_log = Logger()

#: Finds the addresses of a name; none if it has none.
Resolve = Callable[[str], Deferred[list[str]]]
#: Makes what checks the certificate of a server by its name.
TlsFor = Callable[[str], Any]

#: Seconds for a name, and for one attempt to connect.
RESOLVE_S: Final = 5.0
CONNECT_S: Final = 5.0
#: Seconds for a goodbye.
GOODBYE_S: Final = 1.0
#: Addresses of one name that are tried.
_MOST_TRIED: Final = 3
#: Addresses of one name that are looked at; one that has more is none.
_MOST_ADDRESSES: Final = 64
#: Bytes of an answer with its head, after which the connection is cut.
MOST_ANSWER: Final = 64 * 1024


class NoAddress(Exception):
    """A name has no address just now."""


@implementer(IResolutionReceiver)
class _Received:
    """Collects the addresses of a name."""

    def __init__(self) -> None:
        self.done: Deferred[list[str]] = Deferred()
        self._found: list[str] = []

    def resolutionBegan(self, resolution: IHostResolution) -> None:  # noqa: N802
        """Do nothing."""

    def addressResolved(self, address: Any) -> None:  # noqa: N802
        """Take an address."""
        if len(self._found) <= _MOST_ADDRESSES:
            self._found.append(address.host)

    def resolutionComplete(self) -> None:  # noqa: N802
        """Tell what was found."""
        if not self.done.called:
            self.done.callback(self._found)


def resolver_of(reactor: Any) -> Resolve:
    """
    Resolve names as a reactor does.

    Args:
        reactor: The reactor.
    """

    def resolve(host: str) -> Deferred[list[str]]:
        received = _Received()
        names: IHostnameResolver = reactor.nameResolver
        names.resolveHostName(received, host)
        return received.done

    return resolve


class Guard:
    """
    Says which addresses a URL leads to, and refuses those that may not be.

    Args:
        reactor: Time and connecting.
        allowed: What the broker's owner allows.
        resolve: Finds the addresses of a name.
        tls: Checks certificates.
    """

    def __init__(
        self,
        reactor: Any,
        allowed: Allowed,
        resolve: Resolve | None = None,
        tls: TlsFor = optionsForClientTLS,
    ) -> None:
        self.reactor = reactor
        self._allowed = allowed
        self._resolve = resolve or resolver_of(reactor)
        self.tls = tls

    async def check(self, target: Target) -> None:
        """
        Look at a URL that somebody sets; a name that has no address just now passes.

        Args:
            target: The URL.

        Raises:
            EndpointRefused: It leads where nothing may be sent.
        """
        try:
            await self.addresses(target.host)
        except NoAddress:
            return

    async def addresses(self, host: str) -> list[IPAddress]:
        """
        Find the addresses of a name.

        Args:
            host: The name, or an address.

        Raises:
            EndpointRefused: One of them may not be.
            NoAddress: There is none.
        """
        host = host.lower().removesuffix(".")
        literal = as_address(host)
        found = [literal] if literal is not None else await self._look_up(host)
        for address in found:
            why = self._allowed.why_refused(host, address)
            if why is not None:
                where = host if literal is not None else f"{host} ({address})"
                raise EndpointRefused(
                    f"nothing is sent to {where}: the address is {why}; the setting push.allow of "
                    "the broker can allow it",
                    host=host,
                    address=str(address),
                )
        return found

    async def _look_up(self, host: str) -> list[IPAddress]:
        try:
            texts = await self._resolve(host).addTimeout(RESOLVE_S, self.reactor)
        except (DeferredTimeout, OSError) as error:
            raise NoAddress(f"the name {host} is not found: no answer in time") from error
        found = [as_address(text) for text in texts]
        addresses = [each for each in found if each is not None]
        if not addresses or len(addresses) != len(texts):
            raise NoAddress(f"the name {host} has no address")
        if len(addresses) > _MOST_ADDRESSES:
            raise EndpointRefused(f"the name {host} has too many addresses", host=host)
        return addresses


class Meter(ProtocolWrapper):
    """Cuts a connection whose other end sends more than anybody wants to read."""

    factory: _Metered
    _read = 0
    _cut: Any = None

    @override
    def dataReceived(self, data: bytes) -> None:
        self._read += len(data)
        if self.disconnecting:
            return
        if self._read > MOST_ANSWER:
            self.abortConnection()
        elif self.wrappedProtocol is not None:
            try:
                self.wrappedProtocol.dataReceived(data)
            except Exception as error:  # noqa: BLE001 - of Twisted, at what no server should say
                _log.debug("what an endpoint said is no HTTP: {error}", error=error)
                self.abortConnection()

    @override
    def write(self, data: bytes) -> None:
        self._read = 0  # another request
        super().write(data)

    @override
    def writeSequence(self, data: Sequence[bytes]) -> None:
        self._read = 0
        super().writeSequence(data)

    @override
    def loseConnection(self) -> None:
        """Say goodbye, and close soon in any case: a peer could take its time."""
        if not self.disconnecting:
            self._cut = self.factory.reactor.callLater(GOODBYE_S, self.abortConnection)
            super().loseConnection()

    @override
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._cut is not None and self._cut.active():
            self._cut.cancel()
        super().connectionLost(reason)

    def abortConnection(self) -> None:  # noqa: N802 - Twisted's name
        """Close at once."""
        self.disconnecting = 1
        transport: Any = self.transport
        transport.abortConnection()


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """
    Connects to one server.

    Args:
        guard: Knows the addresses.
        place: Scheme, host and port.
        dialed: Called when a connection is made.
    """

    def __init__(
        self, guard: Guard, place: tuple[str, str, int], dialed: Callable[[], None]
    ) -> None:
        self._guard = guard
        self._scheme, self._host, self._port = place
        self._dialed = dialed

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Resolve, look, and connect to one of the addresses that were looked at."""
        self._dialed()
        pool: Any = factory
        pool.noisy = False  # or there would be two lines in the log for each connection
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        addresses = await self._guard.addresses(self._host)
        trouble: ConnectError | None = None
        for address in _tried(addresses):
            kind = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
            endpoint = kind(self._guard.reactor, str(address), self._port, CONNECT_S)
            try:
                found: Any = await endpoint.connect(self._around(factory))
            except ConnectError as error:
                trouble = error
                continue
            # The pool talks to what it made, not to what is around it.
            while isinstance(found, ProtocolWrapper):
                found = found.wrappedProtocol
            return found  # type: ignore[no-any-return]
        assert trouble is not None
        raise trouble

    def _around(self, factory: IProtocolFactory) -> IProtocolFactory:
        """Put a meter around what the pool makes, and TLS around that."""
        metered = _Metered(factory, self._guard.reactor)
        if self._scheme == "http":
            return metered
        tls = self._guard.tls(self._host)
        return TLSMemoryBIOFactory(tls, True, metered, self._guard.reactor)


def _tried(addresses: Sequence[IPAddress]) -> list[IPAddress]:
    """Pick a few addresses, of both kinds if there are: one kind may lead nowhere from here."""
    first, *others = addresses
    other = [each for each in others if each.version != first.version]
    same = [each for each in others if each.version == first.version]
    return [first, *other[:1], *same, *other[1:]][:_MOST_TRIED]


class _Metered(WrappingFactory[Meter]):
    """Puts a meter around a protocol."""

    noisy = False
    protocol = Meter

    def __init__(self, factory: Any, reactor: Any) -> None:
        super().__init__(factory)
        self.reactor = reactor


@implementer(IAgentEndpointFactory)
class Dialing:
    """
    Makes the endpoint of one request.

    Args:
        guard: Knows the addresses.

    Attributes:
        dialed: Whether a connection was made for it; otherwise one was used again.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.dialed = False

    def endpointForURI(self, uri: Any) -> IStreamClientEndpoint:  # noqa: N802 - Twisted's name
        """
        Make it.

        Args:
            uri: Where to.
        """
        host = uri.host.decode("ascii").strip("[]").lower().removesuffix(".")
        return GuardedEndpoint(self._guard, (uri.scheme.decode(), host, uri.port), self._note)

    def _note(self) -> None:
        self.dialed = True
