"""Several brokers and one MetaServer on one clock; links that are cut, kills and power cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import attrs
import msgpack
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from typing_extensions import override

from tests.broker.lives import LateSyncer
from tests.fakes.broker import Connection, Wall
from tinymq.broker.broker import Broker
from tinymq.broker.directory import LocalDirectory
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import InlineBackground, NoNeighbours, World
from tinymq.config import DEFAULT_CONFIG
from tinymq.errors import BrokerSilent, TinyMQError, WireError
from tinymq.meta.entries import Put
from tinymq.meta.registry import Topic
from tinymq.meta.server import Clocks, MetaServer
from tinymq.meta.store import Store
from tinymq.node import Node
from tinymq.operations import Operations, run_on_node
from tinymq.protocol import BrokerFactory
from tinymq.storage.folder import DataFolder
from tinymq.testing.disk import StageDisk, cut_power


class Member:
    """
    One broker.

    Args:
        ring: All of them.
        number: Its number.
    """

    def __init__(self, ring: Ring, number: int) -> None:
        self.ring = ring
        self.number = number
        self.path = ring.home / f"b{number}"
        self.journal = ring.home / f"b{number}.journal"
        self.life = 0
        self.running = False

    @property
    def meta(self) -> MetaServer:
        """The MetaServer."""
        return self.ring.meta

    def start(self) -> None:
        """Start it, on what its last life left."""
        self.life += 1
        self.running = True
        self.clock = Clock()
        self.disk = StageDisk(self.journal, self.path)
        self.syncer = LateSyncer(self.disk)
        self.folder = DataFolder.open(str(self.path), self.disk)
        config = DEFAULT_CONFIG
        store = PartitionStore(self.folder, config.limits, config.producers)
        world = World(self.clock, self.ring.wall, InlineBackground())
        self.broker = Broker(config, LocalDirectory(self.meta), store, world, self.syncer)
        self.broker.id = self.number
        self.broker.neighbours = Links(self.ring, self)
        self.node = Node(self.broker)
        operations = Operations(self.broker, self.meta, self.ring)
        self.factory = self.node.connected = BrokerFactory(self.broker, operations)
        self.meta.register(self.number, f"b{self.number}", ("192.0.2.1", 7800), takeover=True)
        self.broker.open()

    def kill(self) -> None:
        """Let it be gone, as by `kill -9`."""
        self.running = False
        self.life += 1
        for call in self.clock.getDelayedCalls():
            call.cancel()
        assert self.broker._unwatch is not None
        self.broker._unwatch()
        self.folder.close()
        self.broker.store.close_index()

    def cut_power(self, seed: int) -> None:
        """Let it be gone, and what was not synced with it."""
        self.kill()
        cut_power(self.path, self.journal, seed)

    def connect(self) -> Connection:
        """Connect to it."""
        return Connection(self.factory)

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()


@attrs.define
class Letter:
    """A question on its way from one broker to another."""

    source: Member
    life: int
    target: int
    operation: str
    arguments: bytes
    done: Callable[[dict[str, Any] | WireError], None]


class Links(NoNeighbours):
    """
    The way to the others.

    Args:
        ring: All of them.
        member: Whose way.
    """

    def __init__(self, ring: Ring, member: Member) -> None:
        self._ring = ring
        self._member = member

    @override
    def ask(
        self,
        broker_id: int,
        operation: str,
        arguments: Mapping[str, Any],
        done: Callable[[dict[str, Any] | WireError], None],
    ) -> None:
        packed = msgpack.packb(dict(arguments))
        letter = Letter(self._member, self._member.life, broker_id, operation, packed, done)
        self._ring.mail.append(letter)


class Ring:
    """
    Brokers 1 to `count`.

    Args:
        home: Where everything lies.
        rng: What happens.
        count: How many.
    """

    def __init__(self, home: Path, rng: Random, count: int = 3) -> None:
        self.home = home
        self.rng = rng
        self.wall = Wall()
        self._now = 0.0
        self.store = Store(home / "meta.sqlite", monotonic=lambda: self._now)
        connection = self.store._connection
        assert connection is not None
        connection.execute("PRAGMA synchronous = OFF")
        self.meta = MetaServer(self.store, DEFAULT_CONFIG, Clocks(wall=lambda: self.wall() / 1000))
        self.mail: list[Letter] = []
        #: Pairs of brokers between which nothing passes.
        self.cut: set[frozenset[int]] = set()
        self.members = {number: Member(self, number) for number in range(1, count + 1)}
        for member in self.members.values():
            member.start()

    @property
    def running(self) -> list[Member]:
        """Those that are there."""
        return [each for each in self.members.values() if each.running]

    async def ask(
        self, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Ask a broker, as the MetaServer's process does."""
        return await run_on_node(self.members[broker_id].node, operation, arguments)

    def topic(self, name: str, partitions: int, **settings: Any) -> Topic:
        """Make a topic that all lead in turn."""
        topic = self.meta.create_topic(name, partitions, settings, dry_run=True)
        numbers = [*self.members]
        leaders = tuple(numbers[index % len(numbers)] for index in range(partitions))
        made = attrs.evolve(topic, leaders=leaders)
        key = topic.id.hex()
        self.meta._write(
            [], [Put(f"topic/{key}", made.encode()), Put(f"name/{name}", key.encode())]
        )
        return self.meta.describe(name)

    def leader(self, topic: str, index: int) -> Member:
        """Who leads a partition."""
        return self.members[self.meta.describe(topic).leader(index)]

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self.wall.now_ms += round(1000 * seconds)
        for member in self.running:
            member.clock.advance(seconds)

    def deliver(self) -> None:
        """Let questions arrive that are on their way; some are lost, or their answers."""
        mail, self.mail = self.mail, []
        for letter in mail:
            if letter.life == letter.source.life:
                self._deliver(letter)

    def _deliver(self, letter: Letter) -> None:
        target = self.members[letter.target]
        silent = BrokerSilent(f"broker {letter.target} does not answer", broker=letter.target)
        cut = frozenset((letter.source.number, letter.target)) in self.cut
        # It may have arrived before the link was cut, and only the answer was lost.
        if not target.running or (cut and self.rng.randrange(2)):
            letter.done(silent)
            return
        life = target.life
        answered: list[bool] = []

        def told(found: dict[str, Any] | WireError) -> None:
            if answered or letter.life != letter.source.life:
                return
            answered.append(True)
            lost = cut or life != target.life
            letter.done(silent if lost else found)

        async def ask() -> None:
            arguments = msgpack.unpackb(letter.arguments)
            try:
                result = await run_on_node(target.node, letter.operation, arguments)
            except WireError as error:
                told(error.with_traceback(None))
            except TinyMQError:
                told(silent)
            else:
                told(msgpack.unpackb(msgpack.packb(result)))

        ensureDeferred(ask())
        # Who asks does not wait for ever.
        letter.source.clock.callLater(3, told, silent)

    def settle(self, seconds: float = 0) -> None:
        """Let everything happen that needs no time, and then some time pass."""
        for _ in range(4):
            for member in self.running:
                member.clock.advance(0)
                member.sync()
            self.deliver()
        if seconds:
            self.advance(seconds)

    def close(self) -> None:
        """Let everything go."""
        for member in self.running:
            member.kill()
        self.store.close()
