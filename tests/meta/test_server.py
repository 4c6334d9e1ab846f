"""The operations of the MetaServer."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.meta.fakes import FakeTime
from tinymq.config import DEFAULT_CONFIG, Config, TopicConfig
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    StateError,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.limits import Limits
from tinymq.meta import MetaServer, Registry, Store, Topic


def test_create(server: MetaServer, clock: FakeTime) -> None:
    """A new topic has an id of its own, its settings, and a leader for each partition."""
    topic = server.create_topic("orders", 3, {"retention.ms": "60000"})
    assert topic == Topic(
        id=topic.id,
        name="orders",
        partitions=3,
        config=TopicConfig(retention_ms=60000),
        created_ms=int(clock.now * 1000),
        leaders=(1, 1, 1),
    )
    assert len(topic.id) == 16
    assert server.describe("orders") is server.registry.topic_of(topic.id)
    assert server.describe("orders") == topic
    assert server.create_topic("other").id != topic.id


def test_defaults_come_from_the_configuration(store: Store) -> None:
    """What the creator does not say is the broker's default, then the topic's own."""
    config = DEFAULT_CONFIG.changed({"topics.partitions": 4, "defaults.sync": "os"})
    server = MetaServer(store, config)
    server.register(1, "one", ("h", 1))
    topic = server.create_topic("a")
    assert (topic.partitions, topic.config.sync) == (4, "os")
    server.close()
    assert MetaServer(store).describe("a") == topic


def test_create_again(server: MetaServer) -> None:
    """Creating what exists returns it, as long as what is said agrees."""
    topic = server.create_topic("a", 2, {"sync": "os"})
    before = server.registry
    assert server.create_topic("a", 2, {"sync": "os"}) == topic
    assert server.create_topic("a") == topic
    assert server.create_topic("a", None, {"undo.ms": "600000"}) == topic
    assert server.registry is before


@pytest.mark.parametrize(
    ("partitions", "settings", "field"),
    [(3, {}, "partitions"), (None, {"sync": "always"}, "sync"), (2, {"undo.ms": 1}, "undo.ms")],
)
def test_create_something_else(
    server: MetaServer, partitions: int | None, settings: dict[str, str | int | None], field: str
) -> None:
    """Creating what exists and differs names the field."""
    server.create_topic("a", 2, {"sync": "os"})
    with pytest.raises(TopicExists) as caught:
        server.create_topic("a", partitions, settings)
    assert caught.value.data["field"] == field
    assert field in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, 1001, 1_000_000_000, True, "3", 1.5])
def test_partition_counts(server: MetaServer, count: int) -> None:
    """A number of partitions out of bounds is refused with the bounds."""
    with pytest.raises(InvalidRequest, match="1 to 1000 partitions") as caught:
        server.create_topic("a", count)
    assert caught.value.data == {"field": "partitions", "low": 1, "high": 1000}
    assert server.registry.names == ()


def test_most_partitions(server: MetaServer) -> None:
    """The bound itself is allowed."""
    assert server.create_topic("a", 1000).partitions == 1000


def test_bad_names(server: MetaServer) -> None:
    """Every operation that takes a name refuses a bad one in the same way."""
    for call in (
        server.create_topic,
        server.ensure_topic,
        server.describe,
        server.delete_topic,
        server.alter_topic,
    ):
        with pytest.raises(InvalidName):
            call("../x")


def test_long_names(store: Store) -> None:
    """A setting may allow shorter names of new topics only; those that are there stay."""
    before = MetaServer(store)
    before.register(before.new_broker_id(), "one", ("127.0.0.1", 7800))
    made = before.create_topic("long-name", 1)
    server = MetaServer(store, Config(limits=Limits(name=8)))
    assert server.create_topic("long-name", 1) == made
    assert server.create_topic("8-letter", 1).name == "8-letter"
    with pytest.raises(InvalidName, match=r"limits\.name allows 8; choose") as caught:
        server.create_topic("9-letters", 1)
    assert caught.value.data["length"] == 9


def test_bad_settings_create_nothing(server: MetaServer) -> None:
    """A topic with a wrong setting does not come to be."""
    with pytest.raises(InvalidRequest) as caught:
        server.create_topic("a", 1, {"sync": "never"})
    assert caught.value.data["field"] == "sync"
    assert server.registry.names == ()


def test_names_in_two_cases(server: MetaServer) -> None:
    """Names that differ in case are two topics with two ids."""
    assert server.create_topic("Orders").id != server.create_topic("orders").id
    assert server.registry.names == ("Orders", "orders")


def test_alter(server: MetaServer) -> None:
    """An alteration changes what it names and keeps the id."""
    topic = server.create_topic("a", 2, {"undo.ms": 7})
    changed = server.alter_topic("a", {"retention.ms": None, "sync": "os"})
    assert changed == attrs.evolve(
        topic, config=TopicConfig(undo_ms=7, retention_ms=None, sync="os")
    )
    assert server.describe("a") == changed
    with pytest.raises(InvalidRequest, match="fixed"):
        server.alter_topic("a", {"storage": "memory"})
    with pytest.raises(UnknownTopic):
        server.alter_topic("b", {})


def test_add_partitions(server: MetaServer) -> None:
    """Partitions can be added, up to the bound, and never taken away."""
    topic = server.create_topic("a", 2)
    assert server.alter_topic("a", partitions=2) == topic
    grown = server.alter_topic("a", partitions=4)
    assert (grown.id, grown.partitions, grown.leaders) == (topic.id, 4, (1, 1, 1, 1))
    for count in (3, 0, -1, 1001):
        with pytest.raises(InvalidRequest) as caught:
            server.alter_topic("a", {"sync": "os"}, count)
        assert caught.value.data["high"] == 1000
    assert server.describe("a").leader(3) == 1
    assert server.describe("a").config.sync == "always"
    for partition in (4, -1):
        with pytest.raises(UnknownPartition, match="0 to 3"):
            server.describe("a").leader(partition)


def test_dry_runs(server: MetaServer) -> None:
    """A dry run checks as the real one does, says what would be, and writes nothing."""
    assert server.create_topic("a", 2, dry_run=True).partitions == 2
    assert server.registry.names == ()
    topic = server.create_topic("a", 2)
    assert server.create_topic("a", dry_run=True) == topic
    with pytest.raises(TopicExists):
        server.create_topic("a", 3, dry_run=True)
    planned = server.alter_topic("a", {"sync": "os"}, 4, dry_run=True)
    assert (planned.config.sync, planned.partitions) == ("os", 4)
    assert server.describe("a") == topic
    assert server.alter_topic("a", {"sync": "os"}, 4) == planned


def test_delete(server: MetaServer, clock: FakeTime) -> None:
    """A deleted topic is gone by name and id, and its id is known as deleted."""
    topic = server.create_topic("a")
    assert server.delete_topic("a") == topic
    with pytest.raises(UnknownTopic):
        server.describe("a")
    with pytest.raises(UnknownTopicId):
        server.registry.topic_of(topic.id)
    assert server.registry.deleted == {topic.id: int(clock.now * 1000)}
    assert server.registry.led.get(1, 0) == 0
    server.forget_deleted(int(clock.now * 1000) + 1)
    assert server.registry.deleted == {}


def test_delete_of_the_right_one(server: MetaServer) -> None:
    """A delete that names the id spares what was made anew under the name."""
    old = server.create_topic("a")
    other = server.create_topic("b")
    server.delete_topic("a", old.id)
    new = server.create_topic("a")
    for topic_id in (old.id, other.id):
        with pytest.raises(UnknownTopicId):
            server.delete_topic("a", topic_id)
    assert server.registry.names == ("a", "b")
    assert server.describe("a") == new


def test_first_use(server: MetaServer, store: Store) -> None:
    """First use makes a topic, unless the configuration says no."""
    topic = server.ensure_topic("a")
    assert server.ensure_topic("a") == topic
    strict = MetaServer(store, DEFAULT_CONFIG.changed({"topics.auto_create": False}))
    assert strict.ensure_topic("a") == topic
    with pytest.raises(UnknownTopic):
        strict.ensure_topic("b")


def test_pages(server: MetaServer) -> None:
    """Topics are listed in the order of their names, page by page."""
    for name in ("c", "a", "B", "d"):
        server.create_topic(name)
    registry = server.registry
    assert [topic.name for topic in registry.page("", 2)] == ["B", "a"]
    assert [topic.name for topic in registry.page("a", 9)] == ["c", "d"]
    assert registry.page("d", 9) == ()


def test_everything_survives(server: MetaServer, store: Store, file: Path) -> None:
    """A MetaServer opened again knows what the one before knew."""
    server.create_topic("a", 3, {"retention.ms": None})
    server.create_topic("b")
    server.delete_topic("b")
    before = server.registry
    store.close()
    store = Store(file)
    after = MetaServer(store).registry
    for part in ("cluster", "topics", "by_name", "led", "deleted", "brokers"):
        assert getattr(after, part) == getattr(before, part)
    assert after.cluster != bytes(16)
    store.close()


def test_snapshots_do_not_change(server: MetaServer) -> None:
    """A snapshot that somebody holds stays what it was."""
    server.create_topic("a")
    held = server.registry
    server.create_topic("b")
    server.alter_topic("a", {"sync": "os"})
    assert held.names == ("a",)
    assert held.topic("a").config.sync == "always"
    with pytest.raises(TypeError):
        held.topics[bytes(16)] = held.topic("a")  # type: ignore[index]


def test_watch(server: MetaServer) -> None:
    """An observer is given the snapshots before and after each change, until it ends that."""
    seen: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def observe(before: Registry, after: Registry) -> None:
        seen.append((before.names, after.names))

    cancel = server.watch(observe)
    server.create_topic("a")
    server.producer_ids()
    server.delete_topic("a")
    cancel()
    cancel()
    server.create_topic("b")
    assert seen == [((), ("a",)), (("a",), ())]


def test_producer_ids(server: MetaServer, store: Store) -> None:
    """No producer id is given out twice, whoever asks and whatever happened."""
    first = server.producer_ids()
    second = server.producer_ids(5)
    assert (first, second) == (range(1000), range(1000, 1005))
    assert MetaServer(store).producer_ids(1) == range(1005, 1006)
    for block in (0, -1, 1_000_001):
        with pytest.raises(InvalidRequest):
            server.producer_ids(block)


def test_new_partitions_even_out(server: MetaServer) -> None:
    """A new broker is given new partitions; nothing that exists moves."""
    old = server.create_topic("a", 4)
    server.register(2, "two", ("h", 2))
    assert server.create_topic("b", 4).leaders == (2, 2, 1, 2)
    assert server.describe("a") == old
    assert server.registry.led == {1: 5, 2: 3}
    server.register(3, "three", ("h", 3))
    assert server.alter_topic("a", partitions=6).leaders == (1, 1, 1, 1, 3, 2)


def test_no_broker(store: Store) -> None:
    """Without a broker nothing is created, and trying again later may help."""
    server = MetaServer(store)
    with pytest.raises(StateError, match="no broker"):
        server.create_topic("a")
    assert store.get("name/a") is None


def test_an_unreadable_entry_stops_the_start(store: Store) -> None:
    """What cannot be read is named with its file, and nothing is deleted."""
    MetaServer(store).close()
    store.put(f"topic/{bytes(16).hex()}", b"{")
    with pytest.raises(StorageError, match=r"topic/0000.* cannot be read"):
        MetaServer(store)
    assert store.get(f"topic/{bytes(16).hex()}")


def test_history_is_bounded(store: Store) -> None:
    """Old revisions go, and the keys stay."""
    server = MetaServer(store, history=10)
    server.register(1, "one", ("h", 1))
    topic = server.create_topic("a")
    for _ in range(50):
        server.producer_ids(1)
        assert store.revision - store.compacted <= 21
    ((rows,),) = store._sql("SELECT count(*) FROM entries WHERE key = 'producers'")
    assert rows <= 21
    assert MetaServer(store).describe("a") == topic
