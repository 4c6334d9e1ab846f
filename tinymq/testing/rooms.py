"""The rooms of a broker, put together as `tinymq.service` does, without a reactor."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from tinymq.broker.broker import Broker
from tinymq.broker.directory import LocalDirectory
from tinymq.broker.housekeeping import Housekeeping
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import InlineBackground, World
from tinymq.cluster.keeping import Keeping
from tinymq.cluster.nodes import LocalNode
from tinymq.config import Config
from tinymq.errors import ShuttingDown
from tinymq.meta.server import Clocks, MetaServer
from tinymq.meta.store import Store
from tinymq.node import Node
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory
from tinymq.storage.folder import DataFolder
from tinymq.testing.clock import InsideClock, Time
from tinymq.testing.disk import GatedSyncer, StageDisk
from tinymq.testing.links import BROKER_ADDRESS

#: The broker's number.
BROKER_ID: Final = 1
_STOPPING: Final = "the broker is stopping; connect again in a moment"


class QuickStore(Store):
    """A store that does not wait for the disk: `power_cut` takes it as it is."""

    def __init__(self, file: Path, clock: InsideClock) -> None:
        super().__init__(file, monotonic=clock.seconds)
        assert self._connection is not None
        self._connection.execute("PRAGMA synchronous = OFF")


class Rooms:
    """
    One run of the broker, from start to stop or kill.

    Args:
        data: The data folder.
        disk: Its disk, which is released at the end.
        config: All settings.
        time: The clock.
        chance: Makes ids.
    """

    def __init__(
        self, data: Path, disk: StageDisk, config: Config, time: Time, chance: Random
    ) -> None:
        self.clock = InsideClock(time)
        self.disk = disk
        self.syncer = GatedSyncer(disk)
        self.folder = DataFolder.open(str(data), disk, config.storage.max_open_files)
        self.meta_store = QuickStore(data / "meta.sqlite", self.clock)
        clocks = Clocks(wall=lambda: time.wall_ms / 1000, entropy=chance.randbytes)
        self.meta = MetaServer(self.meta_store, config, clocks)
        world = World(self.clock, lambda: time.wall_ms, InlineBackground())
        store = PartitionStore(self.folder, config.limits, config.producers)
        self.broker = Broker(config, LocalDirectory(self.meta), store, world, self.syncer)
        self.broker.id = BROKER_ID
        self.broker.address = BROKER_ADDRESS.host, BROKER_ADDRESS.port
        node = Node(self.broker)
        operations = Operations(self.broker, self.meta, LocalNode(node))
        self.factory = node.connected = BrokerFactory(self.broker, operations)
        self.housekeeping = Housekeeping(self.broker)
        self.keeping = Keeping(self.meta, self.broker)
        self.keeping.register()
        self.broker.open()
        self.housekeeping.start()
        self.keeping.start()

    def refuse(self) -> None:
        """Begin to stop: take no connection and no publish."""
        self.factory.refuse(_STOPPING)
        self.broker.refuse(ShuttingDown(_STOPPING))
        self.broker.channels.rest()
        self.syncer.release()

    def say_goodbye(self) -> None:
        """Tell every client that the broker stops."""
        self.factory.close_all(_STOPPING)

    def close(self) -> None:
        """End the stop, after what was taken has been stored and answered."""
        broker, partitions = self.broker, self.broker.partitions()
        self.housekeeping.stop()
        broker.committer.sync_all([each for each in partitions if each.failure is None])
        broker.committer.stop()
        for partition in partitions:
            partition.close(ShuttingDown(_STOPPING))
        broker.store.close(partitions)
        broker.close()
        self.keeping.stop()
        self.keeping.leave()
        self.meta.close()
        self.meta_store.close()
        self.clock.stop()

    def kill(self) -> None:
        """End at once: nothing is stored, synced or said any more."""
        self.clock.stop()
        self.folder.close()
        self.broker.store.close_index()
        self.meta_store.close()
