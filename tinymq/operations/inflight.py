"""Members of channels, and single messages of running channels, over all brokers."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.node.partitions import check_partition
from tinymq.operation import Operation, Result, table
from tinymq.operations.channels import Channels


class InFlight(Channels):
    """Who takes messages, what they hold, and what becomes of it."""

    async def members(self, topic: str, name: str) -> Result:
        """List who takes messages of a channel."""
        self._find_channel(topic, name)
        return {"members": [], "silent": []}

    async def peek(
        self,
        topic: str,
        name: str,
        partition: int | None,
        state: str,
        limit: int,
        after: str | None,
    ) -> Result:
        """Look at unsettled messages of a channel, without any effect."""
        owner, _ = self._find_channel(topic, name)
        check_partition(topic, owner.partitions, partition)
        return {"messages": [], "more": False, "after": None, "silent": []}

    async def in_flight(self, topic: str | None, name: str | None, **wanted: Any) -> Result:
        """List messages in the hands of consumers, the oldest first."""
        if topic is not None:
            self.find(topic)
        return {"messages": [], "more": False, "after": None, "total": 0, "silent": []}

    async def settle(self, topic: str, name: str, partition: int, **wanted: Any) -> Result:
        """Requeue, finish, extend or give up messages in flight."""
        owner, _ = self._find_channel(topic, name)
        check_partition(topic, owner.partitions, partition)
        return {"done": [], "missing": wanted["offsets"], "dry_run": wanted["dry_run"]}


INFLIGHT_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["channel.members"].by(InFlight.members),
    PUBLIC["channel.peek"].by(InFlight.peek),
    PUBLIC["inflight.list"].by(InFlight.in_flight),
    PUBLIC["inflight.settle"].by(InFlight.settle),
)
