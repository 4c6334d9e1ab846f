"""The operations of the MetaServer on schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.meta.fakes import FakeTime, facts, feed
from tinymq.cron import MOST_VALUE
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    Overloaded,
    UnknownPartition,
    UnknownSchedule,
    UnknownTopic,
    ValueTooLarge,
)
from tinymq.meta import MetaServer, Replica, Schedule, Store, Topic
from tinymq.meta import schedules as module
from tinymq.meta.server import Clocks


@pytest.fixture
def topic(server: MetaServer) -> Topic:
    """Return a topic without schedules."""
    return server.create_topic("a", 2)


def wanted(topic: Topic, name: str = "nightly", **more: Any) -> Schedule:
    """A schedule as one asks for it."""
    plain = Schedule(name=name, topic_id=topic.id, partition=1, cron="0 3 * * *", value=b"\xff")
    return attrs.evolve(plain, **more)


def test_create(server: MetaServer, topic: Topic, clock: FakeTime) -> None:
    """A schedule is kept with the time at which it was made."""
    given = wanted(topic, key=b"k", headers=(("a", b"\xfe"),), zone="Europe/Berlin")
    made = server.put_schedule(given)
    now = int(clock.now * 1000)
    assert made == attrs.evolve(given, created_ms=now, since_ms=now)
    assert server.describe_schedule("nightly") == made
    assert server.registry.schedules_of(topic.id) == (made,)
    assert topic.id in server.registry.touched


def test_stored(topic: Topic) -> None:
    """What is stored is read again as it was."""
    for each in (wanted(topic), wanted(topic, key=b"", headers=(("a", b"\xfe"),), paused=True)):
        assert Schedule.decode(each.name, each.encode()) == each


def test_after_a_restart(server: MetaServer, topic: Topic, store: Store, clock: FakeTime) -> None:
    """Another start of the MetaServer knows what there is."""
    made = server.put_schedule(wanted(topic))
    again = MetaServer(store, clocks=Clocks(wall=clock))
    assert again.registry.schedules == {"nightly": made}


def test_another_form(server: MetaServer, topic: Topic, clock: FakeTime) -> None:
    """Putting it again changes it; only another expression counts from then on."""
    made = server.put_schedule(wanted(topic))
    clock.advance(60)
    same = server.registry
    assert server.put_schedule(wanted(topic)) == made
    assert server.registry is same
    changed = server.put_schedule(wanted(topic, value=b"new"))
    assert (changed.created_ms, changed.since_ms) == (made.created_ms, made.since_ms)
    moved = server.put_schedule(wanted(topic, cron="0 4 * * *"))
    assert (moved.created_ms, moved.since_ms) == (made.created_ms, int(clock.now * 1000))


def test_pause(server: MetaServer, topic: Topic, clock: FakeTime) -> None:
    """A pause stays when it is put again, and what follows it counts from then on."""
    server.put_schedule(wanted(topic))
    clock.advance(60)
    assert server.pause_schedule("nightly", paused=True, dry_run=True).paused
    assert not server.describe_schedule("nightly").paused
    server.pause_schedule("nightly", paused=True)
    assert server.put_schedule(wanted(topic, value=b"new")).paused
    clock.advance(60)
    gone_on = server.pause_schedule("nightly", paused=False)
    assert gone_on.since_ms == int(clock.now * 1000)
    before = server.registry
    server.pause_schedule("nightly", paused=False)
    assert server.registry is before
    assert server.put_schedule(wanted(topic), paused=True).paused
    assert not server.put_schedule(wanted(topic), paused=False).paused


def test_delete(server: MetaServer, topic: Topic) -> None:
    """One that was deleted is gone, and one made anew is another."""
    made = server.put_schedule(wanted(topic))
    assert server.delete_schedule("nightly", dry_run=True) == made
    assert server.delete_schedule("nightly") == made
    with pytest.raises(UnknownSchedule, match="there is no schedule 'nightly'"):
        server.describe_schedule("nightly")
    assert server.put_schedule(wanted(topic)).mark != made.mark


def test_goes_with_its_topic(server: MetaServer, topic: Topic) -> None:
    """A topic that is deleted takes its schedules with it, and no others."""
    other = server.create_topic("b", 2)
    server.put_schedule(wanted(topic))
    stays = server.put_schedule(wanted(other, name="other"))
    server.delete_topic("a")
    assert server.registry.schedules == {"other": stays}


def test_dry_run(server: MetaServer, topic: Topic) -> None:
    """A dry run checks, and writes nothing."""
    before = server.registry
    assert server.put_schedule(wanted(topic), dry_run=True).created_ms > 0
    assert server.registry is before


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"name": "a b"}, InvalidName, "a b"),
        ({"name": ""}, InvalidName, "name"),
        ({"cron": "61 * * * *"}, InvalidRequest, "the minute '61' is wrong"),
        ({"zone": "Berlin"}, InvalidRequest, "did you mean Europe/Berlin"),
        ({"catch_up": "later"}, InvalidRequest, "catch_up is one of skip, once, all"),
        ({"partition": 2}, UnknownPartition, "partitions 0 to 1, not 2"),
        ({"topic_id": bytes(16)}, UnknownTopic, "is gone"),
        ({"value": bytes(MOST_VALUE + 1)}, ValueTooLarge, "may have 65536"),
        ({"headers": (("a", bytes(9000)),)}, InvalidRequest, "8192 are allowed"),
    ],
)
def test_refused(
    server: MetaServer, topic: Topic, wrong: dict[str, Any], error: type[Exception], told: str
) -> None:
    """What is wrong is said, and nothing is written."""
    before = server.registry
    with pytest.raises(error, match=told):
        server.put_schedule(wanted(topic, **wrong))
    assert server.registry is before


def test_value_of_the_topic(server: MetaServer) -> None:
    """A message that its topic would refuse is refused now."""
    small = server.create_topic("small", 2, {"max.value.bytes": 1024})
    with pytest.raises(ValueTooLarge, match="may have 1024"):
        server.put_schedule(wanted(small, value=bytes(1025)))


def test_most(server: MetaServer, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a most of them, in number and in bytes; what is there may be changed."""
    server.put_schedule(wanted(topic, value=bytes(60)))
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(Overloaded, match="more than 100 bytes"):
        server.put_schedule(wanted(topic, name="other", value=bytes(60)))
    monkeypatch.setattr(module, "MOST_SCHEDULES", 1)
    with pytest.raises(Overloaded, match="there are 1 schedules"):
        server.put_schedule(wanted(topic, name="other"))
    server.put_schedule(wanted(topic, value=bytes(90)))


def test_replica(server: MetaServer, topic: Topic, tmp_path: Path) -> None:
    """A broker elsewhere knows the same, page by page and from its file."""
    replica = Replica()
    feed(replica, server)
    server.put_schedule(wanted(topic))
    server.put_schedule(wanted(topic, name="other", paused=True))
    feed(replica, server)
    server.delete_schedule("nightly")
    server.put_schedule(wanted(topic, name="other", value=b"new"))
    feed(replica, server)
    assert facts(replica.registry) == facts(server.registry)
    assert replica.registry.schedules == server.registry.schedules
    fresh = Replica()
    feed(fresh, server)
    assert fresh.registry.schedules == server.registry.schedules
    server.delete_topic("a")
    feed(replica, server)
    assert replica.registry.schedules == {}
