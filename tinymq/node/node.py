"""One broker, as the MetaServer's process asks it."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.figures.reports import Reporter
from tinymq.figures.vitals import Vitals
from tinymq.logs import Logs
from tinymq.node.channels import CHANNEL_OPERATIONS, Channels
from tinymq.node.clients import CLIENT_OPERATIONS, Clients
from tinymq.node.coordination import COORDINATION_OPERATIONS, Coordination
from tinymq.node.deadletters import DEAD_LETTER_OPERATIONS, DeadLetters
from tinymq.node.delayed import DELAYED_OPERATIONS, DelayedMessages
from tinymq.node.endpoints import ENDPOINT_OPERATIONS, Endpoints, Pushing
from tinymq.node.groups import GROUP_OPERATIONS, Groups
from tinymq.node.hosting import Hosting
from tinymq.node.inflight import INFLIGHT_OPERATIONS, InFlight
from tinymq.node.life import LIFE_OPERATIONS, LifeLines
from tinymq.node.partitions import PARTITION_OPERATIONS, Partitions
from tinymq.node.process import PROCESS_OPERATIONS, Process
from tinymq.node.records import RECORD_OPERATIONS
from tinymq.node.retries import RETRY_OPERATIONS, Retries
from tinymq.node.routers import ROUTER_OPERATIONS, Routers
from tinymq.node.schedules import SCHEDULE_OPERATIONS, Schedules
from tinymq.node.telling import TELLING_OPERATIONS, Telling
from tinymq.node.transactions import TRANSACTION_OPERATIONS, Transactions
from tinymq.operation import Operation


class Node(
    Partitions,
    Channels,
    InFlight,
    DeadLetters,
    DelayedMessages,
    Retries,
    Routers,
    LifeLines,
    Endpoints,
    Process,
    Clients,
    Telling,
    Schedules,
    Coordination,
    Groups,
    Transactions,
):
    """
    What one broker does and tells.

    Args:
        broker: The domain.
        logs: Where log lines go, if their level can be changed.

    Attributes:
        reporter: Makes reports of its partitions.
        vitals: Looks at its process.
        channel_host: What keeps the channels of its partitions.
        pushes: Sends messages to push endpoints; None where nobody does.
    """

    def __init__(self, broker: Broker, logs: Logs | None = None) -> None:
        self._broker = broker
        self._logs = logs
        self._uploads = {}
        self.reporter = Reporter(broker)
        self.vitals = Vitals(broker)
        self.channel_host = Hosting(broker)
        self.pushes: Pushing | None = None


#: Everything that a broker can be asked for by the MetaServer's process.
NODE_OPERATIONS: Final[dict[str, Operation]] = {
    **PARTITION_OPERATIONS,
    **CHANNEL_OPERATIONS,
    **INFLIGHT_OPERATIONS,
    **RECORD_OPERATIONS,
    **LIFE_OPERATIONS,
    **DEAD_LETTER_OPERATIONS,
    **ROUTER_OPERATIONS,
    **ENDPOINT_OPERATIONS,
    **DELAYED_OPERATIONS,
    **RETRY_OPERATIONS,
    **PROCESS_OPERATIONS,
    **CLIENT_OPERATIONS,
    **TELLING_OPERATIONS,
    **SCHEDULE_OPERATIONS,
    **COORDINATION_OPERATIONS,
    **GROUP_OPERATIONS,
    **TRANSACTION_OPERATIONS,
}
