"""One broker, as the MetaServer's process asks it."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.logs import Logs
from tinymq.node.clients import CLIENT_OPERATIONS, Clients
from tinymq.node.partitions import PARTITION_OPERATIONS, Partitions
from tinymq.node.process import PROCESS_OPERATIONS, Process
from tinymq.operation import Operation


class Node(Partitions, Process, Clients):
    """
    What one broker does and tells.

    Args:
        broker: The domain.
        logs: Where log lines go, if their level can be changed.
    """

    def __init__(self, broker: Broker, logs: Logs | None = None) -> None:
        self._broker = broker
        self._logs = logs


#: Everything that a broker can be asked for by the MetaServer's process.
NODE_OPERATIONS: Final[dict[str, Operation]] = {
    **PARTITION_OPERATIONS,
    **PROCESS_OPERATIONS,
    **CLIENT_OPERATIONS,
}
