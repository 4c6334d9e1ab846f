"""What the channels of a partition that is here did with one message."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.errors import StateError
from tinymq.node.partitions import topic_key
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.fields import I64, PARTITION, integer, text


class Lives:
    """The lives of messages."""

    _broker: Broker

    async def message_life(self, id: str, partition: int, offset: int) -> Result:  # noqa: A002
        """Tell what channels did with a message."""
        self._broker.partition(topic_key(id), partition)
        raise StateError("not yet")


LIFE_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.message_life",
        "cluster",
        False,
        (
            Parameter("id", text(32)),
            Parameter("partition", PARTITION),
            Parameter("offset", integer(0, I64)),
        ),
        Lives.message_life,
    ),
)
