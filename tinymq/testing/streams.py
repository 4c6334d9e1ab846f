"""Connections in memory for the asyncio client: links that look like asyncio's transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from typing_extensions import override

from tinymq.client.core.address import Address
from tinymq.testing.links import Dialer, End
from tinymq.wire.frames import Bytes


class Stream(asyncio.Transport):
    """
    The client's end of a link, seen from asyncio.

    Args:
        protocol: The client's protocol.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()

    # --- what a link knows of a protocol ------------------------------------------

    def makeConnection(self, end: End) -> None:  # noqa: N802 - Twisted's name
        """Begin."""
        self._end = end
        end.registerProducer(self, streaming=True)
        self._protocol.connection_made(self)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Hand bytes to the client, as a loop does that reads them."""
        rest = memoryview(data)
        while rest and self._end.connected:
            buffer = memoryview(self._protocol.get_buffer(len(rest)))
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._protocol.buffer_updated(count)

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Tell the client in the next turn of its loop."""
        error = ConnectionResetError(str(reason.value))
        if not self._loop.is_closed():
            self._loop.call_soon(self._protocol.connection_lost, error)

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Let the client write nothing."""
        self._protocol.pause_writing()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Let the client write again."""
        self._protocol.resume_writing()

    # --- what asyncio knows of a transport ------------------------------------------

    @override
    def write(self, data: Bytes) -> None:
        self._end.write(bytes(data))

    @override
    def close(self) -> None:
        self._end.loseConnection()

    @override
    def abort(self) -> None:
        self._end.abortConnection()


class _Factory:
    """Makes the client's end of a link."""

    def __init__(self, make: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._make = make

    def buildProtocol(self, address: IAddress) -> Any:  # noqa: N802 - Twisted's name
        """Make it."""
        return Stream(self._make())


class StreamDialer(Dialer):
    """Connects one asyncio client."""

    async def open(self, make: Callable[[], asyncio.BufferedProtocol], address: Address) -> object:
        """
        Connect at once, or not at all.

        Args:
            make: Makes the client's protocol.
            address: Where the client believes the broker to be.
        """
        factory: Any = _Factory(make)
        made = self.dial(factory)
        if made is None:
            raise ConnectionRefusedError("nobody listens")
        return made
