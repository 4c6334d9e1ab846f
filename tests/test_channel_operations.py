"""The administrative operations on channels: what they change and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from tests.fakes.broker import BEGIN_MS, BrokerFixture, LogKeeper, outcome_of
from tests.fakes.channels import UNDO_MS, FakeChannels
from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape
from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.config import DEFAULT_CONFIG
from tinymq.errors import (
    ChannelExists,
    InvalidName,
    InvalidRequest,
    NothingToUndo,
    Overloaded,
    ShuttingDown,
    StateError,
    UnknownChannel,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    WireError,
)
from tinymq.node import turns
from tinymq.operations import OPERATIONS, run_on_node
from tinymq.wire.codec import pack

#: Those that are about one channel that is there.
ABOUT_ONE = ("alter", "delete", "info", "pause", "seek", "undo_seek", "empty")


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic of two partitions, three records and one."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", partitions=2)
    for value in (b"a", b"b", b"c"):
        fixture.produce(value)
        fixture.wall.now_ms += 1000
    fixture.produce(b"d", partition=1)
    return fixture


@pytest.fixture
def host(fixture: BrokerFixture) -> FakeChannels:
    """Return what keeps the broker's channels."""
    host = FakeChannels(fixture.broker)
    fixture.node.channel_host = host
    return host


def run(fixture: BrokerFixture, verb: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry out an operation; its result must be what travels and what is told of it."""
    name = f"channel.{verb}"
    result = fixture.operate(name, **arguments)
    pack(result)
    if OPERATIONS[name].public:
        Draft202012Validator(shape(**PUBLIC[name].result)).validate(_plain(result))
    return result


def _plain(value: Any) -> Any:
    """Give what travels as JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def refusal(fixture: BrokerFixture, verb: str, /, **arguments: Any) -> WireError:
    """The error of an operation."""
    with pytest.raises(WireError) as caught:
        fixture.operate(f"channel.{verb}", **arguments)
    return caught.value


def work(fixture: BrokerFixture) -> bytes:
    """Make a channel, and return its topic's id."""
    fixture.meta.create_channel("t", "work")
    return fixture.meta.describe("t").id


class TestMaking:
    def test_create(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A channel is made with its settings, and told with its partitions."""
        result = run(fixture, "create", topic="t", name="work", config={"order": "key"}, start=2)
        assert (result["created"], result["dry_run"]) == (True, False)
        channel = result["channel"]
        assert (channel["topic"], channel["name"], channel["start"]) == ("t", "work", 2)
        assert channel["created_ms"] == BEGIN_MS + 3000
        assert channel["config"]["order"] == "key"
        assert (channel["ready"], channel["lag"], channel["paused"]) == (4, 4, None)
        assert [row["end"] for row in channel["partitions"]] == [3, 1]
        assert not run(fixture, "create", topic="t", name="work")["created"]

    @pytest.mark.parametrize(
        ("arguments", "field"),
        [
            ({"config": {"order": "any"}}, "order"),
            ({"config": {"colour": "red"}}, "colour"),
            ({"config": {"backoff": ["soon"]}}, "backoff"),
            ({"config": []}, "config"),
            ({"start": "middle"}, "start"),
            ({"start": -1}, "start"),
            ({"start": "x" * 21}, "start"),
            ({"colour": 1}, "colour"),
            ({"name": 5}, "name"),
        ],
    )
    def test_wrong(self, fixture: BrokerFixture, arguments: dict[str, Any], field: str) -> None:
        """A wrong argument is refused with its name, and no channel is made."""
        error = refusal(fixture, "create", **{"topic": "t", "name": "work", **arguments})
        assert isinstance(error, InvalidRequest)
        assert error.data["field"] == field
        assert fixture.meta.registry.channels == {}

    def test_differs(self, fixture: BrokerFixture) -> None:
        """Making one that exists and differs is refused."""
        work(fixture)
        error = refusal(fixture, "create", topic="t", name="work", config={"attempts": 3})
        assert isinstance(error, ChannelExists)

    def test_no_more_than_allowed(self, tmp_path: Path) -> None:
        """A topic has no more channels than topics.channels allows."""
        config = DEFAULT_CONFIG.changed({"topics.channels": 1})
        fixture = BrokerFixture(tmp_path / "most", config=config)
        work_of = {"topic": "t", "name": "a"}
        fixture.topic("t")
        fixture.operate("channel.create", **work_of)
        assert isinstance(refusal(fixture, "create", topic="t", name="b"), Overloaded)
        assert not fixture.operate("channel.create", **work_of)["created"]

    def test_first_use(self, fixture: BrokerFixture) -> None:
        """A broker elsewhere makes a channel by its first use, and hears which revision has it."""
        told = fixture.operate("meta.ensure_channel", topic="t", name="work", start="latest")
        assert told == {"revision": fixture.meta.registry.revision}
        assert fixture.meta.describe_channel("t", "work").start == "latest"
        assert fixture.operate("meta.ensure_channel", topic="t", name="work") == told

    def test_stopping(self, fixture: BrokerFixture) -> None:
        """A process that stops makes none."""
        fixture.broker.refuse(ShuttingDown())
        assert isinstance(refusal(fixture, "create", topic="t", name="work"), ShuttingDown)

    def test_alter(self, fixture: BrokerFixture) -> None:
        """A changed setting is told with before and after."""
        work(fixture)
        result = run(
            fixture, "alter", topic="t", name="work", config={"backoff": "1s 2s", "attempts": 3}
        )
        assert result["changes"] == [
            ["attempts", 10, 3],
            ["backoff", DEFAULT_POLICY.backoff, ("1s", "2s")],
        ]
        assert result["channel"]["config"]["attempts"] == 3
        back = run(fixture, "alter", topic="t", name="work", config={"attempts": None})
        assert back["changes"] == [["attempts", 3, 10]]
        assert run(fixture, "alter", topic="t", name="work")["changes"] == []

    def test_delete(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """What goes with a channel is told, and it is gone; the topic's messages stay."""
        host.cursors[work(fixture), "work", 0] = 2
        was = run(fixture, "delete", topic="t", name="work")["channel"]
        assert (was["name"], was["lag"]) == ("work", 2)
        assert isinstance(refusal(fixture, "info", topic="t", name="work"), UnknownChannel)
        assert len(fixture.values()) == 3


class TestRefusals:
    @pytest.mark.parametrize("verb", ABOUT_ONE)
    def test_nothing_there(self, fixture: BrokerFixture, verb: str) -> None:
        """Each operation on a channel says when there is none, or no such name."""
        more = {"to": "earliest"} if verb == "seek" else {}
        for topic, name, kind in (
            ("none", "work", UnknownTopic),
            ("t", "none", UnknownChannel),
            ("t", "../x", InvalidName),
            ("../x", "work", InvalidName),
        ):
            assert type(refusal(fixture, verb, topic=topic, name=name, **more)) is kind

    @pytest.mark.parametrize("verb", ["seek", "undo_seek", "empty"])
    def test_no_such_partition(self, fixture: BrokerFixture, host: FakeChannels, verb: str) -> None:
        """A partition that there is not is named."""
        work(fixture)
        more = {"to": "earliest"} if verb == "seek" else {}
        error = refusal(fixture, verb, topic="t", name="work", partition=2, **more)
        assert isinstance(error, UnknownPartition)

    def test_seek_to_nowhere(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A seek needs one place, and one only."""
        work(fixture)
        for where in ({}, {"to": "middle"}, {"to": 1, "time_ms": 1}, {"to": -1}):
            error = refusal(fixture, "seek", topic="t", name="work", **where)
            assert isinstance(error, InvalidRequest)
            assert error.data["field"] == "to"

    def test_nobody_keeps_channels(self, fixture: BrokerFixture) -> None:
        """Where nobody keeps channels there is nothing to count, and nothing to seek."""
        fixture.node.channel_host = None
        work(fixture)
        channel = run(fixture, "info", topic="t", name="work")["channel"]
        (row, _) = channel["partitions"]
        assert (row["state"], row["reason"]) == ("offline", "tinymq has not opened it yet")
        assert (row["lag"], channel["lag"], channel["consumers"]) == (None, 0, 0)
        error = refusal(fixture, "empty", topic="t", name="work")
        assert isinstance(error, StateError)
        assert "not open on partitions 0, 1 of t; nothing was moved" in error.text
        for verb, more in (("channel_undo_seek", {}), ("channel_seek", {"to": "latest"})):
            arguments = {"id": fixture.meta.describe("t").id.hex(), "name": "work", **more}
            with pytest.raises(StateError, match="keeps no channels"):
                outcome_of(run_on_node(fixture.node, f"node.{verb}", arguments))


class TestDryRuns:
    def test_changes_nothing(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A dry run tells what would be, changes nothing, and then is right."""
        work(fixture)
        steps: list[tuple[str, dict[str, Any]]] = [
            ("create", {"name": "new", "config": {"attempts": 3}}),
            ("alter", {"config": {"attempts": 3}}),
            ("pause", {"reason": "upgrade"}),
            ("pause", {"undo": True}),
            ("seek", {"to": 2}),
            ("undo_seek", {}),
            ("empty", {"partition": 1}),
            ("delete", {}),
        ]
        for verb, more in steps:
            arguments = {"topic": "t", "name": "work", **more}
            before = fixture.meta.registry, dict(host.cursors), dict(host.before)
            dry = run(fixture, verb, **arguments, dry_run=True)
            assert (fixture.meta.registry, host.cursors, host.before) == before, verb
            real = run(fixture, verb, **arguments)
            for key in ("changes", "created", "changed", "undone"):
                assert dry.get(key) == real.get(key)
            if "plan" in dry:
                assert {**dry["plan"], "dry_run": False} == real["plan"]

    def test_would_be(self, fixture: BrokerFixture) -> None:
        """What a dry run would make has facts, and no messages to count."""
        result = run(fixture, "create", topic="t", name="work", start="latest", dry_run=True)
        assert result["channel"]["start"] == "latest"
        assert "partitions" not in result["channel"]


class TestLooking:
    def test_info(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """Counts are summed over partitions, consumers are those of the fullest one."""
        topic = work(fixture)
        host.cursors[topic, "work", 0] = 2
        host.in_flight[topic, "work", 0] = 2
        host.consumers |= {(topic, "work", 0): 3, (topic, "work", 1): 2}
        channel = run(fixture, "info", topic="t", name="work")["channel"]
        assert (channel["ready"], channel["in_flight"], channel["lag"]) == (2, 2, 4)
        assert (channel["consumers"], channel["silent"]) == (3, [])
        first, second = channel["partitions"]
        assert (first["leader"], first["leader_id"], first["state"]) == ("tinymq", 1, "online")
        assert (first["floor"], first["cursor"], first["end"]) == (0, 2, 3)
        assert (second["ready"], second["why"], second["undo_until_ms"]) == (1, "", None)

    def test_list(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """Channels come in order of topic and name, filtered, page by page, with sums."""
        fixture.topic("a", storage="memory")
        fixture.topic("empty", storage="memory")
        for topic, name in (("t", "b"), ("t", "a.2"), ("t", "a.1"), ("a", "z")):
            fixture.meta.create_channel(topic, name)

        def names(**arguments: Any) -> tuple[list[str], Any, int]:
            page = run(fixture, "list", **arguments)
            rows = [f"{row['topic']}/{row['name']}" for row in page["channels"]]
            assert page["more"] == (page["after"] is not None)
            return rows, page["after"], page["total"]

        assert names() == (["a/z", "t/a.1", "t/a.2", "t/b"], None, 4)
        assert names(topic="t") == (["t/a.1", "t/a.2", "t/b"], None, 3)
        assert names(topic="empty") == ([], None, 0)
        assert names(limit=2) == (["a/z", "t/a.1"], "t/a.1", 4)
        assert names(limit=2, after="t/a.1") == (["t/a.2", "t/b"], None, 4)
        assert names(after="a") == (["t/a.1", "t/a.2", "t/b"], None, 4)
        assert names(filter="a.*", limit=1) == (["t/a.1"], "t/a.1", 2)
        row = run(fixture, "list", filter="b")["channels"][0]
        assert (row["lag"], row["consumers"]) == (4, 0)
        assert isinstance(refusal(fixture, "list", topic="none"), UnknownTopic)

    def test_what_a_broker_is_asked(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A broker tells of topics that it knows, and of no others."""
        topic = work(fixture).hex()
        ask = {"ids": [topic, "00" * 16]}
        told = outcome_of(run_on_node(fixture.node, "node.channel_totals", ask))
        assert [(row["id"], row["lag"]) for row in told["channels"]] == [(topic, 4)]
        with pytest.raises(UnknownTopicId):
            outcome_of(run_on_node(fixture.node, "node.channels", {"id": "00" * 16}))
        with pytest.raises(InvalidRequest):
            outcome_of(run_on_node(fixture.node, "node.channels", {"id": "zz"}))


class TestPausing:
    def test_pause(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A paused channel says since when, until when and why, on every partition."""
        work(fixture)
        now = fixture.wall()
        result = run(
            fixture, "pause", topic="t", name="work", until_ms=now + 5000, reason="upgrade"
        )
        assert result["changed"]
        assert result["channel"]["paused"] == {
            "since_ms": now,
            "until_ms": now + 5000,
            "reason": "upgrade",
        }
        assert [row["paused"] for row in result["channel"]["partitions"]] == [True, True]
        assert not run(fixture, "pause", topic="t", name="work")["changed"]
        assert run(fixture, "pause", topic="t", name="work", undo=True)["changed"]
        assert run(fixture, "info", topic="t", name="work")["channel"]["paused"] is None

    def test_it_ends_by_itself(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A pause whose time is over is none."""
        work(fixture)
        run(fixture, "pause", topic="t", name="work", until_ms=fixture.wall() + 5000)
        fixture.wall.now_ms += 5000
        assert run(fixture, "info", topic="t", name="work")["channel"]["paused"] is None
        assert not run(fixture, "pause", topic="t", name="work", undo=True)["changed"]
        error = refusal(fixture, "pause", topic="t", name="work", until_ms=fixture.wall())
        assert error.data["field"] == "until_ms"


class TestSeeking:
    @pytest.mark.parametrize(
        ("where", "cursors"),
        [
            ({"to": "earliest"}, [0, 0]),
            ({"to": "latest"}, [3, 1]),
            ({"to": 2}, [2, 1]),
            ({"to": "2"}, [2, 1]),
            ({"to": 1 << 60}, [3, 1]),
            ({"time_ms": BEGIN_MS + 1500}, [2, 0]),
            ({"time_ms": 0}, [0, 0]),
            ({"to": 2, "partition": 0}, [2]),
        ],
    )
    def test_where(
        self,
        fixture: BrokerFixture,
        host: FakeChannels,
        where: dict[str, Any],
        cursors: list[int],
    ) -> None:
        """A seek goes to an end, an offset or a time, or the nearest that there is."""
        topic = work(fixture)
        plan = run(fixture, "seek", topic="t", name="work", **where)["plan"]
        assert [row["new_cursor"] for row in plan["partitions"]] == cursors
        assert [host.cursors[topic, "work", index] for index in range(len(cursors))] == cursors

    def test_not_before_the_start(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """Records that were purged do not come again."""
        work(fixture)
        fixture.operate("topic.purge", name="t", partition=0, before=2)
        plan = run(fixture, "seek", topic="t", name="work", to=0, partition=0)["plan"]
        assert [row["new_cursor"] for row in plan["partitions"]] == [2]

    def test_plan(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """A plan sums up what is settled, comes again and is lost."""
        topic = work(fixture)
        host.cursors |= {(topic, "work", 0): 2, (topic, "work", 1): 1}
        host.in_flight[topic, "work", 0] = 1
        plan = run(fixture, "seek", topic="t", name="work", to=1)["plan"]
        assert (plan["topic"], plan["channel"], plan["silent"]) == ("t", "work", [])
        assert (plan["skipped"], plan["revived"], plan["lost"]) == (0, 1, 1)
        assert plan["partitions"][0] == {
            "partition": 0,
            "cursor": 2,
            "new_cursor": 1,
            "skipped": 0,
            "revived": 1,
            "lost": 1,
            "undo_until_ms": fixture.wall() + UNDO_MS,
        }

    def test_empty_and_back(self, fixture: BrokerFixture, host: FakeChannels) -> None:
        """Emptying settles everything, and can be taken back once."""
        work(fixture)
        assert run(fixture, "empty", topic="t", name="work")["plan"]["skipped"] == 4
        assert run(fixture, "info", topic="t", name="work")["channel"]["lag"] == 0
        undone = run(fixture, "undo_seek", topic="t", name="work")
        assert (undone["undone"], undone["channel"]["lag"]) == ([0, 1], 4)
        assert isinstance(refusal(fixture, "undo_seek", topic="t", name="work"), NothingToUndo)


def test_changes_are_logged(fixture: BrokerFixture) -> None:
    """A change is logged with who made it, and with topic and channel."""
    keeper = LogKeeper()
    globalLogPublisher.addObserver(keeper)
    try:
        create = fixture.operations.run(
            "channel.create", {"topic": "t", "name": "w"}, Caller("ana")
        )
        outcome_of(create)
    finally:
        globalLogPublisher.removeObserver(keeper)
    lines = [event for event in keeper.events if event.get("principal")]
    assert [(each["principal"], each["what"]) for each in lines] == [("ana", "t/w")]


def test_many_topics_are_summed_up_in_several_turns(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn in between; a topic that is deleted meanwhile is left out."""
    monkeypatch.setattr(turns, "TURN_SECONDS", -1.0)
    for name in ("a", "b", "c"):
        fixture.topic(name)
        fixture.meta.create_channel(name, "work")
    outcome: list[dict[str, Any]] = []
    asking = fixture.operations.run("channel.list", {})
    Deferred.fromCoroutine(asking).addCallback(outcome.append)
    fixture.turn()
    fixture.meta.delete_topic("c")
    for _ in range(2):
        assert outcome == []
        fixture.turn()

    (page,) = outcome
    assert [row["topic"] for row in page["channels"]] == ["a", "b"]
