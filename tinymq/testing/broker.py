"""The broker that a test holds in its hands."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.python.failure import Failure

from tinymq import aio
from tinymq.client import Client, ClientConfig
from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import ConfigError, StateError, UsageError
from tinymq.testing.clock import InsideClock, Time
from tinymq.testing.disk import StageDisk, cut_power, lay_out
from tinymq.testing.links import BROKER_ADDRESS, Acknowledgement, Dialer, Link
from tinymq.testing.loop import LoopRoom
from tinymq.testing.rooms import Rooms
from tinymq.testing.stored import read_records
from tinymq.testing.streams import StreamDialer
from tinymq.wire.records import Record

T = TypeVar("T")
AnyClient = Client | aio.Client

#: Where clients believe the broker to be.
URL: Final = f"tinymq://{BROKER_ADDRESS.host}:{BROKER_ADDRESS.port}"
#: Seconds of the fake clock that `InProcessBroker.run` waits.
PATIENCE: Final = 600.0
#: A jump is made of about so many stretches.
STRETCHES: Final = 100
#: Up to here, seconds, a jump is no different from `advance`.
_SHORT: Final = 60.0
#: Passes only when nothing else is ready, seconds.
_MOMENT: Final = 1e-6
#: Rounds without time passing after which something goes in circles.
_ROUNDS: Final = 10_000


class InProcessBroker:
    """
    A real broker and real clients in this process, without sockets and reactor.

    Time passes only when the test says so. Bytes move and timers fire within
    `settle`, `advance`, `jump` and `run`, always in the same order.

    Args:
        folder: The data folder, to look at or to keep; otherwise a temporary
            one, which is removed at the end.
        config: All settings of the broker.
        seed: Decides what chance decides: partitions, back-off, ids of topics.

    Attributes:
        clock: For the test's own code: a Twisted `Clock` that the broker moves.
        url: What a client's URL would be.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        config: Config = DEFAULT_CONFIG,
        seed: int = 0,
    ) -> None:
        self.clock = Time()
        self.url = URL
        self._config = config
        self._temporary = Path(tempfile.mkdtemp(prefix="tinymq-testing-"))
        self._data = self._temporary / "data" if folder is None else Path(folder).absolute()
        self._journal = self._temporary / "journal"
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._links: list[Link] = []
        self._dialed = 0
        self._clients: list[tuple[Client, InsideClock, Dialer]] = []
        self._asyncio_clients: list[tuple[aio.Client, StreamDialer]] = []
        self._loop: LoopRoom | None = None
        self._refusing = False
        self._lose: tuple[Callable[[Acknowledgement], bool], bool] | None = None
        #: The acknowledgements that were lost so far.
        self.dropped: list[Acknowledgement] = []
        self._begin_journal()
        self._full = False
        self._rooms: Rooms | None = None
        self.restart()

    # --- life -------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """
        End: clients are closed, the broker is stopped, the temporary folder goes.

        What the test broke is mended before, so that nothing hangs.
        """
        self.free_disk()
        self.release_syncs()
        self.keep_acknowledgements()
        self.accept_connections()
        try:
            self._close()
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _close(self) -> None:
        try:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.close(PATIENCE, *[client.close for client, _ in self._asyncio_clients])
        finally:
            self._asyncio_clients.clear()
            for client, clock, _ in self._clients:
                if self.running:
                    self.run(client.close())
                else:
                    client.close()
                clock.stop()
            self._clients.clear()
            self.stop()

    @property
    def running(self) -> bool:
        """Whether the broker runs."""
        return self._rooms is not None

    def stop(self) -> None:
        """Stop in order, as SIGTERM does: what was taken is stored, clients hear a goodbye."""
        if self._rooms is None:
            return
        self._rooms.refuse()
        self.settle()
        self._rooms.say_goodbye()
        self.settle()
        rooms, self._rooms = self._rooms, None
        rooms.close()
        self.cut()

    def kill(self) -> None:
        """Kill the broker, as SIGKILL does: what was written stays, all else is gone."""
        if self._rooms is not None:
            rooms, self._rooms = self._rooms, None
            rooms.kill()
            self.cut()

    def power_cut(self, seed: int = 0) -> None:
        """
        Cut the power: what was not synced may be lost, torn or full of holes.

        Args:
            seed: Decides what is lost; the same seed loses the same.
        """
        self.kill()
        cut_power(self._data, self._journal, seed)

    def restart(self) -> None:
        """Start the broker on what is in its folder, after a stop if it runs."""
        self.stop()
        disk = StageDisk(self._journal, self._data)
        disk.full = self._full
        self._rooms = Rooms(self._data, disk, self._config, self.clock, self._chance)

    # --- time -------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        """The broker's wall clock in milliseconds since the epoch."""
        return self.clock.wall_ms

    def set_wall(self, when: datetime | int) -> None:
        """
        Step the wall clock, forwards or backwards; no timer notices.

        Args:
            when: An aware date and time, or milliseconds since the epoch.
        """
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise ValueError("give the date and time a time zone")
            when = round(when.timestamp() * 1000)
        self.clock.set_wall(when)

    def settle(self) -> None:
        """Let everything happen that needs no time: bytes move, calls that are due are made."""
        for _ in range(_ROUNDS):
            moved = self.clock.run_due()
            for link in tuple(self._links):
                moved |= link.move()
            self._links = [link for link in self._links if link.alive]
            if not moved:
                return
        raise RuntimeError("it never settles: something schedules itself without a delay")

    def advance(self, by: float | timedelta) -> None:
        """
        Let time pass, timer by timer.

        Args:
            by: Seconds, or a timedelta.
        """
        self._check_outside("advance", "await asyncio.sleep()")
        until = self.clock.seconds() + _seconds(by)
        self.settle()
        while (due := self.clock.next_due()) is not None and due <= until:
            self.clock.move_to(due)
            self.settle()
        self.clock.move_to(until)

    def jump(self, by: timedelta | None = None, **parts: float) -> None:
        """
        Let much time pass, wall clock included: ``jump(days=30)``.

        Timers of the test's own code fire at their exact moments. What broker
        and clients do every few seconds is done once for each of about a
        hundred stretches: heartbeats, retention, checkpoints, long polls. Links
        live on.

        Args:
            by: How much.
            **parts: Or the arguments of a timedelta.
        """
        self._check_outside("jump", "await jump_asyncio()")
        length = _seconds(by if by is not None else timedelta(**parts))
        if length <= _SHORT:
            self.advance(length)
            return
        for _ in self._stretches(length):
            pass

    async def jump_asyncio(self, by: timedelta | None = None, **parts: float) -> None:
        """
        Let much time pass within `run_asyncio`, as `jump` does outside of it.

        asyncio's timers, also those of the test's own code, come at the end of
        the stretch in which they are due.

        Args:
            by: How much.
            **parts: Or the arguments of a timedelta.
        """
        length = _seconds(by if by is not None else timedelta(**parts))
        if length <= _SHORT:
            await asyncio.sleep(length)
            return
        for _ in self._stretches(length):
            await asyncio.sleep(_MOMENT)

    def _stretches(self, length: float) -> Iterator[None]:
        """Jump, and pause behind each stretch."""
        until = self.clock.seconds() + length
        self.settle()
        while (now := self.clock.seconds()) < until:
            outside = self.clock.next_due(outside=True)
            stop = min(now + length / STRETCHES, until)
            self.clock.move_to(stop if outside is None else min(stop, outside))
            for link in tuple(self._links):
                link.carry_heartbeats()
            self.settle()
            yield

    def run(self, waiting: Awaitable[T], timeout: float = PATIENCE) -> T:
        """
        Let time pass until something has an outcome.

        Args:
            waiting: A Deferred, a coroutine, or another awaitable.
            timeout: Most seconds of the fake clock.

        Returns:
            Its result.

        Raises:
            TimeoutError: It has none after that time.
            Exception: It failed with this.
        """
        outcome: list[Any] = []
        deferred = waiting if isinstance(waiting, Deferred) else _deferred(waiting)
        deferred.addBoth(outcome.append)
        until = self.clock.seconds() + timeout
        self.settle()
        while not outcome:
            due = self.clock.next_due()
            if due is None or due > until:
                deferred.addErrback(lambda _: None)
                raise TimeoutError(f"no outcome within {timeout:g} s of the fake clock")
            self.clock.move_to(due)
            self.settle()
        (result,) = outcome
        if isinstance(result, Failure):
            result.raiseException()
        return result  # type: ignore[no-any-return]

    def run_asyncio(self, waiting: Coroutine[Any, Any, T], timeout: float = PATIENCE) -> T:
        """
        Run a coroutine of asyncio, in a loop whose time is the fake clock.

        Within it time passes by `asyncio.sleep`, by `jump_asyncio`, and wherever everybody
        waits. All
        calls share one loop, which ends with the broker; tasks that are left over
        go on in the next call. What comes from outside of this process, such as
        other sockets, is not waited for; threads of the loop's executor are.

        Args:
            waiting: The coroutine.
            timeout: Most seconds of the fake clock; it is cancelled then.

        Returns:
            Its result.

        Raises:
            TimeoutError: It has none after that time.
            Exception: It failed with this.
        """
        if self._loop is None:
            self._loop = LoopRoom(self)
        return self._loop.run(waiting, timeout)

    # --- clients and links --------------------------------------------------------

    def client(self, config: ClientConfig | None = None) -> Client:
        """
        Make a client of `tinymq.client` that finds this broker.

        It is closed with the broker, at the latest.

        Args:
            config: Settings of the client.
        """
        dialer = Dialer(self._dial)
        clock = InsideClock(self.clock)
        client = Client(
            clock,
            URL,
            config,
            endpoint_for=lambda address, timeout: dialer,
            chance=self._chance.random,
            environment={},
        )
        self._clients.append((client, clock, dialer))
        return client

    def asyncio_client(self, config: ClientConfig | None = None) -> aio.Client:
        """
        Make a client of `tinymq.aio` that finds this broker, for use in `run_asyncio`.

        It is closed with the broker, at the latest.

        Args:
            config: Settings of the client.
        """
        dialer = StreamDialer(self._dial)
        chance = self._chance.random
        client = aio.Client(URL, config, connect=dialer.open, chance=chance, environment={})
        self._asyncio_clients.append((client, dialer))
        return client

    def links(self, client: AnyClient | None = None) -> int:
        """
        Count connections.

        Args:
            client: Of which client; None means all.
        """
        return len(self._of(client))

    def cut(self, client: AnyClient | None = None) -> None:
        """
        Cut connections; what is under way in them is lost. Clients may connect again.

        Args:
            client: Whose; None means all.
        """
        for link in self._of(client):
            link.end(ConnectionLost())
        self._links = [link for link in self._links if link.alive]

    def refuse_connections(self) -> None:
        """Let nobody connect from now on; connections that exist stay."""
        self._refusing = True

    def accept_connections(self) -> None:
        """Let clients connect again."""
        self._refusing = False

    def drop_acknowledgements(
        self, which: int | Callable[[Acknowledgement], bool] = 1, *, cut: bool = True
    ) -> None:
        """
        Lose answers to publishes: the broker has stored them, the client does not hear.

        Args:
            which: How many of the next ones, or a function that chooses, until
                `keep_acknowledgements`.
            cut: The connection ends where the answer would be, as TCP's do.
                Otherwise it lives on and the answer never comes.
        """
        if callable(which):
            self._lose = which, cut
            return
        left = [None] * which

        def next_ones(_: Acknowledgement) -> bool:
            return bool(left) and left.pop() is None

        self._lose = next_ones, cut

    def keep_acknowledgements(self) -> None:
        """Lose no answer any more."""
        self._lose = None

    # --- disk -------------------------------------------------------------------

    def hold_syncs(self) -> None:
        """Let syncs wait for `release_syncs`: what is published is not acknowledged meanwhile."""
        self._running.syncer.held = True

    def release_syncs(self) -> None:
        """Do the syncs that wait, and hold none any more."""
        if self._rooms is not None:
            self._rooms.syncer.release()

    def fail_next_sync(self) -> None:
        """Let the next sync fail: its partitions go offline until `restart`."""
        self._running.syncer.failing += 1

    def fill_disk(self) -> None:
        """Let no byte fit on the disk, until `free_disk`."""
        self._set_full(True)

    def free_disk(self) -> None:
        """Let there be space again; the broker looks for it every second."""
        self._set_full(False)

    # --- what is stored -----------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **settings: str | int | None) -> None:
        """
        Make a topic.

        Args:
            name: Its name.
            partitions: How many.
            **settings: Those of a topic, with ``_`` for ``.``: ``retention_ms=1000``.
        """
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self._running.meta.create_topic(name, partitions, config)

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """
        Look at what a topic holds, as every reader sees it.

        Args:
            topic: Its name.
            partition: One partition; None means all, one after the other.

        Raises:
            UnknownTopic: There is none of this name.
        """
        broker = self._running.broker
        found = self._running.meta.describe(topic)
        numbers = range(found.partitions) if partition is None else [partition]
        return [record for number in numbers for record in read_records(broker, found.id, number)]

    # --- inside -----------------------------------------------------------------

    @property
    def _running(self) -> Rooms:
        if self._rooms is None:
            raise StateError("the broker does not run; restart() starts it")
        return self._rooms

    def _check_outside(self, name: str, instead: str) -> None:
        if self._loop is not None and self._loop.running:
            raise UsageError(f"{name}() would leave asyncio behind; within run_asyncio {instead}")

    def _begin_journal(self) -> None:
        """Note what is in the folder already, as written and synced."""
        if (
            self._data.exists()
            and any(self._data.iterdir())
            and not (self._data / "format").exists()
        ):
            raise ConfigError(f"{self._data} holds something else than the data of a tinymq broker")
        twin = self._temporary / "twin"
        lay_out(self._data, twin, self._journal)
        shutil.rmtree(twin)

    def _set_full(self, full: bool) -> None:
        self._full = full
        if self._rooms is not None:
            self._rooms.disk.full = full

    def _of(self, client: AnyClient | None) -> list[Link]:
        known: list[tuple[AnyClient, Dialer]] = [
            (each, dialer) for each, _, dialer in self._clients
        ]
        known += self._asyncio_clients
        dialers = [dialer for each, dialer in known if client in (each, None)]
        return [link for dialer in dialers for link in dialer.links if link.alive]

    def _dial(self, factory: IProtocolFactory) -> tuple[IProtocol, Link] | None:
        rooms = self._rooms
        if rooms is None or self._refusing:
            return None
        self._dialed += 1
        link = Link(rooms.broker, self._loses, self._dialed)
        server = rooms.factory.buildProtocol(link.address)
        protocol = factory.buildProtocol(BROKER_ADDRESS)
        if server is None or protocol is None:
            return None
        self._links.append(link)
        link.connect(protocol, server)
        return protocol, link

    def _loses(self, told: Acknowledgement) -> bool | None:
        if self._lose is None or not self._lose[0](told):
            return None
        self.dropped.append(told)
        return self._lose[1]


def _seconds(by: float | timedelta) -> float:
    seconds = by.total_seconds() if isinstance(by, timedelta) else by
    if seconds < 0:
        raise ValueError("time does not go backwards; set_wall() steps the wall clock")
    return seconds


def _deferred(waiting: Awaitable[T]) -> Deferred[T]:
    if isinstance(waiting, Coroutine):
        return Deferred.fromCoroutine(waiting)

    async def wait() -> T:
        return await waiting

    return Deferred.fromCoroutine(wait())
