"""The groups that a broker coordinates: who their members are, and sending one away."""

from __future__ import annotations

from itertools import islice
from typing import Final

from tinymq.broker.broker import Broker
from tinymq.errors import UnknownMember
from tinymq.groups.describing import group_row, member_row, short_row
from tinymq.operation import DRY, NAME, Operation, Parameter, Result, table
from tinymq.wire.fields import integer, text

#: Groups in one answer; an array of a message is not longer than 1024.
MOST_GROUPS: Final = 1000


class Coordination:
    """What is known of groups, and done with their members, at their coordinator."""

    _broker: Broker

    def coordinated_groups(self, after: str, limit: int) -> Result:
        """List the groups that have, or lately had, members here, in order of their names."""
        every = (each for each in self._broker.coordinating.groups() if each.name > after)
        found = list(islice(every, limit + 1))
        return {"groups": [short_row(each) for each in found[:limit]], "more": len(found) > limit}

    def coordinated_group(self, name: str) -> Result:
        """Describe a group with its members, who has what, and its last rebalances."""
        coordinating = self._broker.coordinating
        group = coordinating.group(name)
        return {"group": None if group is None else group_row(group, coordinating.now())}

    def evict_member(self, name: str, member: str, reason: str, *, dry_run: bool) -> Result:
        """Send a member away, and describe it as it was."""
        coordinating = self._broker.coordinating
        group = coordinating.group(name)
        if group is None:
            raise UnknownMember(f"{name} has no members", member=member[:100])
        found = group.find(member)
        row = member_row(found, coordinating.now())
        if not dry_run:
            coordinating.evict(name, found, reason or "by an operator")
        return row


_NAME: Final = Parameter("name", NAME)

COORDINATION_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.groups",
        "cluster",
        False,
        (
            Parameter("after", text(1024), default=""),
            Parameter("limit", integer(1, MOST_GROUPS), default=MOST_GROUPS),
        ),
        Coordination.coordinated_groups,
    ),
    Operation("node.group", "cluster", False, (_NAME,), Coordination.coordinated_group),
    Operation(
        "node.evict",
        "cluster",
        True,
        (_NAME, Parameter("member", text(256)), Parameter("reason", text(200), default=""), DRY),
        Coordination.evict_member,
    ),
)
