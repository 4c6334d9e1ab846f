"""Asking the leaders of a topic's partitions: all of them, or that of one."""

from __future__ import annotations

from typing import Any

from tinymq.errors import BrokerSilent, ShuttingDown
from tinymq.meta.registry import Topic
from tinymq.node import NODE_OPERATIONS
from tinymq.node.partitions import check_partition
from tinymq.operation import PARTITION
from tinymq.operations.base import Answers, Base


class Leaders(Base):
    """The leaders of a topic's partitions."""

    def find(self, name: str) -> Topic:
        """
        Find a topic by its name.

        Raises:
            InvalidName: The name breaks the rule.
            UnknownTopic: There is none.
        """
        return self._meta.describe(name)

    def _check_running(self) -> None:
        if isinstance(self._broker.refusing, ShuttingDown):
            raise self._broker.refusing.with_traceback(None)

    async def _need_all(self, topic: Topic, partition: int | None, done: str) -> None:
        """Refuse to do half of something: every leader must answer."""
        check_partition(topic.name, topic.partitions, partition)
        answers = await self._ask_leaders(topic, "node.partitions", partition=partition)
        for broker_id, why in answers.silent.items():
            led = [index for index, leader in enumerate(topic.leaders) if leader == broker_id]
            raise BrokerSilent(
                f"{self._broker_name(broker_id)} leads partitions {listed(led)} of {topic.name} "
                f"and does not answer ({why}); nothing was {done}, try again when it is back",
                broker=broker_id,
            )

    async def _ask_leaders(
        self, topic: Topic, operation: str, partition: int | None = None, **arguments: Any
    ) -> Answers:
        leaders = topic.leaders if partition is None else (topic.leader(partition),)
        if any(each is PARTITION for each in NODE_OPERATIONS[operation].parameters):
            arguments["partition"] = partition
        return await self._ask(leaders, operation, {"id": topic.id.hex(), **arguments})


def listed(numbers: list[int]) -> str:
    """Write numbers one after the other."""
    return ", ".join(str(number) for number in numbers)
