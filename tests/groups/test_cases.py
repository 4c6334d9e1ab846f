"""Groups in trouble that users met elsewhere: churn, deploys, and a coordinator under load."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from time import process_time

import pytest

from tests.groups.stage import Stage, topic


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_idle_while_members_come_and_go(seed: int) -> None:
    """Though somebody comes or goes each half second, no partition rests for long."""
    random = Random(seed)
    stage = Stage(topic("t", 12))
    names = (f"m{number}" for number in range(1000))
    for _ in range(4):
        stage.join(next(names), "t", drain_ms=random.choice((0, 10, 100)))
    stage.run(500)
    stage.most_idle = 0
    for _ in range(120):
        if len(stage.people) > 6 or (len(stage.people) > 2 and random.random() < 0.5):
            stage.leave(random.choice(list(stage.people)))
        else:
            stage.join(next(names), "t", drain_ms=random.choice((0, 10, 100)))
        stage.run(500)
        assert stage.most_idle <= 500
    stage.run(2000)
    stage.settled()


def deploy(stage: Stage, *, static: bool) -> Iterator[int]:
    """Restart six members one after another, every two seconds; say how many are read."""
    for number in range(6):
        stage.join(f"old{number}", "t", instance=f"i{number}" if static else None, drain_ms=50)
    stage.run(1000)
    stage.taken = stage.most_idle = 0
    for number in range(6):
        stage.leave(f"old{number}")
        for _ in range(10):
            stage.run(100)
            yield len(stage.who())
        stage.join(f"new{number}", "t", instance=f"i{number}" if static else None, drain_ms=50)
        for _ in range(10):
            stage.run(100)
            yield len(stage.who())


def test_a_rolling_deploy_goes_on_reading() -> None:
    """Without static ids partitions move, but most are read all the while, and none rests."""
    stage = Stage(topic("t", 12))
    assert min(deploy(stage, static=False)) >= 8
    assert stage.most_idle <= 300
    stage.run(1000)
    stage.settled()


def test_a_rolling_deploy_with_static_ids_moves_nothing() -> None:
    """Each member has its own partitions again, the others keep theirs, and nothing is divided."""
    stage = Stage(topic("t", 12))
    rounds = list(deploy(stage, static=True))
    assert min(rounds) == 10
    stage.run(1000)
    stage.settled()
    assert stage.taken == 12
    assert [each.moved for each in stage.group.history.rows] == [12]


def test_a_topic_is_deleted_and_made_anew_under_members() -> None:
    """Members are told at once, and go on with the new one as soon as it is there."""
    stage = Stage(topic("t", 4))
    for name in "ab":
        stage.join(name, "t")
    stage.run(500)
    for version in range(1, 5):
        stage.set_topics()
        stage.run(100)
        assert not stage.who()
        stage.set_topics(topic("t", 4, version))
        stage.run(200)
        stage.settled()


def test_a_large_group_settles_fast_and_cheaply() -> None:
    """Fifty members over two hundred partitions: they come at once, settle at once, for little."""
    stage = Stage(topic("t", 200))
    began = process_time()
    for number in range(50):
        stage.join(f"m{number}", "t")
    stage.run(400, step=50)
    spent = process_time() - began
    stage.settled()
    assert stage.taken == 200
    assert spent < 1
    stage.leave("m7")
    stage.join("late", "t")
    stage.run(400, step=50)
    stage.settled()
    assert stage.taken == 204
