"""Members and their coordinator over long times, restarts, and two of one name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.test_group_real import Crew
from tinymq.client.group import GroupConsumer
from tinymq.errors import FencedGeneration
from tinymq.testing import InProcessBroker


def parts(member: GroupConsumer) -> set[Any]:
    """What a member reads."""
    return {tuple(each) for each in member.assigned}


def rebalances(crew: Crew) -> list[int]:
    """How many partitions each of the last rebalances moved, the newest first."""
    told: Any = crew.broker.run(crew.client.admin.group("g"))
    return [each["moved"] for each in told["rebalances"]]


def test_nothing_moves_in_sixty_days() -> None:
    """Members of a quiet group have the same partitions after a long time, and no rebalance."""
    with InProcessBroker() as broker:
        crew = Crew(broker, t=4)
        one, other = crew.join(), crew.join()
        broker.advance(2)
        before = parts(one), parts(other)
        moved = rebalances(crew)
        broker.jump(days=60)
        assert (parts(one), parts(other)) == before
        assert rebalances(crew) == moved


def test_a_static_member_that_is_closed_comes_again() -> None:
    """In a deploy it goes in good order and comes back: the others keep theirs, it has its own."""
    with InProcessBroker() as broker:
        crew = Crew(broker, t=4)
        one, other = crew.join(instance="one"), crew.join(instance="other")
        broker.advance(2)
        mine, others = parts(one), parts(other)
        moved = rebalances(crew)
        for _ in range(3):
            broker.run(one.close())
            broker.advance(2)
            one = crew.join(instance="one")
            broker.advance(1)
            assert (parts(one), parts(other)) == (mine, others)
        assert rebalances(crew) == moved


def test_the_older_of_two_with_one_instance_stops() -> None:
    """It says why, and does not come back to throw the newer one out."""
    with InProcessBroker() as broker:
        crew = Crew(broker, t=4)
        older = crew.join(instance="one")
        newer = crew.join(instance="one")
        broker.advance(20)
        assert len(parts(newer)) == 4
        assert not parts(older)
        with pytest.raises(FencedGeneration, match="begun anew"):
            crew.take(older)
