"""The administrative operations: what they change, what they say, and that a dry run is dry."""

from __future__ import annotations

import errno
import inspect
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.logger import globalLogPublisher
from typing_extensions import override

from tests.fakes.broker import (
    BEGIN_MS,
    BrokerDisk,
    BrokerFixture,
    HeldSyncer,
    LogKeeper,
    only,
    outcome_of,
)
from tinymq.broker.partition import Appended
from tinymq.caller import Caller
from tinymq.client.core.admin import AdminCalls
from tinymq.client.core.channel_admin import ChannelCalls
from tinymq.cluster.nodes import LocalNode
from tinymq.config import DEFAULT_CONFIG
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    NothingToUndo,
    Overloaded,
    StorageError,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    ValueTooLarge,
    WireError,
)
from tinymq.logs import Logs
from tinymq.names import TRANSACTIONS
from tinymq.node import Node
from tinymq.operations import OPERATIONS, REQUIRED, Operations
from tinymq.wire.codec import pack

#: The operations of people.
PUBLIC = sorted(name for name, each in OPERATIONS.items() if each.role != "cluster")


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker."""
    return BrokerFixture(tmp_path / "data")


def run(fixture: BrokerFixture, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry out an operation; its result must be what travels."""
    result = fixture.operate(operation, **arguments)
    pack(result)
    return result


def refusal(fixture: BrokerFixture, operation: str, /, **arguments: Any) -> WireError:
    """The error of an operation."""
    with pytest.raises(WireError) as caught:
        fixture.operate(operation, **arguments)
    return caught.value


def everything(fixture: BrokerFixture) -> object:
    """All that an operation could change."""
    registry = fixture.meta.registry
    partitions = [
        (each, each.log.start_offset, each.high_watermark, each.log.size_bytes, each.topic)
        for each in fixture.broker.partitions()
    ]
    files = sorted(str(path) for path in fixture.path.rglob("*") if "sqlite" not in path.name)
    return dict(registry.topics), dict(registry.deleted), partitions, files


class TestArguments:
    def test_unknown_operation(self, fixture: BrokerFixture) -> None:
        """An operation that does not exist is named, with those that do."""
        error = refusal(fixture, "topic.explode")
        assert isinstance(error, InvalidRequest)
        assert "topic.create" in error.text

    @pytest.mark.parametrize(
        ("name", "arguments", "field"),
        [
            ("topic.create", {}, "name"),
            ("topic.create", {"name": 5}, "name"),
            ("topic.create", {"name": None}, "name"),
            ("topic.create", {"name": "t", "partitions": "3"}, "partitions"),
            ("topic.create", {"name": "t", "partitions": True}, "partitions"),
            ("topic.create", {"name": "t", "config": []}, "config"),
            ("topic.create", {"name": "t", "config": {"sync": 3}}, "sync"),
            ("topic.create", {"name": "t", "config": {"nonsense": 3}}, "nonsense"),
            ("topic.create", {"name": "t", "config": {"retention.ms": 0}}, "retention.ms"),
            ("topic.create", {"name": "t", "dry_run": 1}, "dry_run"),
            ("topic.create", {"name": "t", "colour": "red"}, "colour"),
            ("topic.list", {"limit": 501}, "limit"),
            ("topic.list", {"limit": 0}, "limit"),
            ("topic.list", {"filter": "x" * 201}, "filter"),
            ("topic.purge", {"name": "t", "before": -1}, "before"),
            ("topic.purge", {"name": "t", "before": 1, "keep": 1}, "before"),
            ("topic.purge", {"name": "t", "partition": -1}, "partition"),
            ("topic.info", {}, "name"),
            ("broker.info", {"x": 1}, "x"),
            ("broker.log_level", {"level": "loud"}, "level"),
        ],
    )
    def test_wrong(
        self, fixture: BrokerFixture, name: str, arguments: dict[str, Any], field: str
    ) -> None:
        """A wrong argument is refused with its name, and nothing happens."""
        fixture.topic("t")
        before = everything(fixture)
        error = refusal(fixture, name, **arguments)
        assert isinstance(error, InvalidRequest)
        assert error.data["field"] == field
        assert everything(fixture) == before

    @pytest.mark.parametrize("name", PUBLIC)
    def test_table(self, name: str) -> None:
        """Each operation that changes something has a dry run, and no other has."""
        operation = OPERATIONS[name]
        parameters = {parameter.name for parameter in operation.parameters}
        assert ("dry_run" in parameters) == operation.changes
        assert (operation.role == "viewer") == (not operation.changes)

    @pytest.mark.parametrize(
        "name",
        ["topic.alter", "topic.delete", "topic.info", "topic.purge", "topic.undo_purge"],
    )
    def test_unknown_topic(self, fixture: BrokerFixture, name: str) -> None:
        """Each operation on a topic says when there is none, or no such name."""
        assert isinstance(refusal(fixture, name, name="none"), UnknownTopic)
        assert isinstance(refusal(fixture, name, name="../x"), InvalidName)

    @given(pattern=st.text("*?[]!-az\\^(", max_size=12) | st.just("*a" * 90 + "b"))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_filter(self, fixture: BrokerFixture, pattern: str) -> None:
        """Any filter is a filter, and costs little."""
        fixture.topic("a" * 100, storage="memory")
        assert run(fixture, "topic.list", filter=pattern)["total"] in (0, 1)


class TestDryRun:
    def test_changes_nothing(self, fixture: BrokerFixture) -> None:
        """A dry run tells what would be, changes nothing, and then is right."""
        fixture.topic("t", partitions=2)
        for index in range(2):
            for _ in range(3):
                fixture.produce(b"v" * 100, partition=index)
        steps: list[tuple[str, dict[str, Any]]] = [
            ("topic.create", {"name": "new", "partitions": 3, "config": {"sync": "os"}}),
            ("topic.alter", {"name": "t", "partitions": 4, "config": {"sync": "os"}}),
            ("topic.purge", {"name": "t", "before": 2}),
            ("topic.undo_purge", {"name": "t"}),
            ("topic.delete", {"name": "t"}),
        ]
        for name, arguments in steps:
            before = everything(fixture)
            dry = run(fixture, name, **arguments, dry_run=True)
            assert everything(fixture) == before, name
            real = run(fixture, name, **arguments)
            for key in ("changes", "created"):
                assert dry.get(key) == real.get(key)
            if "plan" in dry:
                assert {**dry["plan"], "dry_run": False} == real["plan"]

    def test_refused_alike(self, fixture: BrokerFixture) -> None:
        """What would be refused is refused in a dry run too."""
        fixture.topic("t", partitions=2)
        cases: list[tuple[str, dict[str, Any], type[WireError]]] = [
            ("topic.create", {"name": "t", "partitions": 9}, TopicExists),
            ("topic.create", {"name": "x", "partitions": 0}, InvalidRequest),
            ("topic.alter", {"name": "t", "partitions": 1}, InvalidRequest),
            ("topic.alter", {"name": "t", "config": {"storage": "memory"}}, InvalidRequest),
            ("topic.purge", {"name": "t", "partition": 2}, UnknownPartition),
            ("topic.undo_purge", {"name": "t"}, NothingToUndo),
            ("topic.delete", {"name": "none"}, UnknownTopic),
        ]
        for name, arguments, kind in cases:
            for dry_run in (True, False):
                assert isinstance(refusal(fixture, name, dry_run=dry_run, **arguments), kind)


class TestTopics:
    def test_create(self, fixture: BrokerFixture) -> None:
        """A topic is made with its settings, and told with its partitions."""
        result = run(fixture, "topic.create", name="t", partitions=2, config={"sync": "os"})
        assert result["created"]
        topic = result["topic"]
        assert (topic["name"], topic["created_ms"]) == ("t", BEGIN_MS)
        assert topic["config"]["sync"] == "os"
        assert [row["partition"] for row in topic["partitions"]] == [0, 1]
        assert topic["partitions"][0]["state"] == "online"
        assert topic["partitions"][0]["newest_ms"] is None
        assert not run(fixture, "topic.create", name="t", partitions=2)["created"]

    @pytest.mark.parametrize("partitions", [0, -1, 1001, 10**9, 1 << 62])
    def test_partitions(self, fixture: BrokerFixture, partitions: int) -> None:
        """Numbers of partitions have bounds that the error names."""
        fixture.topic("t")
        for name in ("topic.create", "topic.alter"):
            error = refusal(fixture, name, name="t", partitions=partitions)
            assert (error.data["field"], error.data["high"]) == ("partitions", 1000)

    def test_more_partitions(self, fixture: BrokerFixture) -> None:
        """Partitions can be added while producing; the old ones keep their records."""
        fixture.topic("t")
        waiting = fixture.stage(b"a")
        result = run(fixture, "topic.alter", name="t", partitions=3)
        fixture.turn()
        assert result["changes"] == [["partitions", 1, 3]]
        assert only(waiting).base_offset == 0
        assert only(fixture.produce(b"b", partition=2)).base_offset == 0
        fixture.kill()
        after = fixture.again()
        assert [after.values("t", index) for index in range(3)] == [[b"a"], [], [b"b"]]

    def test_alter(self, fixture: BrokerFixture) -> None:
        """A changed setting is told with before and after, and in force at once."""
        fixture.topic("t")
        result = run(fixture, "topic.alter", name="t", config={"max.value.bytes": 1000})
        assert result["changes"] == [["max.value.bytes", 16 << 20, 1000]]
        assert fixture.partition().topic.config.max_value_bytes == 1000
        assert (
            run(fixture, "topic.alter", name="t", config={"max.value.bytes": 1000})["changes"] == []
        )

    def test_list(self, fixture: BrokerFixture) -> None:
        """Topics come in order, filtered, page by page, with what they hold."""
        for name in ("b", "a.2", "a.1", "A.3"):
            fixture.topic(name, storage="memory", partitions=2)
        fixture.produce(b"v", topic="a.1")
        whole = run(fixture, "topic.list")
        assert [row["name"] for row in whole["topics"]] == ["A.3", "a.1", "a.2", "b"]
        assert (whole["total"], whole["more"]) == (4, False)
        page = run(fixture, "topic.list", filter="a.*", limit=1)
        assert ([row["name"] for row in page["topics"]], page["more"]) == (["a.1"], True)
        assert (page["topics"][0]["messages"], page["topics"][0]["partitions"]) == (1, 2)
        rest = run(fixture, "topic.list", filter="a.*", limit=1, after="a.1")
        assert ([row["name"] for row in rest["topics"]], rest["more"]) == (["a.2"], False)

    def test_own_topics(self, fixture: BrokerFixture) -> None:
        """What is the brokers' own is in no list, unless a filter asks for it."""
        fixture.topic("a")
        fixture.meta.ensure_topic(TRANSACTIONS)
        for asked in ({}, {"filter": "*"}, {"filter": "t*"}):
            names = [row["name"] for row in fixture.operate("topic.list", **asked)["topics"]]
            assert TRANSACTIONS not in names
        rows = fixture.operate("topic.list", filter="tinymq.*")["topics"]
        assert [row["name"] for row in rows] == [TRANSACTIONS]
        assert fixture.operate("topic.info", name=TRANSACTIONS)["topic"]["name"] == TRANSACTIONS
        assert [topic.name for topic in fixture.meta.registry.page("", 9)] == ["a"]

    def test_delete(self, fixture: BrokerFixture) -> None:
        """What goes with a topic is told, and it is gone."""
        fixture.topic("t", partitions=2)
        fixture.produce(b"a", b"b")
        plan = run(fixture, "topic.delete", name="t")["plan"]
        assert (plan["messages"], plan["topic"]) == (2, "t")
        assert [row["messages"] for row in plan["partitions"]] == [2, 0]
        assert fixture.broker.partitions() == []
        assert isinstance(refusal(fixture, "topic.info", name="t"), UnknownTopic)


class TestPurge:
    def filled(self, fixture: BrokerFixture) -> None:
        """A topic of ten records, a second apart."""
        fixture.topic("t", partitions=2)
        for place in range(10):
            fixture.produce(b"%d" % place)
            fixture.wall.now_ms += 1000
        fixture.produce(b"other", partition=1)

    @pytest.mark.parametrize(
        ("arguments", "start"),
        [
            ({}, 10),
            ({"before": 0}, 0),
            ({"before": 4}, 4),
            ({"before": 1 << 60}, 10),
            ({"before_ms": BEGIN_MS + 2500}, 3),
            ({"before_ms": 0}, 0),
            ({"before_ms": BEGIN_MS * 2}, 10),
            ({"keep": 3}, 7),
            ({"keep": 0}, 10),
            ({"keep": 100}, 0),
        ],
    )
    def test_start(self, fixture: BrokerFixture, arguments: dict[str, int], start: int) -> None:
        """Records before an offset or a time, or all but the last, go; where it was asked."""
        self.filled(fixture)
        plan = run(fixture, "topic.purge", name="t", partition=0, **arguments)["plan"]
        (row,) = plan["partitions"]
        assert (row["start"], row["new_start"], plan["messages"]) == (0, start, start)
        assert fixture.values() == [b"%d" % place for place in range(start, 10)]
        assert fixture.values("t", 1) == [b"other"]

    def test_undo(self, fixture: BrokerFixture) -> None:
        """A purge is undone within its window, purge by purge, also after a restart."""
        self.filled(fixture)
        run(fixture, "topic.purge", name="t", partition=0, before=3)
        result = run(fixture, "topic.purge", name="t", partition=0, before=6)
        assert result["undo_until_ms"] == fixture.wall() + 600_000
        fixture.kill()
        after = fixture.again()
        assert len(after.values()) == 4
        assert run(after, "topic.undo_purge", name="t")["topic"]["partitions"][0]["start"] == 3
        assert run(after, "topic.undo_purge", name="t")["topic"]["partitions"][0]["start"] == 0
        assert len(after.values()) == 10
        assert isinstance(refusal(after, "topic.undo_purge", name="t"), NothingToUndo)

    def test_too_late(self, fixture: BrokerFixture) -> None:
        """After its window a purge cannot be undone."""
        self.filled(fixture)
        run(fixture, "topic.purge", name="t")
        fixture.wall.now_ms += 600_001
        fixture.housekeeping.apply_retention()
        assert isinstance(refusal(fixture, "topic.undo_purge", name="t"), NothingToUndo)
        assert only(fixture.produce(b"new")).base_offset == 10

    def test_disk_fails(self, fixture: BrokerFixture) -> None:
        """When the disk fails the operation says so, and nothing was purged."""
        self.filled(fixture)
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        disk.failing["fdatasync"] = errno.EIO
        error = refusal(fixture, "topic.purge", name="t", partition=0)
        assert isinstance(error, StorageError)
        assert "Input/output error" in error.text
        assert len(fixture.values()) == 10

    def test_memory(self, fixture: BrokerFixture) -> None:
        """A topic in memory is purged and brought back likewise."""
        fixture.topic("t", storage="memory")
        fixture.produce(b"a")
        run(fixture, "topic.purge", name="t")
        assert fixture.values() == []
        run(fixture, "topic.undo_purge", name="t")
        assert fixture.values() == [b"a"]

    def test_not_beyond_the_watermark(self, tmp_path: Path) -> None:
        """What is not visible yet is never purged."""
        syncer = HeldSyncer()
        fixture = BrokerFixture(tmp_path / "held", syncer=syncer)
        fixture.topic("t")
        fixture.produce(b"a")
        plan = run(fixture, "topic.purge", name="t", before=100)["plan"]
        assert plan["messages"] == 0
        syncer.release()
        assert fixture.values() == [b"a"]

    def test_idempotence(self, fixture: BrokerFixture) -> None:
        """A repeat of a purged batch is still a duplicate, and says so."""
        fixture.topic("t")
        fixture.produce(b"a", producer=(7, 0, 0))
        run(fixture, "topic.purge", name="t")
        assert only(fixture.produce(b"a", producer=(7, 0, 0))).duplicate
        assert fixture.values() == []


class TestBroker:
    def test_info(self, fixture: BrokerFixture) -> None:
        """The broker tells who it is and whether it takes publishing, and if not, why."""
        fixture.topic("t", partitions=3)
        info = run(fixture, "broker.info")
        told, expected = (
            info["broker"],
            {
                "id": 1,
                "name": "tinymq",
                "role": "all",
                "host": "127.0.0.1",
                "port": 7800,
                "topics": 1,
                "partitions": 3,
                "bytes": 0,
                "connections": 0,
            },
        )
        assert {name: told[name] for name in expected} == expected
        assert 0 < told["memory"] < told["memory_limit"]
        assert (info["ready"], info["reason"]) == (True, None)
        fixture.broker.refuse(StorageFull("no space"))
        info = run(fixture, "broker.info")
        assert (info["ready"], info["reason"]) == (False, "no space")

    def test_log_level(self, fixture: BrokerFixture) -> None:
        """The level of log lines is changed until the next start."""
        logs = Logs(io.StringIO(), "text", "info")
        nodes = LocalNode(Node(fixture.broker, logs))
        run = Operations(fixture.broker, fixture.meta, nodes).run
        arguments = {"level": "debug", "dry_run": True}
        assert outcome_of(run("broker.log_level", arguments))["before"] == "info"
        assert logs.level == "info"
        outcome_of(run("broker.log_level", {"level": "debug"}))
        assert logs.level == "debug"


class Recorder(AdminCalls[None]):
    """Keeps what each call would send."""

    def __init__(self) -> None:
        self.sent: dict[str, set[str]] = {}

    @override
    def operate(self, operation: str, /, **arguments: Any) -> None:
        self.sent[operation] = set(arguments)


def test_clients_calls_fit() -> None:
    """Every call of the clients is an operation, and all its arguments are parameters of it."""
    recorder = Recorder()
    every = {**vars(ChannelCalls), **vars(AdminCalls)}
    calls = [name for name in every if not name.startswith("_") and name != "operate"]
    for name in calls:
        method = getattr(recorder, name)
        needed = inspect.signature(method).parameters.values()
        required = (each for each in needed if each.kind is not each.VAR_KEYWORD)
        method(*("x" for each in required if each.default is each.empty))

    assert len(recorder.sent) == len(calls)
    for operation, arguments in recorder.sent.items():
        known = OPERATIONS[operation].parameters
        assert arguments <= {parameter.name for parameter in known}, operation
        assert {each.name for each in known if each.default is REQUIRED} <= arguments, operation


class TestIdentity:
    """An operation may say which topic it means, and is logged with who did it."""

    def test_another_topic_of_the_name(self, tmp_path: Path) -> None:
        """A topic made anew under the name is left alone when the id is another's."""
        fixture = BrokerFixture(tmp_path / "identity")
        old = fixture.topic("t").id.hex()
        fixture.operate("topic.delete", name="t", id=old)
        new = fixture.topic("t").id.hex()
        for name in ("topic.delete", "topic.purge", "topic.undo_purge", "topic.alter"):
            with pytest.raises(UnknownTopicId):
                fixture.operate(name, name="t", id=old)
        assert fixture.operate("topic.info", name="t")["topic"]["id"] == new

    def test_changes_are_logged(self, tmp_path: Path) -> None:
        """A change is logged with who made it; a dry run and a look are not."""
        fixture = BrokerFixture(tmp_path / "logged")
        run, ana = fixture.operations.run, Caller("ana")
        keeper = LogKeeper()
        globalLogPublisher.addObserver(keeper)
        try:
            outcome_of(run("topic.create", {"name": "a", "dry_run": True}, ana))
            outcome_of(run("topic.create", {"name": "a"}, ana))
            outcome_of(run("topic.info", {"name": "a"}, ana))
        finally:
            globalLogPublisher.removeObserver(keeper)
        lines = [event for event in keeper.events if event.get("principal")]
        assert [(each["principal"], each["operation"], each["what"]) for each in lines] == [
            ("ana", "topic.create", "a")
        ]


class TestSettingsTakeEffect:
    """A setting that is changed while running has its effect at once."""

    def test_longest_value(self, tmp_path: Path) -> None:
        """A value over max.value.bytes is refused, with the setting's name."""
        fixture = BrokerFixture(tmp_path / "values")
        fixture.topic("t", max_value_bytes=10)
        (refused,) = fixture.produce(b"x" * 1000)
        assert isinstance(refused, ValueTooLarge)
        assert refused.data["name"] == "max.value.bytes"
        (stored,) = fixture.produce(b"x" * 10)
        assert isinstance(stored, Appended)
        fixture.operate("topic.alter", name="t", config={"max.value.bytes": 2000})
        (stored,) = fixture.produce(b"x" * 1000)
        assert isinstance(stored, Appended)
        assert stored.base_offset == 1

    def test_segment_size(self, tmp_path: Path) -> None:
        """A smaller segment.bytes makes the next segment begin earlier."""
        fixture = BrokerFixture(tmp_path / "segments")
        fixture.topic("t")
        fixture.produce(b"x" * 3000)
        fixture.produce(b"x" * 3000)
        assert fixture.partition().log.segment_count == 1
        fixture.operate("topic.alter", name="t", config={"segment.bytes": 4096})
        fixture.produce(b"x" * 3000)
        assert fixture.partition().log.segment_count == 2

    def test_memory(self, tmp_path: Path) -> None:
        """A smaller memory.bytes lets the oldest records go, and they are counted."""
        fixture = BrokerFixture(tmp_path / "memory")
        fixture.topic("t", storage="memory", memory_bytes=1 << 20)
        for _ in range(4):
            fixture.produce(b"x" * 60_000)
        fixture.operate("topic.alter", name="t", config={"memory.bytes": 64 * 1024})
        fixture.produce(b"x" * 60_000)
        (row,) = fixture.operate("topic.info", name="t")["topic"]["partitions"]
        assert row["dropped"] == 4
        assert row["start"] == 4

    def test_most_topics(self, tmp_path: Path) -> None:
        """No more topics are made than topics.most allows; those there are stay usable."""
        config = DEFAULT_CONFIG.changed({"topics.most": 2})
        fixture = BrokerFixture(tmp_path / "most", config=config)
        fixture.topic("a")
        fixture.topic("b")
        with pytest.raises(Overloaded):
            fixture.topic("c")
        assert fixture.topic("a").name == "a"
