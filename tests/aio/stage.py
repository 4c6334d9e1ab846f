"""An asyncio client, a puppet broker in memory, and a loop whose time a test need not wait for."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import override

from tests.client.puppet import ADDRESS, Line, Puppet
from tinymq.aio import Client, ClientConfig
from tinymq.client.core.address import Address

T = TypeVar("T")


class _Eager(selectors.DefaultSelector):
    """Instead of waiting, moves the clock of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found: list[Any] = super().select(0)
        if not found and timeout is None:
            raise AssertionError("nothing will ever happen any more")
        if not found and timeout:
            self.now += timeout
        return found


class EagerLoop(asyncio.SelectorEventLoop):
    """
    A loop in which time passes as soon as nothing else is to be done.

    Attributes:
        complaints: What the loop was told to complain about.
    """

    def __init__(self) -> None:
        self.eager = _Eager()
        super().__init__(self.eager)
        self.complaints: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self.complaints.append(context))

    @override
    def time(self) -> float:
        return self.eager.now


def run(body: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own; nothing may be left, or go wrong unseen."""
    loops: list[EagerLoop] = []

    def make() -> EagerLoop:
        loops.append(EagerLoop())
        return loops[0]

    async def whole() -> T:
        result = await body
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert left == set(), "the test left tasks behind"
        timers = [one for one in loops[0]._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
        assert timers == [], "the test left timers behind"
        return result

    with asyncio.Runner(loop_factory=make) as runner:
        result = runner.run(whole())
        gc.collect()
    assert loops[0].complaints == []
    return result


class MemoryTransport(asyncio.Transport):
    """
    A connection to a puppet; each write is answered in the next turn.

    Attributes:
        writes: How many writes there were.
    """

    def __init__(self, stage: Stage, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.stage = stage
        self.protocol = protocol
        self.line = Line(stage.puppet)
        self.writes = 0
        self.open = True
        self.stubborn = False
        self._on_its_way = b""

    @override
    def write(self, data: Any) -> None:
        assert self.open
        self.writes += 1
        if not self._on_its_way:
            self.stage.loop.call_soon(self._arrive)
        self._on_its_way += bytes(data)

    def _arrive(self) -> None:
        data, self._on_its_way = self._on_its_way, b""
        if self.open:
            self.line.feed(data)
            self.stage.answer()

    def answer(self) -> None:
        """Give the client what the puppet has for it."""
        self.push(self.line.take())
        if not self.line.alive:
            self.lose()

    def push(self, data: bytes, most: int = 1 << 30) -> None:
        """Give the client bytes, whatever they are, at most so many at once."""
        rest = memoryview(data)
        while rest and self.open:
            buffer = memoryview(self.protocol.get_buffer(-1))
            count = min(len(buffer), len(rest), most)
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self.protocol.buffer_updated(count)

    def lose(self, error: Exception | None = None) -> None:
        """End the connection."""
        self.line.close()
        if self.open:
            self.open = False
            self.stage.transports.remove(self)
            self.protocol.connection_lost(error)

    @override
    def close(self) -> None:
        if not self.stubborn:
            self.line.feed(self._on_its_way)
            self.stage.loop.call_soon(self.lose)

    @override
    def abort(self) -> None:
        self.stage.loop.call_soon(self.lose)


class Stage:
    """
    One client and one puppet in memory.

    Attributes:
        puppet: The broker.
        client: The client.
        up: Whether the broker can be reached.
        hang: Whether connecting takes for ever.
        transports: The open connections.
    """

    def __init__(self, puppet: Puppet | None = None, **config: Any) -> None:
        self.puppet = puppet or Puppet()
        self.up = True
        self.hang = False
        self.dialed: list[Address] = []
        self.transports: list[MemoryTransport] = []
        self.client = Client(
            f"tinymq://{ADDRESS}",
            ClientConfig(**config),
            connect=self.connect,
            chance=lambda: 0.5,
            environment={},
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the test."""
        return asyncio.get_running_loop()

    async def connect(
        self, make: Callable[[], asyncio.BufferedProtocol], address: Address
    ) -> MemoryTransport:
        """Connect to the puppet, or not."""
        self.dialed.append(address)
        if self.hang:
            await self.loop.create_future()
        if not self.up:
            raise ConnectionRefusedError("refused")
        transport = MemoryTransport(self, make())
        self.transports.append(transport)
        transport.protocol.connection_made(transport)
        return transport

    def answer(self) -> None:
        """Give every client what the puppet has for it."""
        for transport in tuple(self.transports):
            transport.answer()

    def cut(self, *, deliver: bool = False) -> None:
        """Lose every connection, before or after what was written arrived."""
        for transport in tuple(self.transports):
            if deliver:
                transport.line.feed(transport._on_its_way)
            transport.lose(ConnectionResetError("cut"))

    def empty(self) -> None:
        """Let the patience of every waiting FETCH end."""
        self.puppet.wake(empty=True)
        self.answer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.puppet.deaf = set()
        self.puppet.mute = set()
        self.puppet.refuse = lambda request: None
        self.up = True
        await self.client.close()
        assert self.transports == []


async def turns(count: int = 20) -> None:
    """Let the loop turn a few times, without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


def in_loop(body: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine."""

    def test() -> None:
        run(body())

    test.__doc__ = body.__doc__
    return test


async def ending(*calls: Awaitable[Any]) -> list[Any]:
    """Return what calls returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)
