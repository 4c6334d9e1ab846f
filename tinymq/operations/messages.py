"""Single messages: what became of one."""

from __future__ import annotations

from typing import Final

from tinymq.catalog import PUBLIC
from tinymq.node.partitions import check_partition
from tinymq.operation import Operation, Result, table
from tinymq.operations.leaders import Leaders


class Messages(Leaders):
    """Messages over all brokers."""

    async def life(self, topic: str, partition: int, offset: int) -> Result:
        """Tell what the channels of a topic did with one message."""
        owner = self.find(topic)
        check_partition(topic, owner.partitions, partition)
        arguments = {"id": owner.id.hex(), "partition": partition, "offset": offset}
        leader = owner.leader(partition)
        return await self._ask_alone(leader, "node.message_life", arguments)


MESSAGE_OPERATIONS: Final[dict[str, Operation]] = table(PUBLIC["message.life"].by(Messages.life))
