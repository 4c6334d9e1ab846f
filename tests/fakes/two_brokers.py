"""A broker with the MetaServer, and another one, asked through what could be a wire."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
from twisted.internet.defer import Deferred

from tests.fakes.broker import BrokerDisk, BrokerFixture
from tinymq.broker.broker import Broker
from tinymq.broker.directory import LocalDirectory
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import InlineBackground, World
from tinymq.cluster.nodes import LocalNode
from tinymq.config import Config
from tinymq.console import BrokerConsole
from tinymq.node import Node
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory
from tinymq.storage.folder import DataFolder
from tinymq.storage.sync import InlineSyncer
from tinymq.wire.codec import MAX_META


class TwoBrokers:
    """
    Broker 1 with MetaServer and console, and broker 2, which is called `two`.

    Attributes:
        here: The first.
        node: What the second does.
        console: Sees both.
        asked: Operations that the second was asked for.
        trouble: What its answers end with; None when it answers.
        mute: Whether it says nothing at all.
    """

    def __init__(self, path: Path) -> None:
        self.here = BrokerFixture(path / "one")
        here = self.here
        config: Config = here.config.changed({"broker.name": "two"})
        disk = BrokerDisk()
        self.folder = DataFolder.open(str(path / "two"), disk)
        world = World(here.clock, here.wall, InlineBackground())
        store = PartitionStore(self.folder, config.limits, config.producers)
        broker = Broker(config, LocalDirectory(here.meta), store, world, InlineSyncer(disk))
        broker.id = 2
        here.meta.register(2, "two", ("192.0.2.2", 7800), takeover=True)
        broker.open()
        self.broker = broker
        self.node = Node(broker)
        self.factory = self.node.connected = BrokerFactory(broker, here.operations)
        self.asked: list[str] = []
        self.trouble: Exception | None = None
        self.mute = False
        self._far = LocalNode(self.node)
        here.operations = Operations(here.broker, here.meta, self)
        self.console = BrokerConsole(here.broker, here.operations, here.node, self)
        here.operations.board = self.console.board

    async def ask(
        self, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Ask one of them; to the second everything travels."""
        if broker_id == 1:
            return await self.here.nodes.ask(1, operation, arguments)
        self.asked.append(operation)
        if self.trouble is not None:
            raise self.trouble
        sent = msgpack.packb(dict(arguments))
        assert len(sent) <= MAX_META
        result = await self._far.ask(2, operation, msgpack.unpackb(sent))
        if self.mute:  # it was done, and nobody heard
            await Deferred()
        found: dict[str, Any] = msgpack.unpackb(msgpack.packb(result))
        return found

    def second(self) -> None:
        """Let a second pass, and what is due in it."""
        self.here.wall.now_ms += 1000
        self.here.clock.advance(1)

    def close(self) -> None:
        """Let the second broker go."""
        self.broker.close()
        self.folder.close()
