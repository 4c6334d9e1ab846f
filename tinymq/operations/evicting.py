"""Sending members of consumer groups away, wherever these are coordinated."""

from __future__ import annotations

from typing import Final

from tinymq.catalog import PUBLIC
from tinymq.errors import StateError
from tinymq.groups.places import coordinator_of
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Base


class Evicting(Base):
    """Members of consumer groups."""

    async def evict_member(self, name: str, member: str, reason: str, *, dry_run: bool) -> Result:
        """Send a member away: what it reads is given to others at once."""
        self._registry.group(name)
        broker = coordinator_of(name, self._registry.brokers)
        if broker < 0:
            raise StateError(f"no broker lives that could look after the group {name}")
        wanted = {"name": name, "member": member, "reason": reason, "dry_run": dry_run}
        return {
            "member": await self._ask_alone(broker, "node.evict", wanted),
            "dry_run": dry_run,
        }


EVICTING_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["group.evict"].by(Evicting.evict_member),
)
