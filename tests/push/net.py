"""The outside world in memory: names, addresses, and HTTP servers that behave badly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from typing_extensions import override

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Write an answer of a server."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@define
class Request:
    """What a server got."""

    line: str
    headers: dict[str, str]
    body: bytes


#: Told a request and the wire; writes to it, or not.
Behaviour = Callable[[Request, "Wire"], None]


class Wire(StringTransport):
    """A connection to a server."""

    def __init__(self, net: Net, behaviour: Behaviour, protocol: Any) -> None:
        super().__init__()
        self.peer = protocol
        self.open = True
        self._net = net
        self._behaviour = behaviour
        self._data = b""

    @override
    def write(self, data: bytes) -> None:
        """Take what the client sends, and answer once a request is whole."""
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        pairs = [each.partition(": ")[::2] for each in lines]
        headers = {name.lower(): value for name, value in pairs}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._data = rest[length:]
        request = Request(line, headers, rest[:length])
        self._net.requests.append(request)
        self._net.callLater(0, self._behaviour, request, self)

    @override
    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Take pieces."""
        self.write(b"".join(data))

    def say(self, data: bytes) -> None:
        """Send something to the client."""
        if self.open:
            self.peer.dataReceived(data)

    def end(self, reason: Exception | None = None) -> None:
        """Close."""
        if self.open:
            self.open = False
            self.peer.connectionLost(Failure(reason or ConnectionDone()))

    @override
    def loseConnection(self) -> None:
        """Close, as the client wants it."""
        self._net.callLater(0, self.end)

    @override
    def abortConnection(self) -> None:
        """Close at once."""
        self._net.callLater(0, self.end, ConnectionLost())


def always(*answers: bytes) -> Behaviour:
    """Answer with these in turn, the last one for ever."""
    left = list(answers)

    def behave(request: Request, wire: Wire) -> None:
        wire.say(left.pop(0) if len(left) > 1 else left[0])

    return behave


def never(request: Request, wire: Wire) -> None:
    """Answer nothing."""


def closing(request: Request, wire: Wire) -> None:
    """Close without a word."""
    wire.end()


@define
class Net:
    """
    A reactor that connects to servers of its own.

    Attributes:
        clock: The time.
        names: The addresses of names; each look-up takes the next list, the last for ever.
        servers: What listens, by address.
        dialed: Where was connected to.
        requests: What servers got.
        wires: The connections.
    """

    clock: Any = field(factory=Clock)
    names: dict[str, list[list[str]]] = field(factory=dict)
    servers: dict[str, Behaviour] = field(factory=dict)
    dialed: list[tuple[str, int]] = field(factory=list)
    requests: list[Request] = field(factory=list)
    wires: list[Wire] = field(factory=list)

    def seconds(self) -> float:
        """The time."""
        return float(self.clock.seconds())

    def callLater(self, delay: float, call: Any, *args: Any, **kw: Any) -> Any:  # noqa: N802
        """Call something later."""
        return self.clock.callLater(delay, call, *args, **kw)

    def resolve(self, host: str) -> Deferred[list[str]]:
        """Find the addresses of a name."""
        lists = self.names.get(host, [[]])
        return succeed(lists.pop(0) if len(lists) > 1 else lists[0])

    def connectTCP(  # noqa: N802 - Twisted's name
        self, host: str, port: int, factory: Any, timeout: float = 30, **_: Any
    ) -> Any:
        """Connect, if something listens there."""
        self.dialed.append((host, port))
        behaviour = self.servers.get(host)
        if behaviour is None:
            self.callLater(0, factory.clientConnectionFailed, None, Failure(Refused()))
            return _Connector()
        protocol = factory.buildProtocol(IPv4Address("TCP", host, port))
        wire = Wire(self, behaviour, protocol)
        self.wires.append(wire)
        protocol.makeConnection(wire)
        return _Connector()

    @property
    def open(self) -> int:
        """How many connections are open."""
        return sum(wire.open for wire in self.wires)


class _Connector:
    def disconnect(self) -> None:
        """Do nothing."""

    def stopConnecting(self) -> None:  # noqa: N802 - Twisted's name
        """Do nothing."""
