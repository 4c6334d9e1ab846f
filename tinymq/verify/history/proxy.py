"""Links that can be cut: a door in front of each broker, through which its clients come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Final

#: Bytes that are passed on at a time.
_PIECE: Final = 64 * 1024


class Door:
    """
    Takes connections at one port and passes them on to another.

    Args:
        port: Where it listens, on 127.0.0.1.
        behind: Where the broker listens.
    """

    def __init__(self, port: int, behind: int) -> None:
        self.port = port
        self._behind = behind
        self._open: set[asyncio.Transport | Any] = set()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def listen(self) -> None:
        """Begin."""
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self.port)

    def close(self) -> None:
        """Listen no more, and break all connections."""
        if self._server is not None:
            self._server.close()
        self.let()
        self.cut()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        except OSError:
            writer.transport.abort()
            return
        both = {writer.transport, back.transport}
        self._open |= both
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        self._open -= both

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def cut(self) -> None:
        """Break all connections without a word."""
        for transport in tuple(self._open):
            transport.abort()

    def hold(self) -> None:
        """Let no byte through."""
        self._flowing.clear()

    def let(self) -> None:
        """Let all through that was held."""
        self._flowing.set()


class Doors:
    """
    All doors, in a thread of their own.

    Args:
        ports: The port of each door, and that of the broker behind.
    """

    def __init__(self, ports: dict[int, int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._doors = {port: Door(port, behind) for port, behind in ports.items()}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for door in self._doors.values():
            self._run(door.listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def cut(self, port: int) -> None:
        """
        Break the connections through one door.

        Args:
            port: Its port.
        """
        self._loop.call_soon_threadsafe(self._doors[port].cut)

    def hold(self, port: int) -> None:
        """
        Let nothing through one door.

        Args:
            port: Its port.
        """
        self._loop.call_soon_threadsafe(self._doors[port].hold)

    def let(self, port: int) -> None:
        """
        Let everything through one door again.

        Args:
            port: Its port.
        """
        self._loop.call_soon_threadsafe(self._doors[port].let)

    def close(self) -> None:
        """Close all doors."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        for door in self._doors.values():
            door.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 5)
