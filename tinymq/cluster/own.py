"""Being the MetaServer: its store, its clockwork, and the operations of the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tinymq.broker.broker import Broker
from tinymq.broker.directory import LocalDirectory
from tinymq.cluster.announcer import Announcer
from tinymq.cluster.graves import Graves
from tinymq.cluster.identity import META_FILE, REPLICA_FILE, read_number, write_number
from tinymq.cluster.keeping import Keeping
from tinymq.cluster.nodes import ClusterNodes
from tinymq.config import Config
from tinymq.errors import ConfigError
from tinymq.ground import Ground
from tinymq.meta.server import Clocks, MetaServer
from tinymq.meta.store import Store
from tinymq.node import Node
from tinymq.operations import Operations
from tinymq.storage.folder import DataFolder


class OwnMeta:
    """
    The MetaServer of this process, of the role ``all`` or ``meta``.

    Args:
        ground: What the process stands on.
        config: All settings.
        folder: The data folder.
        opened: Closes what was opened, if the start fails.

    Raises:
        ConfigError: The data folder belongs to a process of another role.
        StorageError: The store cannot be used.

    Attributes:
        meta: The MetaServer.
        directory: What the broker of this process asks.
        nodes: The way to all brokers, once that of this process was taken in.
    """

    def __init__(
        self, ground: Ground, config: Config, folder: DataFolder, opened: ExitStack
    ) -> None:
        self._ground = ground
        self._folder = folder
        self._leads = config.cluster.role == "all"
        self._check_folder()
        self._store = Store(
            Path(folder.path) / META_FILE,
            monotonic=ground.reactor.seconds,
        )
        opened.callback(self._store.close)
        self.meta = MetaServer(self._store, config, Clocks(wall=lambda: ground.wall() / 1000))
        self.directory = LocalDirectory(self.meta)

    def _check_folder(self) -> None:
        disk, path = self._folder.disk, self._folder.path
        if disk.exists(f"{path}/{REPLICA_FILE}"):
            raise ConfigError(
                f"the data folder {path} belongs to a broker whose MetaServer is elsewhere; "
                "start it with --role broker --meta HOST:PORT, or give another folder"
            )
        if self._folder.topics() and not disk.exists(f"{path}/{META_FILE}"):
            raise ConfigError(
                f"{path}/{META_FILE} is missing: restore it from a backup; or, if this broker's "
                "MetaServer is elsewhere, start it with --role broker --meta HOST:PORT"
            )
        if not self._leads and self._folder.topics():
            raise ConfigError(
                f"the data folder {path} holds partitions, and a MetaServer alone serves none; "
                "start it with --role all, or give another folder"
            )

    @property
    def is_new(self) -> bool:
        """Whether this data folder was never used."""
        return read_number(self._folder) is None and self.meta.registry.revision <= 1

    def join(self, broker: Broker, node: Node) -> Operations:
        """
        Take the broker of this process in.

        Args:
            broker: It; gets its number.
            node: What it does with its partitions.

        Returns:
            The operations of the cluster.
        """
        if self._leads:
            broker.id = read_number(self._folder) or 0
            if not broker.id:
                broker.id = self.meta.new_broker_id()
                write_number(self._folder, broker.id)
        self._keeping = Keeping(self.meta, broker)
        self._announcer = Announcer(self._ground, self.meta, broker)
        self.nodes = ClusterNodes(self._ground.client, self.meta, broker.id, node)
        broker.neighbours = Graves(self.nodes)
        return Operations(broker, self.meta, self.nodes)

    def enter(self) -> None:
        """Register the broker of this process."""
        self._keeping.register()

    def start(self) -> None:
        """Begin what is done by the clock."""
        self._keeping.start()
        self._announcer.start()

    def pause(self) -> None:
        """End what is done by the clock."""
        self._keeping.stop()

    async def leave(self) -> None:
        """Let the broker be gone, and close the store."""
        await self._announcer.stop()
        await self.nodes.stop()
        self._keeping.leave()
        self.meta.close()
        self._store.close()
