"""A group, its members and its rebalances, for people."""

from __future__ import annotations

from typing import Any, Final

from tinymq.groups.group import Group
from tinymq.groups.membership import Membership
from tinymq.groups.values import Now

Row = dict[str, Any]

#: Members that are named before it is only said how many more there are.
_NAMED: Final = 3


def state_of(group: Group) -> str:
    """Name the state of a group."""
    if all(each.absent for each in group.members.values()):
        return "empty"
    return "moving" if group.moving else "stable"


def short_row(group: Group) -> Row:
    """Describe a group shortly."""
    return {
        "name": group.name,
        "state": state_of(group),
        "members": sum(not each.absent for each in group.members.values()),
        "topics": group.topic_names(),
        "partitions": sum(group.read.values()),
        "strategy": group.strategy.name,
        "generation": group.generation,
        "stuck": group.stuck or _kept(group),
    }


def _kept(group: Group) -> str:
    """Name static members that went, and whose partitions are kept for them."""
    gone = [each.order for each in group.members.values() if each.absent and each.shares]
    if not gone:
        return ""
    more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
    return f"partitions are kept for {', '.join(gone[:_NAMED])}{more}: restarted, or gone soon"


def member_row(member: Membership, now: Now) -> Row:
    """Describe a member."""
    return {
        "id": member.id,
        "instance": member.request.instance or "",
        "client": member.client.name,
        "address": member.client.address,
        "since_ms": member.since.wall,
        "heard_ms": member.heard.wall,
        "topics": [*member.request.topics, *member.request.patterns],
        "partitions": len(member.shares),
        "draining": len(member.leaving),
        "state": _state(member, now),
    }


def _state(member: Membership, now: Now) -> str:
    if now.mono - member.heard.mono > 2 * member.interval:
        return "late"
    if member.leaving:
        return "draining"
    return "joining" if member.told is None else "stable"


def group_row(group: Group, now: Now) -> Row:
    """Describe a group with all that its coordinator knows."""
    return {
        **short_row(group),
        "coming": group.strategy.coming,
        "members": [member_row(each, now) for each in group.members.values() if not each.absent],
        "shares": [
            {
                "topic": group.topic_name(topic),
                "id": topic.hex(),
                "partitions": [_share(group, topic, index) for index in range(many)],
            }
            for topic, many in group.read.items()
        ],
        "rebalances": [
            {"at_ms": each.at_ms, "took_ms": each.took_ms, "moved": each.moved, "why": each.why}
            for each in reversed(group.history.rows)
        ],
    }


def _share(group: Group, topic: bytes, index: int) -> list[Any]:
    """Say who has a partition: the member's id or "", the generation or -1, and if it leaves."""
    owner = group.owner.get((topic, index))
    if owner is None or owner.absent:
        return ["", -1, False]
    return [owner.id, owner.shares[topic, index], (topic, index) in owner.leaving]
