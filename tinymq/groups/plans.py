"""What the members' own assignor decided, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinymq.errors import InvalidRequest
from tinymq.groups.values import Place

#: Member, and the partitions that it is to have by topic.
Plan = Sequence[tuple[str, Sequence[tuple[bytes, Sequence[int]]]]]


def checked_plan(
    plan: Plan, topics: Mapping[bytes, int], wishes: Mapping[str, frozenset[bytes]]
) -> dict[Place, str]:
    """
    Read a plan; partitions that it does not name are nobody's.

    Args:
        plan: What a member sent.
        topics: How many partitions each topic has.
        wishes: The topics that each member wants.

    Returns:
        Who is to have which partition.

    Raises:
        InvalidRequest: It names somebody or something that is not there, or a partition twice.
    """
    given: dict[Place, str] = {}
    for member, rows in plan:
        if member not in wishes:
            raise _refused(f"{member[:100]!a} is no member of the group")
        for topic, partitions in rows:
            if topic not in topics:
                raise _refused(f"nobody in the group reads a topic with the id {topic.hex()}")
            if topic not in wishes[member]:
                raise _refused(f"{member[:100]!a} does not want the topic {topic.hex()}")
            for partition in partitions:
                if partition >= topics[topic]:
                    raise _refused(
                        f"the topic {topic.hex()} has {topics[topic]} partitions, "
                        f"and no partition {partition}"
                    )
                if (topic, partition) in given:
                    raise _refused(f"partition {partition} of {topic.hex()} is given out twice")
                given[topic, partition] = member
    return given


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"the plan of the own assignor: {why}", field="p")
