"""
A whole cluster in memory: real services on one fake clock, joined by links that tests break.

Every process is a `BrokerService` as it runs, on a ground of its own. It can be
stopped, killed, started again, and made to stand still. What passes between two
processes can be held, cut, or end for one of them only; ports can refuse.
"""

from __future__ import annotations

import errno
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectionDone,
    ConnectionLost,
)
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.fakes.broker import BEGIN_MS, BrokerDisk, LogKeeper
from tinymq.broker.broker import Broker
from tinymq.broker.ports import Background, InlineBackground
from tinymq.client import Client, ClientConfig
from tinymq.client.core.address import Address
from tinymq.cluster.far import FarMeta
from tinymq.cluster.own import OwnMeta
from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.connection import LINGER
from tinymq.meta.registry import Registry, Topic
from tinymq.meta.server import MetaServer
from tinymq.service import ADDRESS_FILE, BrokerService, NotStarted
from tinymq.storage.disk import Disk
from tinymq.storage.sync import InlineSyncer, Syncer
from tinymq.testing.links import End

T = TypeVar("T")

#: Seconds of the fake clock after which something that is waited for has failed.
PATIENCE: Final = 60.0
#: Rounds without time passing after which something goes in circles.
_ROUNDS: Final = 10_000
#: The port of the first process; the others follow.
_PORT: Final = 7800
_TESTER: Final = "tester"


class MachineClock(Clock):
    """The reactor of one process: its timers, and where it listens."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        #: How the process wanted to end by itself.
        self.ended: list[tuple[Any, ...]] = []

    def run_due(self) -> bool:
        """Make the calls that are due, and say whether there were any."""
        due = [call for call in self.calls if call.getTime() <= self.rightNow]
        for call in due:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        return bool(due)

    def die(self) -> None:
        """Forget every call; what Python cleans up may still want to cancel its own."""
        for call in self.calls:
            call.cancelled = 1
        self.calls.clear()

    def listenTCP(  # noqa: N802 - Twisted's name
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> Port:
        """Listen, for processes of the same cluster."""
        return Port(self._machine, port, factory, interface)

    def addSystemEventTrigger(self, *trigger: Any) -> None:  # noqa: N802 - Twisted's name
        """Note what is to happen at the end."""
        self.ended.append(trigger)

    def stop(self) -> None:
        """Note that the process wants to end."""
        self.ended.append(("stop",))


class Port:
    """Where a process listens."""

    def __init__(self, machine: Machine, port: int, factory: Any, interface: str) -> None:
        self.machine = machine
        self.factory = factory
        self._address = IPv4Address("TCP", interface or "0.0.0.0", port)
        ports = machine.cluster.ports
        if port in ports:
            raise CannotListenError(interface, port, OSError(errno.EADDRINUSE, "in use"))
        ports[port] = self

    def getHost(self) -> IPv4Address:  # noqa: N802 - Twisted's name
        """Return the address."""
        return self._address

    def stopListening(self) -> Deferred[None]:  # noqa: N802 - Twisted's name
        """Listen no more."""
        self.machine.cluster.ports.pop(self._address.port, None)
        return succeed(None)


class Machine:
    """
    A process, or the place where it would run.

    Args:
        cluster: Where it belongs.
        name: What tests call it.

    Attributes:
        still: Whether it stands still, as SIGSTOP lets it: it does nothing and hears nothing.
        refuses: Whether nobody can connect.
    """

    def __init__(self, cluster: WholeCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.reactor = MachineClock(self)
        self.still = False
        self.refuses = False

    def client(self, url: str, config: ClientConfig | None = None) -> Client:
        """Make a client that lives on this machine."""
        return Client(
            self.reactor,
            url,
            config,
            endpoint_for=lambda address, timeout: Endpoint(self, address),
            chance=lambda: 0.5,
            environment={},
        )


class MemoryGround:
    """
    What a process in memory stands on.

    Args:
        machine: Where it runs.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.room = BrokerDisk()
        self.disk: Disk = self.room
        self.syncer: Syncer = InlineSyncer(self.disk)
        self.background: Background = InlineBackground()

    @property
    def reactor(self) -> Any:
        """The reactor of the machine as it runs now."""
        return self._machine.reactor

    def wall(self) -> int:
        """The wall clock."""
        return BEGIN_MS + round(self._machine.reactor.seconds() * 1000)

    def client(self, url: str, config: ClientConfig) -> Client:
        """Make a client that lives on the machine."""
        return self._machine.client(url, config)

    def close(self) -> None:
        """Do nothing: there are no threads."""


class Process(Machine):
    """
    A `BrokerService` in memory.

    Args:
        cluster: Where it belongs.
        name: Its name.
        config: All settings.
    """

    def __init__(self, cluster: WholeCluster, name: str, config: Config) -> None:
        super().__init__(cluster, name)
        self.config = config
        self.ground = MemoryGround(self)
        self._service: BrokerService | None = None

    # --- life -------------------------------------------------------------------

    def start(self, *, settle: bool = True) -> Self:
        """Start, without waiting for others for any time."""
        assert self._service is None, f"{self.name} runs already"
        self.reactor = MachineClock(self)
        self.reactor.rightNow = self.cluster.tester.reactor.rightNow
        try:
            service = self._begin()
        except NotStarted as error:
            if "in use" not in str(error):
                raise
            # What a killed process had open is closed by the system; here, it may hang on
            # garbage that was not collected yet.
            gc.collect()
            service = self._begin()
        self._service = service
        if isinstance(service._meta, OwnMeta):
            connection = service._meta._store._connection
            assert connection is not None
            connection.execute("PRAGMA synchronous = OFF")  # no test here cuts its power
        if settle:
            self.cluster.settle()
        return self

    def _begin(self) -> BrokerService:
        service = BrokerService(self.reactor, self.config, None, lambda *_: self.ground)
        service.quiet = True
        service.startService()
        return service

    def stop(self) -> None:
        """Stop in order, as SIGTERM does; no timer and no connection may be left."""
        service, self._service = self.service, None
        self.cluster.run(service.stopService())
        self.cluster.settle()
        if self._wires:  # with peers that do not read what was said at last
            self.cluster.advance(LINGER)
        assert self.reactor.getDelayedCalls() == [], self.name
        assert not self._wires, self.name

    @property
    def _wires(self) -> list[Wire]:
        return [wire for wire in self.cluster.wires if wire.open_at(self)]

    def kill(self, *, unheard: bool = False) -> None:
        """
        End at once, as SIGKILL does.

        Args:
            unheard: The machine died: nobody hears of the ends of its connections.
        """
        service, self._service = self.service, None
        self.reactor.die()
        for wire in self.cluster.wires_of(self.name):
            wire.dies(self, unheard=unheard)
        for number, port in tuple(self.cluster.ports.items()):
            if port.machine is self:
                del self.cluster.ports[number]
        service._opened.close()
        self.still = False
        self.cluster.settle()

    def restart(self) -> Self:
        """Stop and start."""
        self.stop()
        return self.start()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._service is not None

    # --- what is inside -----------------------------------------------------------

    @property
    def service(self) -> BrokerService:
        """The service."""
        assert self._service is not None, f"{self.name} does not run"
        return self._service

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self.service.broker

    @property
    def registry(self) -> Registry:
        """What it knows."""
        return self.broker.meta.registry

    @property
    def own(self) -> OwnMeta:
        """The MetaServer's side of a process that has it."""
        own = self.service._meta
        assert isinstance(own, OwnMeta)
        return own

    @property
    def meta(self) -> MetaServer:
        """The MetaServer of a process that has it."""
        return self.own.meta

    @property
    def far(self) -> FarMeta:
        """The broker's side of a process whose MetaServer is elsewhere."""
        far = self.service._meta
        assert isinstance(far, FarMeta)
        return far

    @property
    def entered(self) -> bool:
        """Whether it has begun to serve."""
        return self.service._entering is None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients are to find it, whether it runs or not."""
        return "127.0.0.1", int(self.config.network.listen[0].split(":")[1])

    def topic(self, name: str) -> Topic:
        """A topic as this process knows it."""
        return self.registry.by_name[name]

    def told(self) -> dict[str, Any]:
        """What it tells tools on its machine."""
        facts: dict[str, Any] = json.loads(
            Path(self.config.storage.data, ADDRESS_FILE).read_text(encoding="utf-8")
        )
        return facts

    def folders(self) -> list[str]:
        """The folders of partitions on its disk."""
        return sorted(each.name for each in Path(self.config.storage.data, "topics").glob("*/*"))


class MachineEnd(End):
    """The end of a wire at one machine."""

    def __init__(self, wire: Wire, machine: Machine, here: int, there: int) -> None:
        places = [IPv4Address("TCP", "127.0.0.1", port) for port in (here, there)]
        super().__init__(wire, *places)  # type: ignore[arg-type]
        self.machine = machine
        #: Whether it does not hear of the wire's end.
        self.deaf = False

    @property
    def hears(self) -> bool:
        """Whether anything arrives here."""
        return self.connected and not self.machine.still and not self.deaf


class Wire:
    """
    A connection between two machines.

    Args:
        near: Who connected.
        port: Where.
        number: Counts wires.
    """

    def __init__(self, near: Machine, port: Port, number: int) -> None:
        self.near, self.far = near, port.machine
        self._port = port
        self._ends = (
            MachineEnd(self, near, 40_000 + number % 20_000, port.getHost().port),
            MachineEnd(self, port.machine, port.getHost().port, 40_000 + number % 20_000),
        )
        self._reason: Exception | None = None
        self._accepted = False

    @property
    def names(self) -> frozenset[str]:
        """Who is joined."""
        return frozenset((self.near.name, self.far.name))

    @property
    def alive(self) -> bool:
        """Whether somebody believes in it."""
        return any(end.connected for end in self._ends)

    def open_at(self, machine: Machine) -> bool:
        """Whether a machine believes in it."""
        return any(end.connected for end in self._ends if end.machine is machine)

    def open(self, factory: IProtocolFactory) -> IProtocol:
        """Connect the near end; the far one when the process over there gets to it."""
        protocol = factory.buildProtocol(self._ends[1].getHost())
        assert protocol is not None
        self._ends[0].protocol = protocol
        protocol.makeConnection(self._ends[0])  # type: ignore[arg-type]
        return protocol

    def move(self) -> bool:
        """Hand over what waits, and say whether there was anything."""
        if self.near.cluster.holds(self):
            return False
        if self._reason is not None:
            return self._tell(self._reason)
        near, far = self._ends
        if not self._accepted:
            return not self.far.still and self._accept()
        moved = far.hears and near.deliver(far)
        moved |= near.hears and far.deliver(near)
        for end in self._ends:
            if end.connected and end.disconnecting and not end.outbox:
                self.end(ConnectionDone())
                moved = True
        return moved

    def _accept(self) -> bool:
        self._accepted = True
        protocol = self._port.factory.buildProtocol(self._ends[0].getHost())
        if protocol is None:
            self._ends[1].connected = False
            self.end(ConnectionDone())
        else:
            self._ends[1].protocol = protocol
            protocol.makeConnection(self._ends[1])
        return True

    def _tell(self, reason: Exception) -> bool:
        if not self._accepted:
            self._ends[1].connected = False
        hearing = [end for end in self._ends if end.hears]
        for end in hearing:
            end.lost(reason)
        return bool(hearing)

    def end(self, reason: Exception | None = None, *, deaf: str = "") -> None:
        """
        Disconnect; what is under way is lost.

        Args:
            reason: What both ends are told.
            deaf: Who does not hear of it until `hear`.
        """
        if self._reason is None:
            self._reason = reason or ConnectionLost()
        for end in self._ends:
            end.deaf = end.machine.name == deaf

    def hear(self) -> None:
        """Let everybody hear of the end."""
        for end in self._ends:
            end.deaf = False

    def dies(self, machine: Machine, *, unheard: bool) -> None:
        """A machine's end is gone with it."""
        for end in self._ends:
            if end.machine is machine:
                end.connected = False
            else:
                end.deaf = unheard
        self._reason = ConnectionLost()


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Connects to whatever listens at a port."""

    def __init__(self, machine: Machine, address: Address) -> None:
        self._machine = machine
        self._port = address.port

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect at once, never, or not at all."""
        cluster = self._machine.cluster
        port = cluster.ports.get(self._port)
        if self._port in cluster.vanished:
            return Deferred()
        if port is None or port.machine.refuses:
            return fail(Refused())
        if frozenset((self._machine.name, port.machine.name)) in cluster.held:
            return Deferred()
        cluster.dialed += 1
        wire = Wire(self._machine, port, cluster.dialed)
        cluster.wires.append(wire)
        return succeed(wire.open(factory))


class WholeCluster:
    """
    Processes on one clock.

    Args:
        path: Where their data folders are.
        brokers: How many brokers there are beside the MetaServer, called b1, b2 …
        settings: Of all of them, with ``__`` for the dot.

    Attributes:
        tester: Where the clients of the test live.
        logged: All that was logged.
        held: Pairs of names between which nothing passes.
        vanished: Ports at which not even a refusal answers.
    """

    def __init__(self, path: Path, brokers: int = 2, **settings: Any) -> None:
        self.path = path
        self.settings = settings
        self.ports: dict[int, Port] = {}
        self.wires: list[Wire] = []
        self.held: set[frozenset[str]] = set()
        self.vanished: set[int] = set()
        self.dialed = 0
        self.tester = Machine(self, _TESTER)
        self.processes: dict[str, Process] = {}
        self.clients: list[Client] = []
        self.logged = LogKeeper()
        globalLogPublisher.addObserver(self.logged)
        self._observed = True
        self._asking: dict[str, Client] = {}
        self.add("meta", role="meta")
        for number in range(1, brokers + 1):
            self.add(f"b{number}", role="broker", meta=("meta",))

    def add(
        self, name: str, *, role: str, meta: tuple[str, ...] = (), data: str = "", **settings: Any
    ) -> Process:
        """
        Make room for a process, without starting it.

        Args:
            name: Its name.
            role: Its role.
            meta: The names of its MetaServers.
            data: The name of its data folder, if that is another's.
            **settings: Others, with ``__`` for the dot.
        """
        values = {
            "broker.name": name,
            "cluster.role": role,
            "cluster.meta": tuple("{}:{}".format(*self[each].address) for each in meta),
            "storage.data": str(self.path / (data or name)),
            "network.listen": (f"tcp:{_PORT + len(self.processes)}:interface=127.0.0.1",),
            "web.listen": None,
        }
        given = {
            key.replace("__", "."): value for key, value in {**self.settings, **settings}.items()
        }
        process = Process(self, name, DEFAULT_CONFIG.changed({**values, **given}))
        self.processes[name] = process
        return process

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    @property
    def meta(self) -> MetaServer:
        """The MetaServer."""
        return self["meta"].meta

    @property
    def texts(self) -> list[str]:
        """What was logged, for people."""
        return self.logged.texts

    def said(self, text: str) -> int:
        """How many lines of the log hold a text."""
        return sum(text in line for line in self.texts)

    # --- life -------------------------------------------------------------------

    def start(self, *names: str) -> Self:
        """Start processes, all by default; the MetaServer first."""
        for name in names or tuple(self.processes):
            self[name].start()
        return self

    def close(self) -> None:
        """Stop everything; nothing may be left, and nothing may have failed unforeseen."""
        self.held.clear()
        self.vanished.clear()
        for wire in self.wires:
            wire.hear()
        for process in self.processes.values():
            process.still = process.refuses = False
        self.settle()
        try:
            for client in self.clients:
                self.run(client.close())
            for process in reversed(self.processes.values()):
                if process.running:
                    process.stop()
            assert self.tester.reactor.getDelayedCalls() == []
            assert [each for each in self.logged.texts if "Traceback" in each] == []
            assert self.logged.failures == []
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything, however it stands."""
        if self._observed:
            self._observed = False
            globalLogPublisher.removeObserver(self.logged)
        for process in self.processes.values():
            if process.running:
                process.kill()

    # --- time -------------------------------------------------------------------

    def _machines(self) -> Iterator[Machine]:
        yield from self.processes.values()
        yield self.tester

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(_ROUNDS):
            if not self._move():
                return
        raise RuntimeError("it never settles: something schedules itself without a delay")

    def _move(self) -> bool:
        """Let every machine have one turn, and every wire; say whether there was anything to do."""
        moved = False
        for machine in self._machines():
            moved |= not machine.still and machine.reactor.run_due()
        for wire in tuple(self.wires):
            moved |= wire.move()
        self.wires = [wire for wire in self.wires if wire.alive]
        return moved

    def _next_due(self) -> float | None:
        times = (
            call.getTime()
            for machine in self._machines()
            if not machine.still
            for call in machine.reactor.calls
        )
        return min(times, default=None)

    def _move_to(self, moment: float) -> None:
        for machine in self._machines():
            machine.reactor.rightNow = max(machine.reactor.rightNow, moment)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.tester.reactor.seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        until = self.now + seconds
        self.settle()
        while (due := self._next_due()) is not None and due <= until:
            self._move_to(due)
            self.settle()
        self._move_to(until)

    def run(self, waiting: Awaitable[T], timeout: float = PATIENCE) -> T:
        """Let time pass until something has an outcome, and return or raise that."""
        outcome = self.begin(waiting)
        until = self.now + timeout
        self.settle()
        while not outcome:
            due = self._next_due()
            if due is None or due > until:
                raise TimeoutError(f"no outcome within {timeout:g} s of the fake clock")
            self._move_to(due)
            self.settle()
        return self.result(outcome)  # type: ignore[no-any-return]

    @staticmethod
    def result(outcome: list[Any]) -> Any:
        """Return or raise the outcome of what `begin` began."""
        (result,) = outcome
        if isinstance(result, Failure):
            result.raiseException()
        return result

    def begin(self, waiting: Awaitable[Any]) -> list[Any]:
        """Begin to wait, and return a list that gets the outcome, for `result`."""
        outcome: list[Any] = []

        async def wait() -> Any:
            return await waiting

        Deferred.fromCoroutine(wait()).addBoth(outcome.append)
        return outcome

    def until(self, holds: Callable[[], object], timeout: float = PATIENCE) -> float:
        """Let time pass until something holds, to the turn, and return how long that took."""
        began = self.now
        while not holds():
            if self._move():
                continue
            due = self._next_due()
            if due is None or due > began + timeout:
                raise TimeoutError(f"it did not come to hold within {timeout:g} s")
            self._move_to(due)
        return self.now - began

    # --- breaking ---------------------------------------------------------------

    def wires_of(self, *names: str) -> list[Wire]:
        """The connections in which all of these take part."""
        return [wire for wire in self.wires if wire.names.issuperset(names)]

    def cut(self, one: str, other: str, *, deaf: str = "") -> list[Wire]:
        """
        Cut the connections between two.

        Args:
            one: A name.
            other: Another.
            deaf: Who of them does not hear of it, until `Wire.hear`.
        """
        found = self.wires_of(one, other)
        for wire in found:
            wire.end(deaf=deaf)
        self.settle()
        return found

    def hold(self, one: str, other: str) -> None:
        """Let nothing pass between two, though connections stay."""
        self.held.add(frozenset((one, other)))

    def release(self, one: str, other: str) -> None:
        """Let everything pass between two again."""
        self.held.discard(frozenset((one, other)))
        self.settle()

    def holds(self, wire: Wire) -> bool:
        """Whether nothing passes over a wire."""
        return wire.names in self.held

    # --- asking -----------------------------------------------------------------

    def client(self, *names: str, **config: Any) -> Client:
        """A client of the test's, that knows some processes."""
        places = ",".join("{}:{}".format(*self[name].address) for name in names)
        client = self.tester.client(f"tinymq://{places}", ClientConfig(**config))
        self.clients.append(client)
        return client

    def ask(self, process: str, operation: str, /, **arguments: Any) -> Deferred[dict[str, Any]]:
        """Ask a process for an operation, over the wire."""
        if process not in self._asking:
            self._asking[process] = self.client(process)
        return self._asking[process].admin.operate(operation, **arguments)

    def operate(self, process: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask a process for an operation, over the wire, and wait for the answer."""
        return self.run(self.ask(process, operation, **arguments))

    def publish(self, client: Client, topic: str, *values: bytes, **place: Any) -> None:
        """Publish records and wait until they are stored."""
        producer = client.producer()
        for value in values:
            self.run(producer.send(topic, value, **place))
        self.run(producer.close())

    def read(self, client: Client, topic: str, count: int) -> list[bytes | None]:
        """Read so many records from the beginning of a topic."""
        consumer, found = client.consumer(), list[bytes | None]()
        self.run(consumer.assign(topic))
        while len(found) < count:
            batch = self.run(consumer.next_batch())
            assert batch is not None
            found += [record.value for record in batch]
        consumer.close()
        return found
