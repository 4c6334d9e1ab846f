"""Looking through what is published: in slices, one batch behind the other, for nothing else."""

from __future__ import annotations

from twisted.internet.task import Clock
from typing_extensions import override

from tests.broker.routing.exchanging import (
    bind,
    exchange_of,
    publish,
    records,
    settle,
    unbind,
    unroutable,
)
from tests.fakes.broker import Answers, BrokerFixture, LogKeeper, batch, only, refused
from tinymq.broker.routing.planning import MOST_RECORDS
from tinymq.broker.routing.tables import Names
from tinymq.errors import CorruptBatch
from tinymq.routing.tables import RuleTable
from tinymq.wire.batch import NATIVE, build
from tinymq.wire.codec import pack
from tinymq.wire.messages import Produce, ProduceReply
from tinymq.wire.records import Headers


class SlowTable:
    """A table that takes a millisecond for each record."""

    looks_at = frozenset({"key", "value"})
    failed = 0
    failure = ""

    def __init__(self, broker: BrokerFixture, *targets: str) -> None:
        self._clock = broker.clock
        self._targets = targets
        self.asked = 0

    def targets(self, key: bytes | None, headers: object, value: bytes | None) -> Names:
        """Take a while."""
        self.asked += 1
        self._clock.rightNow += 0.001
        return self._targets if key == b"a" else ()


def slow(broker: BrokerFixture) -> SlowTable:
    """Make an exchange that is slow."""
    topic = exchange_of(broker, "rule")
    broker.topic("a")
    sight = broker.broker.routing.tables.sight(topic.id)
    assert sight is not None
    table = SlowTable(broker, "a")
    sight.table = table  # type: ignore[assignment]
    sight._memory, sight._key = None, True
    return table


def test_a_long_batch_is_looked_through_in_slices(fixture: BrokerFixture) -> None:
    """Others have their turns meanwhile; the batch is stored at once, and answered at last."""
    table = slow(fixture)
    keys = [b"a"] * 99 + [b"b"]
    first = publish(fixture, *keys)
    second = publish(fixture, b"b")
    asked = table.asked
    fixture.turn()

    assert asked == 2
    assert first == second == []
    assert fixture.partition("x").high_watermark == 101

    settle(fixture, 20)
    assert unroutable(first) == bytes(12) + b"\x08"
    assert unroutable(second) == b"\x01"
    assert only(first).base_offset == 0


def test_what_was_looked_through_is_not_looked_through_again(fixture: BrokerFixture) -> None:
    """The copies are planned by what was told to the publisher, as long as nothing changed."""
    table = slow(fixture)
    publish(fixture, *[b"a"] * 10)
    settle(fixture)

    assert table.asked == 10
    assert len(fixture.values("a")) == 10


class SlowRules(RuleTable):
    """Rules that take a millisecond for each record."""

    clock: Clock

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        self.clock.rightNow += 0.001
        return super().targets(key, headers, value)


def slow_rules(broker: BrokerFixture, rule: str) -> str:
    """Make an exchange with a slow rule, and return the binding's id."""
    topic = exchange_of(broker, "rule")
    broker.topic("a")
    binding = bind(broker.meta, "x", "a", rule=rule)
    sight = broker.broker.routing.tables.sight(topic.id)
    assert sight is not None
    table = SlowRules()
    table.clock = broker.clock
    table.change(sight.exchange.bindings)
    sight.table = table
    return binding


def test_bindings_change_while_a_batch_is_looked_through(fixture: BrokerFixture) -> None:
    """The rest is looked at by what there is now; what is copied goes by that alone."""
    slow_rules(fixture, "size > 100")
    answers = publish(fixture, *[b"k"] * 20)
    assert answers == []

    bind(fixture.meta, "x", "a", rule="key == 'k'")
    settle(fixture, 20)
    assert unroutable(answers) == b"\x03\x00\x00"
    assert fixture.values("a") == [b"k"] * 20


def test_the_last_binding_goes_while_a_batch_is_looked_through(fixture: BrokerFixture) -> None:
    """What was not looked at by then goes nowhere."""
    binding = slow_rules(fixture, "size == 1")
    answers = publish(fixture, *[b"k"] * 20)
    unbind(fixture.meta, "x", binding)
    settle(fixture, 20)

    assert unroutable(answers) == b"\xfc\xff\x0f"
    assert len(records(fixture, "x.unroutable")) == 20


def test_a_batch_that_is_planned_in_parts_is_looked_through_once(fixture: BrokerFixture) -> None:
    """However long it is."""
    table = slow(fixture)
    count = MOST_RECORDS + 100
    publish(fixture, *[b"a"] * count)
    settle(fixture, count // 4)

    assert table.asked == count
    assert len(fixture.values("a")) == count


def test_a_table_that_fails_keeps_no_answer_back(fixture: BrokerFixture, logged: LogKeeper) -> None:
    """What was not looked at is taken for routed; it would fail again if it was sent again."""
    table = slow(fixture)
    table.targets = None  # type: ignore[assignment, method-assign]
    answers = publish(fixture, b"a")
    fixture.turn()

    assert unroutable(answers) is None
    assert only(answers).base_offset == 0


def test_answers_keep_the_order_of_their_batches(fixture: BrokerFixture) -> None:
    """A short batch is not answered before the long one that came first."""
    slow(fixture)
    told: list[int] = []
    topic = fixture.meta.describe("x").id
    for number, count in enumerate((60, 1, 40, 1)):
        data = batch(*[b"v"] * count, keys=[b"a"] * count)
        fixture.broker.produce(topic, 0, data, lambda _, n=number: told.append(n))  # type: ignore[misc]
    settle(fixture)

    assert told == [0, 1, 2, 3]


def test_a_repeat_is_told_the_same(fixture: BrokerFixture) -> None:
    """An idempotent producer that did not hear the answer hears it again."""
    exchange_of(fixture, "direct", "a")
    answers: list[Answers] = []
    topic = fixture.meta.describe("x").id
    for _ in range(2):
        found: Answers = []
        data = batch(b"1", b"2", keys=[b"a", b"b"], producer=(7, 0, 0))
        fixture.broker.produce(topic, 0, data, found.append)
        settle(fixture)
        answers.append(found)

    assert [unroutable(each) for each in answers] == [b"\x02", b"\x02"]
    assert only(answers[1]).duplicate
    assert len(fixture.values("a")) == 1


def test_a_batch_that_cannot_be_looked_through_is_refused(fixture: BrokerFixture) -> None:
    """The exchange needs its keys, and nobody can read them."""
    exchange_of(fixture, "direct", "a")
    payload = pack([None, None, b"\xc1", pack([b"v"]), None, None, None])
    answers: Answers = []
    topic = fixture.meta.describe("x").id
    fixture.broker.produce(topic, 0, build(payload, 1, NATIVE), answers.append)
    settle(fixture)

    assert isinstance(refused(answers), CorruptBatch)
    assert fixture.values("x") == []


def test_what_cannot_be_copied_is_passed_over(fixture: BrokerFixture) -> None:
    """A batch whose values are no values stays in the exchange's log, counted."""
    exchange_of(fixture, "direct", "a")
    payload = pack([None, None, pack([b"a"]), b"\xc1", None, None, None])
    answers: Answers = []
    topic = fixture.meta.describe("x").id
    fixture.broker.produce(topic, 0, build(payload, 1, NATIVE), answers.append)
    publish(fixture, b"a")
    settle(fixture)

    assert fixture.values("a") == [b"a"]
    (row,) = fixture.node.routers()["rows"]
    assert (row["missing"], row["pending"], row["copied"]) == (1, 0, 1)


def test_the_answer_travels(fixture: BrokerFixture) -> None:
    """The reply of PRODUCE has the bits."""
    exchange_of(fixture, "direct", "a")
    connection = fixture.connect()
    topic = fixture.meta.describe("x").id
    connection.post(Produce(topic_id=topic, partition=0), batch(b"1", b"2", keys=[b"b", b"a"]))
    settle(fixture)

    (frame,) = connection.frames()
    assert ProduceReply.from_meta(frame.split()[0]).unroutable == b"\x01"


def test_a_rule_looks_at_values(fixture: BrokerFixture) -> None:
    """Columns are opened as the rules need them; headers likewise."""
    topic = exchange_of(fixture, "rule")
    fixture.topic("a")
    bind(fixture.meta, "x", "a", rule="json.total > 100 && headers.region == 'eu'")
    headers = [[("region", b"eu")], [("region", b"us")], [("region", b"eu")]]
    values = [b'{"total": 200}', b'{"total": 300}', b'{"total": 2}']
    answers = publish(fixture, None, None, None, values=values, headers=headers)
    settle(fixture)

    assert unroutable(answers) == b"\x06"
    assert fixture.values("a") == [b'{"total": 200}']
    assert len(records(fixture, "x.unroutable")) == 2
    assert fixture.broker.routing.tables.sight(topic.id) is not None


def test_other_topics_are_not_looked_through(fixture: BrokerFixture) -> None:
    """A topic that is no exchange has no judge, and what it was told is what it is told."""
    fixture.topic("t")
    answers = fixture.produce(b"v")

    assert unroutable(answers) is None
    assert fixture.partition("t").judge is None
