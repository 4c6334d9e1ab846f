"""What a process with a MetaServer does by the clock."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.broker.ports import Timer
from tinymq.errors import StateError, TinyMQError
from tinymq.meta.registry import BrokerInfo
from tinymq.meta.server import MetaServer

#: Seconds between two looks at who is silent.
TICK_SECONDS: Final = 1.0
#: How long the ids of deleted topics are kept, so that every broker hears of them.
DELETED_MS: Final = 30 * 24 * 3600 * 1000


class Keeping:
    """
    Keeps the broker of this process registered, and lets silent ones go.

    Args:
        meta: The MetaServer.
        broker: What answers clients here; its id is 0 if it leads nothing.
    """

    _log = Logger()

    def __init__(self, meta: MetaServer, broker: Broker) -> None:
        self._meta = meta
        self._broker = broker
        self._timer: Timer | None = None
        #: What the MetaServer knows the broker of this process by.
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
                broker.id, broker.name, broker.address, takeover=True
            )

    def start(self) -> None:
        """Begin."""
        self._meta.forget_deleted(self._broker.wall() - DELETED_MS)
        self._arm()

    def _arm(self) -> None:
        self._timer = self._broker.scheduler.callLater(TICK_SECONDS, self._due)

    def _due(self) -> None:
        self._arm()
        try:
            self.tick()
        except (OSError, TinyMQError) as error:
            self._log.error("keeping the registry failed: {error}", error=error)

    def tick(self) -> None:
        """Say that the own broker lives, then see who is silent."""
        if self.registration is not None:
            try:
                self._meta.heartbeat(self.registration)
            except StateError:
                # The process stood still for longer than the registration lasts.
                self._log.warn("this broker was taken for dead; it registers again")
                self.register()
        self._meta.expire()

    def stop(self) -> None:
        """End the clockwork; the registration stays."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def leave(self) -> None:
        """Let the broker of this process be gone."""
        if self.registration is not None:
            self._meta.leave(self.registration)
            self.registration = None
