"""Consumer groups as people and their programs ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.reading import GroupReader, hosted_of
from tests.fakes.broker import BEGIN_MS, BrokerFixture, outcome_of
from tinymq.errors import (
    BrokerSilent,
    FencedGeneration,
    GroupBusy,
    InvalidRequest,
    NothingToUndo,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnstablePosition,
)
from tinymq.operation import Result
from tinymq.operations import groups as module
from tinymq.operations.groups import Groups
from tinymq.wire.messages import Member


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFixture:
    """Return a broker with ten and five messages, of which a group has read four."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", partitions=2)
    for number in range(10):
        fixture.wall.now_ms += 1000
        fixture.produce(b"%d" % number)
    fixture.produce(*[b"x"] * 5, partition=1)
    GroupReader(fixture).commit(4, note="n")
    return fixture


def one(broker: BrokerFixture, name: str = "g") -> Result:
    """The row of a group in the list."""
    (row,) = (row for row in broker.carry_out("group.list")["groups"] if row["name"] == name)
    return row  # type: ignore[no-any-return]


def partitions(broker: BrokerFixture, name: str = "g") -> list[Result]:
    """The rows of its partitions."""
    found: list[Result] = broker.carry_out("group.info", name=name)["partitions"]
    return found


def planned(reply: Result) -> list[tuple[Any, ...]]:
    """A plan without the names of topics."""
    keys = ("partition", "before", "after", "skipped", "replayed")
    return [tuple(row[key] for key in keys) for row in reply["plan"]]


def test_list(broker: BrokerFixture) -> None:
    """A group is told with how far it is behind, in messages and in seconds."""
    GroupReader(broker, "other").commit(5, partition=1)
    broker.wall.now_ms += 5000
    row = one(broker)
    assert {key: row[key] for key in ("topics", "partitions", "lag", "lag_s", "committed_ms")} == {
        "topics": ["t"],
        "partitions": 1,
        "lag": 6,
        "lag_s": 10.0,
        "committed_ms": BEGIN_MS,
    }
    assert (row["state"], row["members"], row["strategy"], row["generation"]) == ("empty", 0, "", 0)
    assert row["stuck"] == "nobody reads, and 6 messages wait"
    assert row["coordinator"] == broker.broker.name
    idle = one(broker, "other")
    assert (idle["lag"], idle["lag_s"], idle["clear_s"], idle["stuck"]) == (0, None, 0, "")


def test_pages(broker: BrokerFixture) -> None:
    """Groups come in order of their names, page by page, those of a topic or like a pattern."""
    broker.topic("u")
    for name in ("a", "b", "c"):
        GroupReader(broker, name).commit(0, topic="u")
    first = broker.carry_out("group.list", limit=2)
    assert [row["name"] for row in first["groups"]] == ["a", "b"]
    assert (first["more"], first["after"], first["silent"]) == (True, "b", [])
    last = broker.carry_out("group.list", limit=2, after="b")
    assert [row["name"] for row in last["groups"]] == ["c", "g"]
    assert (last["more"], last["after"]) == (False, None)
    assert [row["name"] for row in broker.carry_out("group.list", topic="t")["groups"]] == ["g"]
    like = broker.carry_out("group.list", filter="[bc]")["groups"]
    assert [row["name"] for row in like] == ["b", "c"]
    with pytest.raises(UnknownTopic):
        broker.carry_out("group.list", topic="nix")


def test_info(broker: BrokerFixture) -> None:
    """Each partition is told with where the group is and what can be read."""
    GroupReader(broker).taken(5, partition=1)
    reply = broker.carry_out("group.info", name="g")
    first, second = reply["partitions"]
    assert {key: first[key] for key in ("committed", "note", "start", "end", "lag")} == {
        "committed": 4,
        "note": "n",
        "start": 0,
        "end": 10,
        "lag": 6,
    }
    assert (first["generation"], first["member"], first["draining"], first["error"]) == (
        *(-1, "", False, ""),
    )
    assert (second["committed"], second["lag"]) == (None, 5), (
        "a member that commits nothing is seen"
    )
    assert second["generation"] == 5
    assert reply["group"]["partitions"] == 2
    assert (reply["members"], reply["rebalances"], reply["undo_until_ms"]) == ([], [], None)
    with pytest.raises(UnknownGroup):
        broker.carry_out("group.info", name="nix")


def test_trend(broker: BrokerFixture) -> None:
    """It is told by how much the lag grows, and when nothing will be left."""
    reader = GroupReader(broker)
    for number in range(12):
        reader.commit(4)
        broker.produce(b"a", b"b")
        broker.clock.advance(1)
        broker.wall.now_ms += 1000
        assert number < 3 or one(broker)["trend"] == pytest.approx(2, abs=0.4)
    assert one(broker)["clear_s"] is None
    for offset in range(4, 34, 3):
        reader.commit(offset)
        broker.clock.advance(1)
    row = one(broker)
    assert row["trend"] == pytest.approx(-3, abs=0.6)
    assert row["clear_s"] == pytest.approx(row["lag"] / 3, rel=0.3)


def test_what_went_unread(broker: BrokerFixture) -> None:
    """What retention or a purge took before the group read it is told, and the lag is true."""
    broker.operate("topic.purge", name="t", partition=0, before=7)
    (row,) = partitions(broker)
    assert (row["lag"], row["start"]) == (3, 7)
    assert row["error"] == "3 messages before offset 7 were removed before the group read them"
    assert one(broker)["stuck"] == "3 messages went before it read them"


def test_an_undecided_transaction(broker: BrokerFixture) -> None:
    """A position that a transaction would move is told as that, and moved by nobody."""
    GroupReader(broker).commit(6, transaction=(7, 0))
    (row,) = partitions(broker)
    assert row["error"] == "a transaction that moves it is not decided yet"
    assert "transaction" in one(broker)["stuck"]
    for act in ("seek", "reset"):
        more = {"to": 0} if act == "seek" else {}
        with pytest.raises(UnstablePosition):
            broker.carry_out(f"group.{act}", name="g", **more)
    hosted_of(broker).positions.decide((7, 0), commit=True)
    assert partitions(broker)[0]["committed"] == 6


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", 0),
        ("latest", 10),
        (7, 7),
        ("7", 7),
        (70, 10),
        ("+2", 6),
        ("-3", 1),
        ("-30", 0),
        (f"@{BEGIN_MS + 3000}", 2),
        ("@0", 0),
        (f"@{BEGIN_MS + 3_600_000}", 10),
    ],
)
def test_seek(broker: BrokerFixture, to: str | int, after: int) -> None:
    """The plan says what is skipped and what comes again; then it is so, and can be taken back."""
    plan = broker.carry_out("group.seek", name="g", to=to, dry_run=True)
    assert planned(plan) == [(0, 4, after, max(0, after - 4), max(0, 4 - after))]
    assert (plan["done"], plan["dry_run"], plan["silent"]) == (False, True, [])
    assert partitions(broker)[0]["committed"] == 4
    done = broker.carry_out("group.seek", name="g", to=to)
    assert done["plan"] == plan["plan"]
    assert (done["done"], done["undo_until_ms"]) == (True, BEGIN_MS + 600_000)
    assert partitions(broker)[0]["committed"] == after
    assert broker.carry_out("group.info", name="g")["undo_until_ms"] == BEGIN_MS + 600_000
    back = broker.carry_out("group.undo_seek", name="g", dry_run=True)
    assert planned(back) == [(0, after, 4, max(0, 4 - after), max(0, after - 4))]
    broker.carry_out("group.undo_seek", name="g")
    row = partitions(broker)[0]
    assert (row["committed"], row["note"]) == (4, "n")
    with pytest.raises(NothingToUndo):
        broker.carry_out("group.undo_seek", name="g")


@pytest.mark.parametrize("to", ["", "soon", -1, "@x", "+", "--1", True, 1.5, "1" * 20])
def test_nowhere(broker: BrokerFixture, to: Any) -> None:
    """What is no place is refused before anything happens."""
    with pytest.raises(InvalidRequest):
        broker.carry_out("group.seek", name="g", to=to)
    assert partitions(broker)[0]["committed"] == 4


def test_ways_to_say_where(broker: BrokerFixture) -> None:
    """One way to say where is needed, and only one."""
    seek = "group.seek"
    for wrong in (
        {},
        {"to": 0, "from_group": "g"},
        {"positions": [], "to": 0},
        {"positions": [{"topic": "t", "partition": 0}]},
        {"positions": [{"topic": "t", "partition": 0, "offset": -1}]},
        {"positions": [], "topic": "t"},
        {"to": 0, "partition": 0},
    ):
        with pytest.raises(InvalidRequest):
            broker.carry_out(seek, name="g", **wrong)
    with pytest.raises(UnknownGroup):
        broker.carry_out(seek, name="g", from_group="nix")
    with pytest.raises(UnknownTopic):
        broker.carry_out(seek, name="g", topic="nix", to=0)
    for more in (
        {"topic": "t", "partition": 7, "to": 0},
        {"positions": [{"topic": "t", "partition": 7, "offset": 0}]},
    ):
        with pytest.raises((UnknownPartition, InvalidRequest)):
            broker.carry_out(seek, name="g", **more)


def test_seek_in_a_topic(broker: BrokerFixture) -> None:
    """A topic that is named is moved in all of its partitions, or in one of them."""
    every = broker.carry_out("group.seek", name="g", topic="t", to="latest")
    assert planned(every) == [(0, 4, 10, 6, 0), (1, None, 5, 0, 0)]
    alone = broker.carry_out("group.seek", name="g", topic="t", partition=1, to=2)
    assert planned(alone) == [(1, 5, 2, 0, 3)]
    relative = broker.carry_out("group.seek", name="g", to="-1", dry_run=True)
    assert planned(relative) == [(0, 10, 9, 0, 1), (1, 2, 1, 0, 1)]


def test_seek_to_places(broker: BrokerFixture) -> None:
    """Positions are given one by one, or taken from another group."""
    rows = [
        {"topic": "t", "partition": 0, "offset": 9},
        {"topic": "t", "partition": 1, "offset": 3},
    ]
    assert planned(broker.carry_out("group.seek", name="g", positions=rows)) == [
        (0, 4, 9, 5, 0),
        (1, None, 3, 0, 0),
    ]
    GroupReader(broker, "new").commit(0)
    copied = broker.carry_out("group.seek", name="new", from_group="g")
    assert planned(copied) == [(0, 0, 9, 9, 0), (1, None, 3, 0, 0)]
    assert [row["committed"] for row in partitions(broker, "new")] == [9, 3]


def test_undo_ends(broker: BrokerFixture) -> None:
    """A seek is taken back only for a while, and only while the messages are there."""
    broker.carry_out("group.seek", name="g", to=0)
    broker.clock.advance(601)
    with pytest.raises(NothingToUndo):
        broker.carry_out("group.undo_seek", name="g")
    broker.carry_out("group.seek", name="g", to=2)
    broker.carry_out("group.seek", name="g", to="latest")
    broker.operate("topic.purge", name="t", partition=0, before=5)
    with pytest.raises(NothingToUndo):
        broker.carry_out("group.undo_seek", name="g")
    assert broker.carry_out("group.info", name="g")["undo_until_ms"] is None


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_seek_outlives_a_restart(broker: BrokerFixture, how: str) -> None:
    """Neither a seek nor what takes it back is lost with the broker."""
    broker.carry_out("group.seek", name="g", to=1)
    getattr(broker, how)()
    again = broker.again()
    assert partitions(again)[0]["committed"] == 1
    again.clock.advance(1)
    again.carry_out("group.undo_seek", name="g")
    assert partitions(again)[0]["committed"] == 4


def test_reset(broker: BrokerFixture) -> None:
    """Positions are forgotten in all topics or in one, and it can be taken back."""
    broker.topic("u")
    GroupReader(broker).commit(0, topic="u")
    reply = broker.carry_out("group.reset", name="g", topic="t")
    assert planned(reply) == [(0, 4, None, 0, 0)]
    assert GroupReader(broker).committed().offset == -1
    assert GroupReader(broker).committed(topic="u").offset == 0
    assert partitions(broker)[0]["committed"] is None
    broker.carry_out("group.undo_seek", name="g")
    assert GroupReader(broker).committed().offset == 4
    broker.carry_out("group.reset", name="g")
    assert GroupReader(broker).committed(topic="u").offset == -1


def test_no_lag_without_a_position(broker: BrokerFixture) -> None:
    """Of a group that nobody knows the place of, no lag is told, not even none at all."""
    GroupReader(broker).commit(5, partition=1)
    assert one(broker)["lag"] == 6
    broker.carry_out("group.reset", name="g", dry_run=False)
    row, whole = one(broker), broker.carry_out("group.info", name="g")
    assert (row["lag"], row["lag_s"], row["clear_s"], row["stuck"]) == (None, None, None, "")
    assert whole["group"]["lag"] is None
    assert [each["lag"] for each in whole["partitions"]] == [None, None]
    GroupReader(broker).commit(5, partition=1)
    assert one(broker)["lag"] is None, "one of two is known, and at the end"
    GroupReader(broker).commit(7)
    assert one(broker)["lag"] == 3


def test_a_moved_group_is_nobodys(broker: BrokerFixture) -> None:
    """Who had the partition is refused after a move, and who takes it over begins there."""
    reader = GroupReader(broker)
    reader.taken(5)
    broker.carry_out("group.seek", name="g", to=1)
    refused = reader.commit(6, 5)
    assert isinstance(refused, FencedGeneration)
    assert refused.data == {"generation": 6}
    assert reader.commit(2) is None, "nobody has it, so that who is no member may commit"
    assert reader.taken(7) == 2
    broker.carry_out("group.reset", name="g")
    assert isinstance(reader.commit(6, 7), FencedGeneration)
    assert reader.taken(9) == -1


def test_delete(broker: BrokerFixture) -> None:
    """A group is told as it was, and gone."""
    reply = broker.carry_out("group.delete", name="g", dry_run=True)
    assert (reply["group"]["lag"], reply["dry_run"]) == (6, True)
    assert broker.carry_out("group.delete", name="g")["group"]["lag"] == 6
    assert broker.carry_out("group.list")["groups"] == []
    with pytest.raises(UnknownGroup):
        broker.carry_out("group.delete", name="g")


def test_members(broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with members is moved and removed only by force; so is one nobody knows of."""
    told: dict[str, Any] = {"members": [{"id": "m"}], "shares": [], "rebalances": []}
    told |= {"state": "stable", "strategy": "range", "generation": 5, "stuck": ""}
    answer: list[Any] = [(told, set())]

    async def coordination(self: Groups, name: str) -> Any:
        return answer[0]

    monkeypatch.setattr(Groups, "_coordination", coordination)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("group.seek", {"to": 0}),
        ("group.undo_seek", {}),
        ("group.reset", {}),
        ("group.delete", {}),
    ]
    for answer[0] in ((told, set()), (None, {1})):
        for name, more in calls:
            with pytest.raises(GroupBusy):
                broker.carry_out(name, **more, name="g")
    for name, more in calls:
        broker.carry_out(name, **more, name="g", force=True)


def test_who_has_what(broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the coordinator knows stands beside what the partitions know."""
    share = {"topic": "t", "id": "", "partitions": [["m", 5, False], ["m", 6, True]]}
    told: dict[str, Any] = {
        "members": [{"id": "m"}],
        "shares": [share],
        "rebalances": [{"at_ms": 1, "took_ms": 2, "moved": 2, "why": "m joined"}],
        "state": "moving",
        "strategy": "range",
        "generation": 6,
        "stuck": "it is stuck",
        "topics": ["t"],
        "partitions": 2,
    }

    async def coordination(self: Groups, name: str) -> Any:
        return told, set()

    monkeypatch.setattr(Groups, "_coordination", coordination)
    GroupReader(broker).taken(5)
    broker.wall.now_ms += 1
    reply = broker.carry_out("group.info", name="g")
    assert [(row["member"], row["generation"], row["draining"]) for row in reply["partitions"]] == [
        ("m", 5, False),
        ("m", 6, True),
    ]
    second = reply["partitions"][1]
    assert (second["committed"], second["start"], second["error"]) == (None, None, "")
    assert reply["group"]["state"] == "moving"
    assert reply["group"]["stuck"] == "it is stuck"
    assert reply["rebalances"] == told["rebalances"]


def test_with_real_members(broker: BrokerFixture) -> None:
    """A member that joins is told with what it has, keeps the group from being moved, and goes."""
    connection = broker.connect(client_id="app")
    connection.post(Member(group="g", member="m1", topics=["t"]))
    for _ in range(10):
        broker.clock.advance(1)
    reply = broker.carry_out("group.info", name="g")
    (member,) = reply["members"]
    assert (member["id"], member["client"], member["partitions"]) == ("m1", "app", 2)
    assert [row["member"] for row in reply["partitions"]] == ["m1", "m1"]
    generation = reply["partitions"][0]["generation"]
    assert generation > 0
    (row,) = broker.carry_out("group.list", topic="t")["groups"]
    assert (row["members"], row["partitions"]) == (1, 2)
    assert row["strategy"] == "cooperative-sticky"
    reader = GroupReader(broker, member="m1")
    assert reader.taken(generation) == 4
    with pytest.raises(GroupBusy, match=r"group g has 1 member reading.* go on from where it puts"):
        broker.carry_out("group.seek", name="g", to=0)
    with pytest.raises(GroupBusy, match=r"nothing was removed.* make it anew"):
        broker.carry_out("group.delete", name="g")
    broker.carry_out("group.seek", name="g", to=0, force=True)
    assert isinstance(reader.commit(6, generation), FencedGeneration)
    assert broker.carry_out("group.info", name="g")["members"] == [], "it has to join anew"
    connection.post(Member(group="g", member="m2", topics=["t"]))
    broker.clock.advance(5)
    broker.carry_out("group.delete", name="g", force=True)
    broker.meta.ensure_group("g")
    reader.commit(4)
    assert broker.carry_out("group.info", name="g")["members"] == []
    broker.clock.advance(1)
    broker.carry_out("group.seek", name="g", to=1)
    assert partitions(broker)[0]["committed"] == 1


def test_stuck(broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that reads and commits nothing for long is told as that."""
    told: dict[str, Any] = {"members": [{}], "shares": [], "rebalances": [], "state": "stable"}
    told |= {"strategy": "range", "generation": 6, "stuck": ""}

    async def coordination(self: Groups, name: str) -> Any:
        return told, set()

    monkeypatch.setattr(Groups, "_coordination", coordination)
    assert broker.carry_out("group.info", name="g")["group"]["stuck"] == ""
    broker.wall.now_ms += 120_000
    stuck = broker.carry_out("group.info", name="g")["group"]["stuck"]
    assert stuck == "it has committed nothing for 130 s, and 6 messages wait"


def test_no_half_of_a_seek(broker: BrokerFixture) -> None:
    """While a leader does not answer nothing is moved."""

    class Silent:
        async def ask(self, broker_id: int, operation: str, arguments: Any) -> Result:
            raise BrokerSilent("no", broker=broker_id)

    broker.operations._nodes = Silent()
    with pytest.raises(BrokerSilent, match="nothing was done"):
        outcome_of(broker.operations.run("group.seek", {"name": "g", "to": 0}), broker.clock)
    plan = broker.carry_out("group.seek", name="g", to=0, dry_run=True)
    assert (plan["plan"], plan["silent"]) == ([], [broker.broker.name])
    info = broker.carry_out("group.info", name="g")
    assert info["silent"] == [broker.broker.name]


def test_in_pieces(broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lists go to brokers piece by piece, and come back as one."""
    monkeypatch.setattr(module, "_MOST_ASKED", 2)
    for name in ("a", "b", "c", "d"):
        GroupReader(broker, name).commit(1)
    groups = broker.carry_out("group.list")["groups"]
    assert [(row["name"], row["lag"]) for row in groups] == [
        *(("a", 9), ("b", 9), ("c", 9), ("d", 9), ("g", 6)),
    ]
    rows = [{"topic": "t", "partition": index, "offset": 2} for index in (0, 1, 0)]
    plan = broker.carry_out("group.seek", name="g", positions=rows)
    assert [row["after"] for row in plan["plan"]] == [2, 2, 2]
