"""What all routers of a broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinymq.broker.routing.judging import Judging
from tinymq.broker.routing.tables import Tables

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker


class Routing:
    """
    What all routers of a broker share.

    Args:
        broker: The broker.

    Attributes:
        tables: Which targets a record has.
        judging: Looks through what is published.
    """

    def __init__(self, broker: Broker) -> None:
        self.tables = Tables(broker)
        self.judging = Judging(broker, self.tables)

    def close(self) -> None:
        """Do nothing by the clock any more."""
        self.judging.close()
