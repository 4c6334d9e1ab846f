"""Brokers: which there are, how they are, and taking one out of placement."""

from __future__ import annotations

from typing import Final

from tinymq.errors import BrokerSilent
from tinymq.node.process import LEVEL
from tinymq.operation import BROKER, DRY, Operation, Result, table
from tinymq.operations.base import Base


class Brokers(Base):
    """The brokers of the cluster."""

    async def broker_info(self, broker: str | None) -> Result:
        """Describe a broker, and whether it takes publishing."""
        return await self._one(broker, "node.info")

    async def log_level(self, level: str, broker: str | None, *, dry_run: bool) -> Result:
        """Change which log lines a broker writes, until its next start."""
        return await self._one(broker, "node.log_level", level=level, dry_run=dry_run)

    async def _one(self, broker: str | None, operation: str, **arguments: object) -> Result:
        """Ask one broker; without a name, the one of this process."""
        broker_id = self._broker.id if broker is None else self._named_broker(broker)
        answers = await self._ask([broker_id], operation, arguments)
        if broker_id in answers.silent:
            name, why = self._broker_name(broker_id), answers.silent[broker_id]
            raise BrokerSilent(f"{name} does not answer ({why})", broker=broker_id)
        return answers.results[broker_id]


BROKER_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("broker.info", "viewer", False, (BROKER,), Brokers.broker_info),
    Operation("broker.log_level", "admin", True, (LEVEL, BROKER, DRY), Brokers.log_level),
)
