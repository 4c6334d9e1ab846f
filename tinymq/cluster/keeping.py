"""What a process with a MetaServer does by the clock."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.clockwork import Clockwork
from tinymq.errors import TinyMQError
from tinymq.meta.placement import Load
from tinymq.meta.registry import BrokerInfo
from tinymq.meta.server import MetaServer

#: Seconds between two looks at who is silent.
TICK_SECONDS: Final = 1.0
#: A look that comes so many seconds late says that this process stood still.
LATE_SECONDS: Final = 3.0
#: How long the ids of deleted topics are kept, so that every broker hears of them.
DELETED_MS: Final = 30 * 24 * 3600 * 1000


class Keeping:
    """
    Keeps the broker of this process registered, and lets silent ones go.

    Args:
        meta: The MetaServer.
        broker: What answers clients here; its id is 0 if it leads nothing.

    Attributes:
        registration: What the MetaServer knows the broker of this process by.
    """

    _log = Logger()

    def __init__(self, meta: MetaServer, broker: Broker) -> None:
        self._meta = meta
        self._broker = broker
        self._clockwork = Clockwork(broker.scheduler)
        self.registration: BrokerInfo | None = None

    def register(self) -> None:
        """
        Register the broker of this process, whoever has its number.

        Nobody else can have it: the lock of the data folder is held.

        Raises:
            StorageError: The MetaServer's disk failed.
        """
        broker = self._broker
        if broker.id:
            self.registration = self._meta.register(
                broker.id,
                broker.name,
                broker.address,
                zone=broker.config.cluster.zone,
                version=__version__,
                takeover=True,
            )

    def start(self) -> None:
        """Begin."""
        self._meta.forget_deleted(self._broker.wall() - DELETED_MS)
        self._clockwork.every(TICK_SECONDS, self._due)

    def _due(self, late: float) -> None:
        try:
            if late > LATE_SECONDS:
                self._log.warn("this process stood still for {late:.0f} s", late=late)
                self._meta.forgive()
            self._tick()
        except (OSError, TinyMQError) as error:
            self._log.error("keeping the registry failed: {error}", error=error)

    def _tick(self) -> None:
        """Say that the own broker lives, then see who is silent."""
        if self.registration is not None:
            # Nobody compares a broker that is the only one.
            alone = len(self._meta.registry.brokers) == 1
            load = None if alone else Load.from_mapping(self._broker.load)
            self._meta.heartbeat(self.registration, load)
            self._meta.use_channels(self._broker.channels.used_leases())
        self._meta.expire()

    def stop(self) -> None:
        """End the clockwork; the registration stays."""
        self._clockwork.stop()

    def leave(self) -> None:
        """Let the broker of this process be gone."""
        if self.registration is not None:
            self._meta.leave(self.registration)
            self.registration = None
