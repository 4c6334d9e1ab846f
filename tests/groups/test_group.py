"""A group: who comes, who goes, and what becomes of the partitions."""

from __future__ import annotations

from tests.groups.stage import Stage, topic


def test_members_share_a_topic() -> None:
    """Two that come share what there is, and nothing moves after that."""
    stage = Stage(topic("t", 4))
    stage.join("a", "t")
    stage.join("b", "t")
    stage.run(500)
    stage.settled()
    taken = stage.taken
    stage.run(30_000)
    stage.settled()
    assert taken == stage.taken == 4


def test_a_newcomer_gets_its_part_from_the_others() -> None:
    """A third member is given only what the others can spare, once they let it go."""
    stage = Stage(topic("t", 6))
    stage.join("a", "t", drain_ms=400)
    stage.join("b", "t")
    stage.run(500)
    stage.join("c", "t")
    stage.run(1000)
    stage.settled()
    assert stage.taken == 6 + 2
    assert stage.most_idle <= 200


def test_what_is_left_behind_is_taken_at_once() -> None:
    """The partitions of one that leaves are others' within a moment."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t")
    stage.run(500)
    stage.most_idle = 0
    stage.leave("b")
    stage.run(500)
    stage.settled()
    assert stage.taken == 6 + 2
    assert stage.most_idle <= 200
