"""
A broker inside your own process.

The producer's process holds the log; consumers find it through lookup servers
and talk to it directly, with no machine in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tinymq.client.core.address import Address, url_of
from tinymq.configfile import load
from tinymq.errors import ConfigError
from tinymq.service import BrokerService, NotStarted


class EmbeddedBroker:
    """
    A whole broker that runs on the reactor of this process.

    It has its own MetaServer and data folder and is nobody's member; the lookup
    servers are told which topics it has.

    Args:
        reactor: Twisted's reactor, running or about to.
        data: The folder that holds everything; one process at a time.
        lookup: Lookup servers, as ``HOST:PORT``; none if consumers know the address.
        listen: Where consumers connect: an endpoint string.
        **settings: Any other setting, with ``__`` for the dot:
            ``topics__partitions=4``, ``broker__name="billing"``.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(
        self,
        reactor: Any,
        data: Path | str,
        *,
        lookup: Sequence[str] = (),
        listen: str = "tcp:0:interface=127.0.0.1",
        **settings: Any,
    ) -> None:
        overrides = {name.replace("__", "."): value for name, value in settings.items()}
        overrides |= {
            "storage.data": str(data),
            "network.listen": (listen,),
            "web.listen": overrides.get("web.listen", "none"),
            "cluster.meta": tuple(lookup),
            # What our process is started with may be no Python that knows this module.
            "compaction.helper": overrides.get("compaction.helper", "thread"),
        }
        self._service = BrokerService(reactor, load(None, {}, overrides))
        self._service.quiet = True

    @property
    def url(self) -> str:
        """Where clients connect, once it was started; also for clients in this process."""
        return url_of([Address(*self._service.broker.address)])

    def start(self) -> None:
        """
        Open the data folder and listen.

        Raises:
            ConfigError: The data folder or the address cannot be used.
        """
        try:
            self._service.startService()
        except NotStarted as error:
            raise ConfigError(str(error)) from error

    def stop(self) -> Deferred[None]:
        """
        Bring everything to the disk and end.

        Returns:
            A Deferred that ends with None when the data folder is free again.
            It never fails; what went wrong is in the log.
        """
        return self._service.stopService()
