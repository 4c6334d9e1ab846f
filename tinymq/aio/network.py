"""Links over asyncio: one protocol, one timer, one write for each turn of the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final, TypeVar, cast

from typing_extensions import override

from tinymq.client.core.address import Address
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.fork import Home
from tinymq.client.core.link import Link
from tinymq.errors import ConnectionLost, TinyMQError, UnreachableError, UsageError
from tinymq.wire.frames import Bytes

T = TypeVar("T")

#: Time for a closed connection to flush what was written, before it is cut.
_FLUSH_S = 2.0

#: Connects the protocol that the function makes, as `loop.create_connection` does.
Connect = Callable[[Callable[[], asyncio.BufferedProtocol], Address], Awaitable[object]]

_log: Final = logging.getLogger(__name__)


def give(waiting: asyncio.Future[T], result: T) -> None:
    """
    Answer a call, unless it was cancelled.

    Args:
        waiting: Who waits.
        result: The answer.
    """
    if not waiting.done():
        waiting.set_result(result)


def refuse(waiting: asyncio.Future[T], error: TinyMQError) -> None:
    """
    Fail a call, unless it was cancelled.

    Args:
        waiting: Who waits.
        error: Why.
    """
    if not waiting.done():
        waiting.set_exception(error)


class Peer(asyncio.BufferedProtocol):
    """
    The connection of one link.

    asyncio pays a system call for each write, so that those of one turn are
    gathered here. It reads into one buffer, which bounds what a turn reads.

    Args:
        link: Where bytes go.
        network: Keeps the clock.
    """

    def __init__(self, link: Link, network: LoopNetwork) -> None:
        self._link: Link | None = link
        self._network = network
        self._transport: asyncio.Transport | None = None
        self._out: list[Bytes] = []
        self._in = memoryview(bytearray(network.config.read_bytes))

    # --- from asyncio ----------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # TCP_NODELAY is set: asyncio does it for every TCP socket.
        self._transport = cast(asyncio.Transport, transport)
        self._network.opened(self)
        if self._link is None:
            self._transport.abort()  # given up while it came up
            return
        self._link.connected(self, self._network.seconds())
        self._network.stir()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._in

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._link is not None:
            self._link.received(bytes(self._in[:nbytes]), self._network.seconds())
            self._network.stir()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._network.gone(self)
        link, self._link = self._link, None
        if link is not None:
            why = exc or "the broker closed it"
            link.lost(ConnectionLost(f"the connection ended: {why}"), self._network.seconds())
            self._network.stir()

    @override
    def pause_writing(self) -> None:
        if self._link is not None:
            self._link.pause()

    @override
    def resume_writing(self) -> None:
        if self._link is not None:
            self._link.resume(self._network.seconds())
            self._network.stir()

    # --- from the link ---------------------------------------------------------

    def write(self, pieces: Sequence[Bytes]) -> None:
        """
        Take bytes, and send those of one turn together.

        Args:
            pieces: The bytes.
        """
        if not self._out:
            self._network.written(self)
        self._out += pieces

    def flush(self) -> None:
        """Hand what was taken to asyncio."""
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def close(self) -> None:
        """Close after what was written is flushed, and at the latest soon."""
        self._link = None
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._network.closing(self)

    def cut(self) -> None:
        """Close at once, also a connection that is only coming up."""
        self._link = None
        if self._transport is not None:
            self._transport.abort()


class LoopNetwork:
    """
    Connects links, wakes the cluster, and belongs to one loop of one process.

    The loop is the one in which it is first used.

    Args:
        config: Settings of the client.
        connect: Connects; by default to host and port.

    Attributes:
        config: Settings of the client.
        home: The process in which the client was made.
        cluster: Whom to wake; set once it exists.
    """

    cluster: Cluster

    def __init__(self, config: ClientConfig, connect: Connect | None) -> None:
        self.config = config
        self.home = Home()
        self._connect = connect or self._tcp
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dialing: dict[Link, tuple[asyncio.Task[None], Peer]] = {}
        self._peers: dict[Peer, asyncio.TimerHandle | None] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._turning = False
        self._drains: dict[Callable[[float], None], None] = {}
        self._written: list[Peer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    # --- the loop --------------------------------------------------------------

    def check(self) -> None:
        """
        Refuse to work elsewhere than in the loop of the first call.

        Raises:
            UsageError: No loop runs in this thread, or it is another one.
            ForkedError: This is a child of the process that made the client.
        """
        self.home.check()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "no asyncio loop runs in this thread: call the client from a coroutine, and from "
                "another thread by asyncio.run_coroutine_threadsafe"
            ) from None
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            state = "is closed" if self._loop.is_closed() else "is not the one that runs here"
            raise UsageError(
                f"the client belongs to the loop that used it first, and that {state}: "
                "make a client in each loop"
            )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; `check` was called before."""
        assert self._loop is not None
        return self._loop

    def seconds(self) -> float:
        """Tell the time of the loop."""
        return self.loop.time()

    def future(self) -> asyncio.Future[T]:
        """Make something to wait for."""
        waiting: asyncio.Future[T] = self.loop.create_future()
        return waiting

    # --- turns and time --------------------------------------------------------

    def stir(self, drain: Callable[[float], None] | None = None) -> None:
        """
        Write and set the timer at the end of this turn of the loop, once.

        Args:
            drain: Called with the time before that.
        """
        if drain is not None:
            self._drains[drain] = None
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        try:
            drains, self._drains = self._drains, {}
            for drain in drains:
                drain(self.seconds())
            written, self._written = self._written, []
            for peer in written:
                peer.flush()
        finally:
            self._turning = False
        self._arm()

    def _arm(self) -> None:
        """Make sure that the cluster is woken when it wants to be."""
        at = self.cluster.wake_at
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at and not self.cluster.closed:
                return  # wakes too early at worst, and is set anew then
            timer.cancel()
            self._timer = None
        if at < inf:
            self._timer_at = at
            self._timer = self.loop.call_at(max(at, self.seconds()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        # The loop may be early by the resolution of its clock: what is due then is due now.
        self.cluster.tick(max(self.seconds(), self._timer_at))
        self.stir()

    # --- Network ---------------------------------------------------------------

    def dial(self, link: Link, address: Address, now: float) -> None:
        """
        Connect a link.

        Args:
            link: The link.
            address: Where to.
            now: The time.
        """
        peer = Peer(link, self)
        self._dialing[link] = (self.loop.create_task(self._dial(link, peer, address)), peer)

    async def _dial(self, link: Link, peer: Peer, address: Address) -> None:
        error: UnreachableError | None = None
        try:
            await self._connect(lambda: peer, address)
        except Exception as failed:  # noqa: BLE001 - of a resolver, of TLS, of the caller's `connect`
            error = UnreachableError(f"{address}: {failed}")
            error.__cause__ = failed
            if not isinstance(failed, (OSError, ValueError, OverflowError)):
                self.report(f"connecting to {address} failed", failed)
        if self._dialing.get(link, (None, None))[1] is peer:
            del self._dialing[link]
            if error is not None:
                link.failed(error, self.seconds())
                self.stir()

    def report(self, what: str, error: Exception) -> None:
        """
        Log an error of the caller's own code.

        Args:
            what: What failed.
            error: How.
        """
        _log.error("%s", what, exc_info=error)

    def say(self, text: str) -> None:
        """
        Log a line for people.

        Args:
            text: The line.
        """
        _log.warning("%s", text)

    def hang_up(self, link: Link) -> None:
        """
        Stop connecting a link.

        Args:
            link: The link.
        """
        dialing = self._dialing.pop(link, None)
        if dialing is not None:
            task, peer = dialing
            peer.cut()
            task.cancel()

    async def _tcp(self, make: Callable[[], asyncio.BufferedProtocol], address: Address) -> object:
        return await self.loop.create_connection(make, address.host, address.port)

    # --- connections -----------------------------------------------------------

    def written(self, peer: Peer) -> None:
        """
        Flush a connection at the end of this turn.

        Args:
            peer: The connection.
        """
        self._written.append(peer)
        self.stir()

    def opened(self, peer: Peer) -> None:
        """
        Note a connection.

        Args:
            peer: The connection.
        """
        self._peers[peer] = None

    def closing(self, peer: Peer) -> None:
        """
        Cut a connection if it does not close by itself.

        Args:
            peer: The connection.
        """
        if peer in self._peers and self._peers[peer] is None:
            self._peers[peer] = self.loop.call_later(_FLUSH_S, peer.cut)

    def gone(self, peer: Peer) -> None:
        """
        Forget a connection.

        Args:
            peer: The connection.
        """
        timer = self._peers.pop(peer)
        if timer is not None:
            timer.cancel()
        if not self._peers:
            idle, self._idle = self._idle, []
            for waiting in idle:
                give(waiting, None)

    async def idle(self) -> None:
        """Wait until no connection is open any more; cut what is when that is cancelled."""
        if self._peers:
            waiting: asyncio.Future[None] = self.future()
            self._idle.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                self.cut()
                raise

    def cut(self) -> None:
        """Close every connection at once."""
        for peer in tuple(self._peers):
            peer.cut()
