"""Dead letters: what they say, where they go, and how they come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerFixture, HeldSyncer
from tests.fakes.taking import Taker
from tinymq.broker.graves import lay
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import Facts, dead_letter_topic, facts_of, parking_topic, way_of
from tinymq.broker.ports import Letters
from tinymq.errors import InvalidName, InvalidRequest, OutOfOrderSequence, UnknownTopic, WireError
from tinymq.names import valid_name
from tinymq.node import deadletters as looking
from tinymq.wire.batch import split
from tinymq.wire.records import Headers, RecordBatch, encode_batch

DEAD = "t.c.dead"
#: Steps of the clock after which an operation must have ended.
PATIENCE = 300
#: Turns of the reactor that a redrive of this size has at most.
TURNS = 12


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of one partition."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    return broker


def takes(broker: BrokerFixture, **given: Any) -> Taker:
    """A new client that takes messages of the channel `c`."""
    taker = Taker(broker)
    taker.subscribe(**given)
    return taker


def ask(broker: BrokerFixture, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry out an operation, and let time pass until it has ended."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(broker.operations.run(operation, arguments)).addBoth(outcome.append)
    for _ in range(PATIENCE):
        if outcome:
            break
        broker.clock.advance(0.02)
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    return result  # type: ignore[no-any-return]


def headers(broker: BrokerFixture, topic: str) -> list[Headers]:
    """The headers of all messages of a topic."""
    log = broker.partition(topic).log
    found: list[Headers] = []
    while log.written_offset and len(found) < log.written_offset:
        chunk = log.read(len(found), 1 << 20, log.written_offset)
        assert chunk is not None
        found += (each for header, data in split(chunk.data) for each in _of(data, header))
    return found


def _of(data: Any, header: Any) -> list[Headers]:
    return RecordBatch(data, header).headers


def facts(broker: BrokerFixture, topic: str = DEAD) -> list[Facts]:
    """What the dead letters of a topic say."""
    return [facts_of(each) for each in headers(broker, topic)]


def hosted_of(broker: BrokerFixture, topic: str = "t") -> Hosted:
    """The channels of a topic's first partition."""
    found = broker.broker.channels.hosted(broker.meta.describe(topic).id, 0)
    assert found is not None
    return found


def rejects(broker: BrokerFixture, *values: bytes, **given: Any) -> Taker:
    """Publish messages, and let the channel give them up."""
    broker.produce(*values)
    taker = takes(broker, **given)
    taker.reject(*taker.take(), reason="no")
    taker.run()
    return taker


# --- what they say ------------------------------------------------------------------------------


def test_a_dead_letter_tells_its_story(broker: BrokerFixture) -> None:
    """Who had it, how often it failed, when first and last, and with which error."""
    broker.meta.create_channel("t", "c", {"attempts": 3, "backoff": ["1s"], "jitter.percent": 0})
    broker.produce(b"a")
    taker = Taker(broker, broker.connect(client_id="worker-7"))
    taker.subscribe()
    began = broker.broker.channels.now()
    for text in ("one", "two", "three"):
        taker.requeue(*taker.take(), x=text)
        taker.run(1)

    (told,) = facts(broker)
    assert (told.reason, told.text, told.deliveries, told.failures) == ("failed", "three", 3, 3)
    assert (told.topic, told.partition, told.offset, told.channel) == ("t", 0, 0, "c")
    assert told.topic_id == broker.meta.describe("t").id
    assert (told.first_ms, told.last_ms) == (began, began + 2000)
    assert (told.client, told.hops, told.redriven, told.loop) == ("worker-7", 1, 0, False)


def test_a_dead_letter_names_the_client_that_it_killed(broker: BrokerFixture) -> None:
    """Its link is gone by the time at which the message is given up, but not its name."""
    broker.meta.create_channel("t", "c", {"attempts": 1})
    broker.produce(b"a")
    victim = Taker(broker, broker.connect(client_id="worker-7"))
    victim.subscribe()
    victim.take()
    victim.connection.lose()
    for _ in range(40):
        broker.clock.advance(1)

    (told,) = facts(broker)
    assert (told.reason, told.client) == ("lost", "worker-7")


def test_the_time_of_the_first_failure_outlives_a_restart(broker: BrokerFixture) -> None:
    """It is read back from the ledger."""
    broker.meta.create_channel("t", "c", {"attempts": 2, "backoff": ["1s"], "jitter.percent": 0})
    broker.produce(b"a")
    taker = takes(broker)
    began = broker.broker.channels.now()
    taker.requeue(*taker.take(), x="one")
    broker.kill()
    again = broker.again()
    again.clock.advance(0)
    last = takes(again)
    last.run(20)
    last.requeue(*last.take(), x="two")
    last.run()

    assert [each.first_ms for each in facts(again)] == [began]


def test_defaults_bound_the_attempts(broker: BrokerFixture) -> None:
    """A handler that always fails ends in the dead-letter topic without any setting."""
    broker.produce(b"a")
    taker = takes(broker)
    deliveries = 0
    while broker.meta.registry.by_name.get(DEAD) is None:
        taken = taker.take()
        deliveries += len(taken)
        taker.requeue(*taken, x="always")
        taker.run(60)

    assert deliveries == broker.meta.describe_channel("t", "c").policy.attempts
    assert broker.values(DEAD) == [b"a"]


def test_the_last_attempt_is_the_last_whatever_the_delay(broker: BrokerFixture) -> None:
    """Who asks for a long delay with it gets the message into the dead-letter topic at once."""
    broker.meta.create_channel("t", "c", {"attempts": 3})
    broker.produce(b"a")
    taker = takes(broker)
    for _ in range(2):
        taker.requeue(*taker.take(), d=1)
        taker.run(0.1)
    taker.requeue(*taker.take(), d=3_600_000)
    taker.run()

    assert broker.values(DEAD) == [b"a"]
    places = hosted_of(broker).queue.channels["c"].channel.places
    assert (places.unsettled, places.dooming, len(places.marks)) == (0, 0, 0)


def test_what_a_message_had_stays_but_for_its_timing(broker: BrokerFixture) -> None:
    """Headers of the producer are kept; a dead letter is not delayed and does not expire."""
    broker.produce(b"a", topic="t")
    before = [("colour", b"red"), ("tinymq-ttl", b"5"), ("tinymq-delay", b"9")]
    hosted = hosted_of_new(broker)
    letter = hosted_letter(broker, before)

    assert hosted.index == 0
    assert [name for name, _ in letter][:2] == ["colour", "tinymq-topic"]


def hosted_of_new(broker: BrokerFixture) -> Hosted:
    """The channels of a topic after it got its first one."""
    broker.meta.create_channel("t", "c")
    return hosted_of(broker)


def hosted_letter(broker: BrokerFixture, before: Headers) -> Headers:
    """The headers of a dead letter of a message with some headers."""
    data = encode_batch([b"b"], headers=[before])
    broker.broker.produce(broker.meta.describe("t").id, 0, data, lambda _: None)
    broker.clock.advance(0)
    taker = takes(broker)
    taker.reject(*taker.take()[1:])
    taker.run()
    return headers(broker, DEAD)[0]


def test_when_a_message_was_made_stays(broker: BrokerFixture) -> None:
    """A dead letter keeps the time that its producer gave; one that has none gets none."""
    topic = broker.meta.describe("t").id
    for times in (None, [7]):
        batch = encode_batch([b"a"], times=times)
        broker.broker.produce(topic, 0, batch, lambda _: None)
        broker.clock.advance(0)
    taker = takes(broker)
    taker.reject(*taker.take())
    taker.run()
    log = broker.partition(DEAD).log
    chunk = log.read(0, 1 << 20, 2)
    assert chunk is not None

    assert [RecordBatch(data, header).times for header, data in split(chunk.data)] == [[None], [7]]


@pytest.mark.parametrize(
    ("topic", "channel"), [("t", "c"), ("t" * 199, "c" * 199), ("t" * 200, "d")]
)
def test_names_of_dead_letter_topics_are_names(topic: str, channel: str) -> None:
    """However long the names are that they are made of."""
    assert valid_name(dead_letter_topic(topic, channel, ""))
    assert valid_name(parking_topic(topic))
    assert dead_letter_topic(topic, channel, "") != dead_letter_topic(topic, f"{channel}2", "")
    assert dead_letter_topic(topic, channel, "") == dead_letter_topic(topic, f"{channel}@2", "")


# --- where they go -----------------------------------------------------------------------------


def test_a_dead_letter_topic_is_like_its_origin(broker: BrokerFixture) -> None:
    """It has as many partitions with the same leaders, and nothing in it goes away by itself."""
    broker.topic("wide", partitions=3)
    broker.meta.create_channel("wide", "c")
    broker.produce(b"a", topic="wide", partition=2)
    taker = takes(broker, topic="wide")
    taker.reject(*taker.take())
    taker.run()
    topic = broker.meta.describe("wide.c.dead")

    assert topic.leaders == broker.meta.describe("wide").leaders
    assert (topic.config.retention_ms, topic.config.retention_bytes) == (None, None)
    assert broker.values("wide.c.dead", 2) == [b"a"]


def test_a_dead_letter_topic_that_was_deleted_is_made_again(broker: BrokerFixture) -> None:
    """Without going in circles, and what is given up then is in it."""
    taker = rejects(broker, b"a")
    broker.operate("topic.delete", name=DEAD)
    broker.produce(b"b")
    taker.run()
    taker.reject(*taker.take())
    taker.run(0.1)

    assert broker.values(DEAD) == [b"b"]


def test_what_nobody_takes_is_tried_with_pauses(broker: BrokerFixture) -> None:
    """As long as no topic can be made the letters are kept, and the broker is quiet."""
    broker.meta._config = attrs.evolve(
        broker.meta._config, topics=attrs.evolve(broker.meta._config.topics, most=1)
    )
    taker = rejects(broker, b"a")
    hosted = hosted_of(broker)
    asked = 0
    for _ in range(60):
        taker.run(1)
        asked = max(asked, len(broker.clock.calls))
    kept = dict(hosted.burying.kept)
    queue = ask(broker, "dlq.list")["queues"][0]
    broker.meta._config = broker.config
    taker.run(40)

    assert "there are 1 topics" in kept[DEAD]
    assert asked < 20
    assert (queue["target"], queue["kept"], queue["messages"]) == (DEAD, 1, 0)
    assert "there are 1 topics" in queue["kept_why"]
    assert broker.values(DEAD) == [b"a"]
    assert hosted.burying.kept == {}


def test_what_is_too_long_for_its_topic_is_parked(broker: BrokerFixture) -> None:
    """It never fits, and must not be in the way of those behind it."""
    broker.topic("graves", max_value_bytes=10)
    broker.meta.create_channel("t", "c", {"dead.letter": "graves"})
    rejects(broker, b"a", b"b" * 100, b"c").run(3)

    assert broker.values("graves") == [b"a", b"c"]
    assert broker.values("t.parking") == [b"b" * 100]
    assert facts(broker, "t.parking")[0].loop


def test_what_goes_in_circles_is_parked(broker: BrokerFixture) -> None:
    """Two channels that give up to each other's topics: bounded, counted, and nothing is lost."""
    broker.topic("a")
    broker.topic("b")
    broker.meta.create_channel("a", "x", {"dead.letter": "b", "max.length": 1})
    broker.meta.create_channel("b", "y", {"dead.letter": "a", "max.length": 1})
    for number in range(100):
        broker.produce(b"%d" % number, topic="a")
        broker.turn()
    for _ in range(100):
        broker.clock.advance(0)

    parked, first, second = (broker.values(each) for each in ("b.parking", "a", "b"))
    assert first == [b"%d" % number for number in range(100)]
    assert second == first[:99]
    assert parked == first[:98]
    assert facts(broker, "b.parking")[0].parked == "it went in circles: a -> b -> a"
    rows = {row["target"]: row for row in ask(broker, "dlq.list")["queues"]}
    assert rows["b.parking"]["parking"]
    assert rows["b.parking"]["messages"] == 98
    assert rows["b"]["loop"].startswith("b -> a -> b")


def test_what_is_given_up_again_and_again_is_parked(broker: BrokerFixture) -> None:
    """Channels on dead-letter topics pass a message on so often, and no more."""
    broker.produce(b"a")
    topic, hops = "t", []
    for _ in range(8):
        taker = takes(broker, topic=topic)
        taker.reject(*taker.take())
        taker.run()
        found = [name for name in broker.meta.registry.by_name if name.startswith(f"{topic}.")]
        if not found:
            break
        topic = found[0]
        hops.append(facts(broker, topic)[0].hops)

    assert hops == [1, 2, 3, 4, 5, 6]
    assert topic.endswith(".parking")
    assert len(way_of(headers(broker, topic)[0])) == 6
    # What is given up there stays there.
    assert hosted_of(broker, topic).queue.channels["c"].channel.places.dooming == 0
    assert ask(broker, "dlq.messages", target=topic)["messages"][0]["loop"]


def test_a_number_that_is_taken_is_known(broker: BrokerFixture) -> None:
    """Whoever brings letters again is told which of them are there, once they are safe."""
    graves = broker.topic("graves")
    told: list[WireError | None] = []
    for first, values in ((4, (b"a", b"b")), (4, (b"a", b"b")), (5, (b"b", b"c")), (6, (b"c",))):
        letters = Letters(graves.id, 0, 1 << 62, first, _batch(*values))
        _lay(broker, letters, told)

    assert [type(each) for each in told] == [type(None), type(None), OutOfOrderSequence, type(None)]
    assert broker.values("graves") == [b"a", b"b", b"c"]


def test_a_taken_number_is_told_when_it_is_safe(tmp_path: Path) -> None:
    """What is on its way to the disk is not there yet."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path / "held", syncer=syncer)
    graves = broker.topic("graves")
    told: list[WireError | None] = []
    _lay(broker, Letters(graves.id, 0, 1 << 62, 0, _batch(b"a", b"b")), told)
    _lay(broker, Letters(graves.id, 0, 1 << 62, 0, _batch(b"a")), told)
    before = list(told)
    syncer.release()
    broker.clock.advance(0)

    assert before == []
    assert [type(each) for each in told] == [type(None), OutOfOrderSequence]


def _batch(*values: bytes) -> bytes:
    return encode_batch(values)


def _lay(broker: BrokerFixture, letters: Letters, told: list[WireError | None]) -> None:
    lay(broker.broker, letters, told.append)
    for _ in range(3):
        broker.clock.advance(0)


# --- looking at them ---------------------------------------------------------------------------


def test_letters_are_told_in_groups_and_one_by_one(broker: BrokerFixture) -> None:
    """With filters; what was dealt with is not told any more."""
    taker = rejects(broker, b"a", b"b")
    broker.produce(b"c")
    taker.run()
    taker.reject(*taker.take(), reason="other")
    taker.run()

    told = ask(broker, "dlq.messages", target=DEAD)
    assert told["groups"] == [
        {"reason": "rejected", "topic": "t", "channel": "c", "text": "no", "count": 2},
        {"reason": "rejected", "topic": "t", "channel": "c", "text": "other", "count": 1},
    ]
    assert [row["preview"] for row in told["messages"]] == ["a", "b", "c"]
    assert (told["scanned"], told["more"], told["after"]) == (3, False, None)
    chosen = ask(broker, "dlq.messages", target=DEAD, text="oth", reason="rejected", channel="c")
    assert [row["offset"] for row in chosen["messages"]] == [2]
    assert ask(broker, "dlq.messages", target=DEAD, topic="u")["messages"] == []
    late = broker.broker.channels.now() + 1
    assert ask(broker, "dlq.messages", target=DEAD, since_ms=late)["messages"] == []
    assert len(ask(broker, "dlq.messages", target=DEAD, until_ms=late)["messages"]) == 3
    ask(broker, "dlq.drop", target=DEAD, text="other")
    assert ask(broker, "dlq.messages", target=DEAD)["scanned"] == 2


def test_pages_follow_each_other(broker: BrokerFixture) -> None:
    """Over all partitions, each letter once."""
    broker.topic("wide", partitions=3)
    broker.meta.create_channel("wide", "c")
    for partition in range(3):
        broker.produce(b"%d" % partition, b"x", topic="wide", partition=partition)
    taker = takes(broker, topic="wide")
    taker.reject(*taker.take())
    taker.run()
    seen, after = list[tuple[int, int]](), ""
    for _ in range(10):
        told = ask(broker, "dlq.messages", target="wide.c.dead", limit=1, after=after)
        seen += ((row["partition"], row["offset"]) for row in told["messages"])
        if not told["more"]:
            break
        after = told["after"]

    assert seen == [(partition, offset) for partition in range(3) for offset in range(2)]


@pytest.mark.parametrize("limit", [1, 2, 4, 9])
@pytest.mark.parametrize("looked", [1, 3, 5])
def test_a_look_is_bounded(
    broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch, looked: int, limit: int
) -> None:
    """However much one answer looks at, no letter is left out and none comes twice."""
    monkeypatch.setattr(looking, "MOST_LOOKED", looked)
    taker = takes(broker)
    for number in range(7):
        broker.produce(b"%d" % number)
        taker.run()
        taker.reject(*taker.take())
        taker.run()
    seen, after = list[str](), ""
    for _ in range(10):
        told = ask(broker, "dlq.messages", target=DEAD, limit=limit, after=after)
        seen += (row["preview"] for row in told["messages"])
        after = told["after"] or ""
        if not told["more"]:
            break
    plan, steps = 0, ""
    for _ in range(10):
        told = ask(broker, "dlq.redrive", target=DEAD, limit=limit, after=steps, dry_run=True)
        plan += told["done"]
        steps = told["after"] or ""
        if not told["more"]:
            break

    assert seen == [str(number) for number in range(7)]
    assert plan == 7


def test_a_topic_without_dead_letters_says_so(broker: BrokerFixture) -> None:
    """It is no dead-letter topic; and a list of none is empty."""
    assert ask(broker, "dlq.list")["queues"] == []
    with pytest.raises(UnknownTopic, match="no dead-letter topic"):
        ask(broker, "dlq.messages", target="t")


def test_the_brokers_own_channel_is_theirs(broker: BrokerFixture) -> None:
    """People can neither make nor take, move or remove it, and it stands in no list."""
    rejects(broker, b"a")
    own = {"topic": DEAD, "name": "tinymq.dlq"}
    for name, more in (
        ("channel.create", {}),
        ("channel.alter", {"config": {"attempts": 3}}),
        ("channel.delete", {}),
        ("channel.pause", {}),
        ("channel.empty", {}),
        ("channel.undo_seek", {}),
    ):
        with pytest.raises(InvalidName):
            ask(broker, name, **own, **more)
    with pytest.raises(InvalidName):
        takes(broker, topic=DEAD, channel="tinymq.dlq")
    assert [row["name"] for row in ask(broker, "channel.list")["channels"]] == ["c"]


# --- coming back -------------------------------------------------------------------------------


def test_a_letter_comes_back_to_its_channel_alone(broker: BrokerFixture) -> None:
    """As if it had never failed; other channels of the topic hear nothing of it."""
    broker.meta.create_channel("t", "c", {"attempts": 1})
    broker.produce(b"a", b"b")
    other = takes(broker, channel="other")
    other.finish(*other.take())
    taker = takes(broker)
    taker.requeue(*taker.take(), x="no")
    taker.run()
    plan = ask(broker, "dlq.redrive", target=DEAD, dry_run=True)
    unchanged = ask(broker, "dlq.list")["queues"][0]["messages"]
    told = ask(broker, "dlq.redrive", target=DEAD)
    taker.run()
    other.run()
    back = taker.take()

    assert (plan["done"], plan["dry_run"], unchanged) == (2, True, 2)
    assert (told["done"], told["failed"], told["more"], told["loops"]) == (2, [], False, 0)
    assert [(each.value, each.attempt, each.failures) for each in back] == [
        (b"a", 1, 0),
        (b"b", 1, 0),
    ]
    assert other.values == []
    assert ask(broker, "dlq.list")["queues"][0]["messages"] == 0
    assert broker.values("t") == [b"a", b"b"]


def test_a_letter_that_came_back_is_counted_when_it_dies_again(broker: BrokerFixture) -> None:
    """Whoever sends it back once more is warned of a loop."""
    taker = rejects(broker, b"a")
    ask(broker, "dlq.redrive", target=DEAD)
    taker.run()
    taker.reject(*taker.take(), reason="again")
    taker.run()
    (row,) = ask(broker, "dlq.messages", target=DEAD)["messages"]
    told = ask(broker, "dlq.redrive", target=DEAD, dry_run=True)

    assert (row["redriven"], row["loop"], row["text"]) == (1, True, "again")
    assert told["loops"] == 1


def test_coming_back_is_a_part_of_a_messages_life(broker: BrokerFixture) -> None:
    """Its life line says when it was sent back, and how often."""
    taker = rejects(broker, b"a")
    for _ in range(2):
        ask(broker, "dlq.redrive", target=DEAD)
        taker.run()
        taker.reject(*taker.take(), reason="no")
        taker.run()
    told = broker.operate("message.life", topic="t", partition=0, offset=0)
    events = [each["what"] for each in told["events"]]
    texts = [each["text"] for each in told["events"] if each["what"] == "revived"]

    once = ["delivered", "rejected", "dead_lettered"]
    assert events == [*once, "revived", *once, "revived", *once]
    back = "sent back from the dead-letter topic"
    assert texts == [back, f"{back}, 2 times by now"]


def test_letters_go_to_another_topic_as_they_were(broker: BrokerFixture) -> None:
    """Without what the broker wrote on them, but for how often they were sent."""
    broker.topic("other")
    rejects(broker, b"a", b"b")
    told = ask(broker, "dlq.redrive", target=DEAD, to="other", offsets=["0:1"])

    assert (told["done"], told["failed"]) == (1, [])
    assert broker.values("other") == [b"b"]
    assert [list(each) for each in headers(broker, "other")] == [[("tinymq-redriven", b"1")]]
    assert [row["offset"] for row in ask(broker, "dlq.messages", target=DEAD)["messages"]] == [0]
    with pytest.raises(InvalidRequest):
        ask(broker, "dlq.redrive", target=DEAD, to=DEAD)
    with pytest.raises(UnknownTopic):
        ask(broker, "dlq.redrive", target=DEAD, to="nowhere")


def test_a_letter_whose_record_is_gone_is_copied(broker: BrokerFixture) -> None:
    """Retention took it from the log; the dead letter is the last copy."""
    taker = rejects(broker, b"a", b"b")
    broker.operate("topic.purge", name="t", before=1)
    taker.run()
    told = ask(broker, "dlq.redrive", target=DEAD)
    taker.run()

    assert (told["done"], told["failed"]) == (2, [])
    assert sorted(str(each) for each in taker.values) == ["b'a'", "b'b'"]
    assert broker.values("t")[1:] == [b"b", b"a"]


def test_a_letter_without_home_stays(broker: BrokerFixture) -> None:
    """Its channel or its topic is gone: nothing happens to it, and it is said why."""
    rejects(broker, b"a")
    broker.operate("channel.delete", topic="t", name="c")
    (channel,) = ask(broker, "dlq.redrive", target=DEAD)["failed"]
    broker.operate("topic.delete", name="t")
    (topic,) = ask(broker, "dlq.redrive", target=DEAD)["failed"]

    assert channel["why"].startswith("t has no channel c any more")
    assert topic["why"].startswith("there is no topic t any more")
    assert ask(broker, "dlq.list")["queues"][0]["messages"] == 1


def test_a_topic_made_anew_gets_a_copy(broker: BrokerFixture) -> None:
    """The record at that offset is another one now, and must not be taken for it."""
    rejects(broker, b"a")
    broker.operate("topic.delete", name="t")
    broker.topic()
    broker.meta.create_channel("t", "c")
    broker.produce(b"new")
    told = ask(broker, "dlq.redrive", target=DEAD)

    assert (told["done"], told["failed"]) == (1, [])
    assert broker.values("t") == [b"new", b"a"]


def test_what_nobody_takes_comes_back(broker: BrokerFixture) -> None:
    """A topic that refuses a letter leaves it where it was."""
    broker.topic("small", max_value_bytes=2)
    rejects(broker, b"a" * 200)
    told = ask(broker, "dlq.redrive", target=DEAD, to="small")

    assert told["done"] == 0
    assert [row["why"] for row in told["failed"]] == ["small does not take it"]
    assert len(ask(broker, "dlq.messages", target=DEAD)["messages"]) == 1


def test_steps_are_bounded(broker: BrokerFixture) -> None:
    """Each deals with so many and says whether there is more; what it leaves is still there."""
    rejects(broker, b"a", b"b", b"c")
    first = ask(broker, "dlq.drop", target=DEAD, limit=2)
    left = ask(broker, "dlq.messages", target=DEAD)["messages"]
    second = ask(broker, "dlq.drop", target=DEAD, limit=2, after=first["after"])

    assert (first["done"], first["more"], [row["preview"] for row in left]) == (2, True, ["c"])
    assert (second["done"], second["more"], second["after"]) == (1, False, None)
    own = hosted_of(broker, DEAD).queue.channels["tinymq.dlq"].channel
    assert own.counters.rejected == 3
    assert own.places.cursor == 3


@pytest.mark.parametrize("to", ["origin", "other"])
@pytest.mark.parametrize("turns", range(TURNS))
def test_a_kill_at_any_step_loses_nothing(broker: BrokerFixture, turns: int, to: str) -> None:
    """Sent back once more, all messages are there, and to another topic not even twice."""
    broker.topic("other")
    rejects(broker, b"a", b"b", b"c")
    arguments = {"target": DEAD, "to": to, "limit": 2}
    Deferred.fromCoroutine(broker.operations.run("dlq.redrive", arguments)).addErrback(lambda _: 0)
    for _ in range(turns):
        broker.turn()
    broker.kill()

    again = broker.again()
    for _ in range(20):
        again.clock.advance(0.1)
    told = ask(again, "dlq.redrive", target=DEAD, to=to)
    taker = takes(again, topic="t" if to == "origin" else "other")
    taker.run(12)

    assert told["failed"] == []
    assert sorted(str(each) for each in taker.values) == ["b'a'", "b'b'", "b'c'"]
    assert ask(again, "dlq.list")["queues"][0]["messages"] == 0
