"""The fixture `real` gives real sockets and keeps tests apart."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    connectProtocol,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import deferLater
from typing_extensions import override

from tests.conftest import RealReactor


def test_sockets_work(real: RealReactor) -> None:
    """A client reaches a server through the loopback."""
    arrived: list[bytes] = []

    async def body(reactor: SelectReactor) -> None:
        done: Deferred[None] = Deferred()

        class Server(Protocol):
            @override
            def dataReceived(self, data: bytes) -> None:
                arrived.append(data)
                done.callback(None)

        server = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await server.listen(Factory.forProtocol(Server))
        client = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        protocol = Protocol()
        await connectProtocol(client, protocol)
        assert protocol.transport is not None
        protocol.transport.write(b"hello")
        await done

    real(body)
    assert arrived == [b"hello"]


def test_failures_come_out(real: RealReactor) -> None:
    """What the body raises is what the test raises."""

    async def body(reactor: SelectReactor) -> None:
        await deferLater(reactor, 0, lambda: None)
        raise LookupError("so")

    with pytest.raises(LookupError, match="so"):
        real(body)


def test_left_calls_fail_the_test(real: RealReactor) -> None:
    """A delayed call that outlives the body is a failure."""

    async def body(reactor: SelectReactor) -> None:
        reactor.callLater(100, lambda: None)

    with pytest.raises(AssertionError, match="left delayed calls"):
        real(body)
