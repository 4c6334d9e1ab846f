"""What the routers of a broker's partitions do, for those who look at exchanges."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.operation import Operation, Result, table


class Routers:
    """Reports of routers; only partitions that are here count."""

    _broker: Broker

    def routers(self) -> Result:
        """Say of every partition of an exchange how far its copies are, and what is stuck."""
        channels = self._broker.channels
        now = channels.now()
        return {
            "rows": [
                hosted.router.told(now) for hosted in channels.all() if hosted.router is not None
            ]
        }


ROUTER_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.routers", "cluster", False, (), Routers.routers),
)
