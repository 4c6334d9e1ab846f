"""Being a broker whose MetaServer is elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.broker.ports import Timer
from tinymq.client.core.config import ClientConfig
from tinymq.cluster.forwarding import Forwarding
from tinymq.cluster.graves import Graves
from tinymq.cluster.identity import META_FILE, REPLICA_FILE, read_number, write_number
from tinymq.cluster.nodes import ClusterNodes
from tinymq.cluster.remote import Member, RemoteMeta
from tinymq.cluster.spare import SpareIds
from tinymq.config import Config
from tinymq.errors import (
    ConfigError,
    MetaUnavailable,
    Overloaded,
    StateError,
    StorageError,
    TinyMQError,
)
from tinymq.ground import Ground
from tinymq.meta.replica import Replica
from tinymq.node import Node
from tinymq.stats import BROKER_CLIENT
from tinymq.storage.folder import DataFolder

#: Seconds that another process may still hold this broker's number: that of a
#: machine which died without a word is free after its lease.
HELD_SECONDS: Final = 20.0
#: Seconds between attempts to register while starting.
PAUSE_SECONDS: Final = 0.5
#: Seconds after which the broker's load is looked at anew: that counts all its partitions.
LOAD_SECONDS: Final = 1.0
#: Seconds between two lines about a MetaServer that does not answer.
REMIND_SECONDS: Final = 10.0
#: How many times as long as it took to keep the replica nobody waits for that again.
SAVE_SHARE: Final = 50
#: Most seconds between two times.
MOST_SAVE_PAUSE: Final = 3.0

#: A MetaServer that never answered is not waited for: the replica serves at once.
_CONFIG: Final = ClientConfig(
    client_id=BROKER_CLIENT,
    connect_timeout_s=3,
    request_timeout_s=8,
    deadline_s=8,
    wait_for_broker=False,
)


class FarMeta:
    """
    The MetaServer as a process of the role ``broker`` has it.

    Args:
        ground: What the process stands on.
        config: All settings.
        folder: The data folder.
        opened: Closes what was opened, if the start fails.

    Raises:
        ConfigError: The data folder belongs to a process of another role.

    Attributes:
        directory: What the broker of this process asks.
        spare: Producer ids put by.
    """

    _log = Logger()

    def __init__(
        self, ground: Ground, config: Config, folder: DataFolder, opened: ExitStack
    ) -> None:
        self._ground = ground
        self._reactor = ground.reactor
        self._folder = folder
        self._path = f"{folder.path}/{REPLICA_FILE}"
        self._check_folder()
        self._replica = Replica.load(folder.disk, self._path)
        self.spare = SpareIds(folder)
        self._number = read_number(folder) or 0
        self._places = ", ".join(config.cluster.meta)
        url = "tinymq://" + ",".join(config.cluster.meta)
        self.directory = RemoteMeta(
            ground.reactor,
            partial(ground.client, url, _CONFIG),
            self._replica,
            config,
            self,
        )
        self._broker: Broker | None = None
        self._load: dict[str, Any] = {}
        self._loaded_at = -LOAD_SECONDS
        self._unkept = False
        self._reminded_at: float | None = None
        #: From when on the replica may be kept again, and the timer that waits for it.
        self._save_from = 0.0
        self._saving: Timer | None = None

    def _check_folder(self) -> None:
        disk, path = self._folder.disk, self._folder.path
        if disk.exists(f"{path}/{META_FILE}"):
            raise ConfigError(
                f"the data folder {path} belongs to a process with a MetaServer of its own; "
                "start it with --role all (or meta), or give another folder"
            )

    @property
    def is_new(self) -> bool:
        """Whether this data folder was never used."""
        return self._number == 0

    def join(self, broker: Broker, node: Node) -> Forwarding:
        """
        Take the broker of this process in.

        Args:
            broker: It.
            node: What it does with its partitions.

        Returns:
            Its operations.
        """
        self._broker = broker
        broker.id = self._number
        known = self._replica.registry.brokers.get(self._number)
        if known is not None:
            broker.name = known.name
        self._nodes = ClusterNodes(self._ground.client, self.directory, None, node)
        broker.neighbours = Graves(self._nodes)
        return Forwarding(broker, node, self.directory)

    def enter(self) -> Deferred[None]:
        """
        Register; with what was known last time, if the MetaServer does not answer.

        Returns:
            What ends when the broker may open its partitions, or with a
            `ConfigError` if another process has its number or name.
        """
        return Deferred.fromCoroutine(self._enter())

    async def _enter(self) -> None:
        refused_at: float | None = None
        while True:
            try:
                await self._register()
            except (MetaUnavailable, Overloaded, StorageError) as error:
                if self._number and not self._replica.is_empty:
                    self._log.warn(
                        "the MetaServer at {places} cannot take this broker: {error}; "
                        "starting with what is known from before",
                        places=self._places,
                        error=error,
                    )
                    return
                self._remind("waiting for the MetaServer at {places}: {error}", error)
            except StateError as error:
                refused_at = refused_at or self._reactor.seconds()
                if not error.retriable or self._reactor.seconds() - refused_at > HELD_SECONDS:
                    raise ConfigError(error.text) from error
                self._remind("the MetaServer at {places} says: {error}; trying again", error)
            else:
                return
            await deferLater(self._reactor, PAUSE_SECONDS)

    async def _register(self) -> None:
        """Be a member, with a number that is this data folder's, and know what there is."""
        broker = self._broker
        assert broker is not None
        member = await self.directory.register(broker.id, broker.address)
        self.registered(member)
        if member.id != self._number:  # kept at once, or the next attempt would get another one
            self._number = broker.id = member.id
            write_number(self._folder, member.id)
        self.spare.take()  # in a folder that was copied or restored, it may have been used
        await self.directory.catch_up()

    def _remind(self, text: str, error: Exception) -> None:
        """Log why the start takes so long, now and then."""
        now = self._reactor.seconds()
        if self._reminded_at is None or now - self._reminded_at >= REMIND_SECONDS:
            self._reminded_at = now
            self._log.warn(text, places=self._places, error=error)

    def start(self) -> None:
        """Follow the MetaServer."""
        broker = self._broker
        assert broker is not None
        self.directory.start(broker.id, broker.address)

    def pause(self) -> None:
        """Do nothing: following goes on until the broker leaves."""

    async def leave(self) -> None:
        """Let the broker be gone."""
        await self._nodes.stop()
        await self.directory.stop()
        if self._saving is not None and self._saving.active():
            self._saving.cancel()
        self._save()

    def registered(self, member: Member) -> None:
        """Take the name that the MetaServer gave, and publish again."""
        assert self._broker is not None
        self._broker.name = member.name
        self._broker.refuse(None, "cluster")

    def refused(self, error: StateError) -> None:
        """Publish nothing while another process may have the same partitions."""
        assert self._broker is not None
        self._broker.refuse(error, "cluster")

    @property
    def load(self) -> dict[str, Any]:
        """How much the broker has to do, as of the last second: it is told with every question."""
        now = self._reactor.seconds()
        if self._broker is not None and now >= self._loaded_at + LOAD_SECONDS:
            self._load, self._loaded_at = self._broker.load, now
        return self._load

    @property
    def used_channels(self) -> list[int]:
        """What the temporary channels live by that somebody subscribes to."""
        return [] if self._broker is None else self._broker.channels.used_leases()

    def save(self) -> None:
        """
        Keep what is known, for the next start: soon, where it was kept a moment ago.

        With thousands of topics it is megabytes, and everybody here waits meanwhile.
        """
        if self._saving is None or not self._saving.active():
            left = self._save_from - self._reactor.seconds()
            if left > 0:
                self._saving = self._reactor.callLater(left, self._save)
            else:
                self._save()

    def _save(self) -> None:
        began = self._reactor.seconds()
        try:
            self._replica.save(self._folder.disk, self._path)
        except (OSError, TinyMQError) as error:
            if not self._unkept:
                self._log.error("what is known of topics cannot be kept: {error}", error=error)
            self._unkept = True
        else:
            self._unkept = False
        ended = self._reactor.seconds()
        self._save_from = ended + min(SAVE_SHARE * (ended - began), MOST_SAVE_PAUSE)
