"""Running channels, as people see and steer them: members, single messages, rates, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerFixture, batch
from tests.fakes.taking import Taker
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape
from tinymq.errors import InvalidRequest, StateError, UnknownPartition
from tinymq.node.hosting import Hosting
from tinymq.wire.batch import split
from tinymq.wire.header import MessageType
from tinymq.wire.records import RecordBatch

ONE = {"topic": "t", "name": "c"}


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of two partitions."""
    broker = BrokerFixture(tmp_path)
    broker.topic(partitions=2)
    return broker


def run(broker: BrokerFixture, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry out an operation, whose result must have its shape."""
    result = broker.operate(operation, **arguments)
    written = json.loads(json.dumps(result))
    Draft202012Validator(shape(**PUBLIC[operation].result)).validate(written)
    return result


def takes(broker: BrokerFixture, number: int = 1, **given: Any) -> Taker:
    """A new client that takes messages of the channel `c`."""
    taker = Taker(broker, number=number)
    taker.subscribe(**given)
    return taker


def settle(broker: BrokerFixture, act: str, *offsets: int, **more: Any) -> dict[str, Any]:
    """Do something with messages of partition 0."""
    given = {**ONE, "partition": 0, "offsets": list(offsets), "act": act}
    name = "inflight.settle"
    asked = broker.operations.run(name, {**given, **more})
    told: list[Any] = []
    Deferred.fromCoroutine(asked).addBoth(told.append)
    for _ in range(6):
        broker.clock.advance(0)
    if isinstance(told[0], Failure):
        told[0].raiseException()
    result: dict[str, Any] = told[0]
    Draft202012Validator(shape(**PUBLIC[name].result)).validate(result)
    return result


def keyed(broker: BrokerFixture, key: bytes, value: bytes) -> None:
    """Publish a message with a key."""
    topic = broker.meta.describe("t").id
    broker.broker.produce(topic, 0, batch(value, keys=[key]), lambda answer: None)
    broker.turn()


def wait(taker: Taker, seconds: float) -> None:
    """Let time pass as it does, and not in one jump."""
    for _ in range(round(seconds * 4)):
        taker.run(0.25)
    taker.connection.send(MessageType.PING)


def info(broker: BrokerFixture) -> dict[str, Any]:
    """Describe the channel."""
    found: dict[str, Any] = run(broker, "channel.info", **ONE)["channel"]
    return found


def causes(broker: BrokerFixture) -> dict[str, str]:
    """Say why the channel does not do more."""
    row = run(broker, "channel.list")["channels"][0]
    why = info(broker)["why"]
    assert row["why"] == why
    return {each["cause"]: each["text"] for each in why}


class TestActs:
    """People act on single messages, whoever holds them."""

    def test_finish(self, broker: BrokerFixture) -> None:
        """A finished message is settled; its holder is told, and is late if it settles it."""
        broker.produce(b"a", b"b")
        taker = takes(broker)
        first, second = taker.take()

        told = settle(broker, "finish", 0, 7)
        taker.run()

        assert told == {"done": [0], "missing": [7], "dry_run": False}
        assert taker.lost == [(0, first.lease, b"\x01")]
        reply = taker.requeue(first)
        assert (reply.done, [row[1] for row in reply.late]) == (0, [first.lease])
        assert taker.finish(second).done == 1
        assert (info(broker)["lag"], info(broker)["totals"]["finished"]) == (0, 2)

    def test_requeue(self, broker: BrokerFixture) -> None:
        """A requeued message comes again at once, or later, and has not failed."""
        broker.produce(b"a", b"b")
        taker = takes(broker)
        taker.take()

        settle(broker, "requeue", 0)
        settle(broker, "requeue", 1, delay_ms=5000)
        taker.run()
        again = taker.take()
        assert [(each.value, each.attempt, each.failures) for each in again] == [(b"a", 2, 0)]
        taker.run(5.1)
        assert [(each.value, each.attempt) for each in taker.take()] == [(b"b", 2)]

    def test_extend(self, broker: BrokerFixture) -> None:
        """An extended message stays with its holder, who is not told, beyond its deadline."""
        broker.meta.create_channel("t", "c", {"lease.ms": 2000})
        broker.produce(b"a")
        taker = takes(broker)
        (first,) = taker.take()

        settle(broker, "extend", 0, extend_ms=9000)
        (row,) = run(broker, "inflight.list")["messages"]
        assert row["deadline_ms"] - row["since_ms"] == 9000
        taker.run(8)

        assert taker.lost == []
        assert taker.finish(first).done == 1

    def test_dead_letter(self, broker: BrokerFixture) -> None:
        """A message that people give up is in the dead-letter topic with their reason."""
        broker.produce(b"a")
        taker = takes(broker)
        taker.take()

        settle(broker, "dead_letter", 0, reason="not ours")
        taker.run()

        payload = broker.fetch(("t.c.dead", 0, 0)).payload
        ((header, data),) = split(payload)
        headers = dict(RecordBatch(data, header).headers[0])
        assert headers["tinymq-reason"] == b"operator"
        assert headers["tinymq-text"] == b"not ours"
        assert len(taker.lost) == 1
        assert info(broker)["dead_letter"] == "t.c.dead"

    def test_dry_run(self, broker: BrokerFixture) -> None:
        """A dry run says with which it would be done, and changes nothing."""
        broker.produce(b"a")
        taker = takes(broker)
        (first,) = taker.take()

        told = settle(broker, "finish", 0, 1, dry_run=True)
        taker.run()

        assert told == {"done": [0], "missing": [1], "dry_run": True}
        assert taker.lost == []
        assert taker.finish(first).done == 1

    def test_credit_comes_back(self, broker: BrokerFixture) -> None:
        """What was taken from a consumer does not count as held by it any more."""
        broker.produce(*[b"x"] * 3)
        taker = takes(broker, credit=3)
        taker.take()
        settle(broker, "finish", 0, 1, 2)
        taker.run()
        (member,) = run(broker, "channel.members", **ONE)["members"]
        assert (member["in_flight"], member["credit"]) == (0, 0)

    def test_the_life_of_a_message_tells_it(self, broker: BrokerFixture) -> None:
        """What people did to a message stands in its life, with their reason."""
        broker.produce(b"a", b"b", b"c", b"d")
        taker = takes(broker)
        settle(broker, "finish", 0)
        settle(broker, "requeue", 1, reason="hangs")
        settle(broker, "requeue", 2, delay_ms=5000, reason="later")
        settle(broker, "dead_letter", 3, reason="not ours")
        taker.run()

        def life(offset: int) -> list[tuple[str, str]]:
            given = {"topic": "t", "partition": 0, "offset": offset}
            found = broker.operate("message.life", **given)["events"]
            return [(each["what"], each["text"]) for each in found if each["channel"] == "c"]

        assert life(0)[1:] == [("finished", "by people, while its holder had it")]
        assert life(1)[1] == ("requeued", "hangs")
        assert life(2)[1] == ("requeued", "later; comes again in 5 s")
        assert ("given_up", "operator: not ours") in life(3)

    def test_it_survives_a_kill(self, broker: BrokerFixture) -> None:
        """What was answered holds after a kill, even without the holder's knowledge."""
        broker.produce(b"a", b"b", b"c")
        takes(broker).take()
        settle(broker, "finish", 0)
        settle(broker, "requeue", 1)
        broker.kill()

        again = broker.again()
        taker = Taker(again)
        taker.subscribe()
        taker.run(11)
        found = {each.value: each.attempt for each in taker.take()}
        assert found == {b"b": 3, b"c": 2}

    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            ({"offsets": []}, InvalidRequest),
            ({"act": "explode"}, InvalidRequest),
            ({"partition": 2}, UnknownPartition),
            ({"offsets": [-1]}, InvalidRequest),
        ],
    )
    def test_wrong(self, broker: BrokerFixture, given: dict[str, Any], kind: type) -> None:
        """What makes no sense is refused."""
        broker.meta.create_channel("t", "c")
        usual = {**ONE, "partition": 0, "offsets": [0], "act": "finish"}
        with pytest.raises(kind):
            broker.operate("inflight.settle", **{**usual, **given})


class TestInFlight:
    """Messages in the hands of consumers are listed, the oldest first."""

    def test_rows(self, broker: BrokerFixture) -> None:
        """A row says what, where, who, since when and until when."""
        keyed(broker, b"k", b"value")
        taker = takes(broker)
        (row,) = run(broker, "inflight.list")["messages"]
        (client,) = broker.operate("client.list")["clients"]
        assert (row["topic"], row["channel"], row["partition"], row["offset"]) == ("t", "c", 0, 0)
        assert (row["client"], row["client_id"]) == (client["id"], client["client_id"])
        assert (row["size"], row["key"], row["key_encoding"]) == (5, "k", "string")
        assert (row["attempt"], row["failures"], row["state"]) == (1, 0, "in_flight")
        assert row["deadline_ms"] == row["since_ms"] + 60_000
        taker.finish(*taker.take())
        assert run(broker, "inflight.list")["messages"] == []

    def test_pages(self, broker: BrokerFixture) -> None:
        """Pages follow each other over channels and partitions, and all are counted."""
        for index in (0, 1):
            broker.produce(*[b"x"] * 5, partition=index)
        one = takes(broker)
        broker.clock.advance(1)
        two = takes(broker, channel="d")
        seen, after = [], None
        while True:
            page = run(broker, "inflight.list", limit=3, after=after)
            assert page["total"] == 20
            seen += [(r["channel"], r["partition"], r["offset"]) for r in page["messages"]]
            after = page["after"]
            if not page["more"]:
                break
        assert seen == [(c, p, o) for c in "cd" for p in (0, 1) for o in range(5)]
        assert len(one.take()) == len(two.take()) == 10

    def test_a_page_is_not_more_than_is_asked_for(self, broker: BrokerFixture) -> None:
        """Of many in flight the oldest are on the first page, in whatever order they came."""
        taker = takes(broker, credit=40)
        for number in range(30):
            broker.produce(b"%d" % number, partition=number % 2)
            broker.clock.advance(0.01)
            taker.run(0.01)
        seen, after = list[tuple[int, int]](), None
        for _ in range(6):
            page = run(broker, "inflight.list", limit=5, after=after)
            assert (page["total"], len(page["messages"])) == (30, 5)
            seen += [(r["partition"], r["offset"]) for r in page["messages"]]
            after = page["after"]
        assert after is None
        assert seen == [(number % 2, number // 2) for number in range(30)]

    def test_filters(self, broker: BrokerFixture) -> None:
        """A list can be of a topic, a channel, a client, of old ones, and of repeated ones."""
        broker.produce(b"a", b"b")
        taker = takes(broker)
        first, _ = taker.take()
        taker.requeue(first, d=0)
        broker.clock.advance(2)

        def offsets(**wanted: Any) -> list[int]:
            page = run(broker, "inflight.list", **wanted)
            found = [row["offset"] for row in page["messages"]]
            assert page["total"] == len(found)
            return found

        assert sorted(offsets()) == [0, 1]
        assert offsets(attempts=2) == [0]
        assert offsets(older_ms=60_000) == []
        assert sorted(offsets(older_ms=2000)) == [0, 1]
        assert offsets(client="nobody") == []
        assert offsets(channel="d") == []
        assert len(offsets(topic="t", channel="c")) == 2
        with pytest.raises(InvalidRequest):
            broker.operate("inflight.list", after="x")

    def test_timed_out(self, broker: BrokerFixture) -> None:
        """A message whose lease was over stays in the list for ten seconds, marked."""
        broker.meta.create_channel("t", "c", {"lease.ms": 1000, "backoff": ["1h"]})
        broker.produce(b"a")
        taker = takes(broker)
        taker.run(1.1)
        (row,) = run(broker, "inflight.list")["messages"]
        assert (row["offset"], row["state"]) == (0, "timed_out")
        assert settle(broker, "finish", 0)["missing"] == [0]
        taker.run(9)
        assert len(run(broker, "inflight.list")["messages"]) == 1
        taker.run(1)
        assert run(broker, "inflight.list")["messages"] == []


class TestPeek:
    """A look at a channel changes nothing."""

    def fill(self, broker: BrokerFixture) -> Taker:
        """Put messages into all places."""
        broker.meta.create_channel(
            "t", "c", {"order": "key", "attempts": 2, "dead.letter": "graves", "backoff": ["1h"]}
        )
        for key in (b"p", b"p", b"q", b"r", b"s"):
            keyed(broker, key, b"v" + key)
        taker = takes(broker, credit=4)
        messages = {each.offset: each for each in taker.take()}
        taker.requeue(messages[0])
        taker.reject(messages[3])
        return taker

    def rows(self, broker: BrokerFixture, **wanted: Any) -> list[tuple[int, str]]:
        """Look, and say what is where."""
        page = run(broker, "channel.peek", **ONE, **wanted)
        return [(row["offset"], row["state"]) for row in page["messages"]]

    def test_states(self, broker: BrokerFixture) -> None:
        """Each unsettled message is told with its place, in order."""
        self.fill(broker)
        found = dict(self.rows(broker))
        assert found[0] == "waiting"
        assert found[1] in {"parked", "ready"}
        assert (found[2], found[4]) == ("in_flight", "ready")
        assert 3 not in found
        (row,) = run(broker, "channel.peek", **ONE, state="waiting")["messages"]
        assert (row["attempt"], row["failures"], row["preview"]) == (1, 1, "vp")
        assert row["due_ms"] is not None
        assert self.rows(broker, state="given_up") == []

    def test_nothing_changes(self, broker: BrokerFixture) -> None:
        """Counters, attempts, places and the ledger are the same after any look."""
        self.fill(broker)
        hosted = broker.broker.channels.hosted_of(broker.meta.describe("t").id)

        def state() -> Any:
            broker.clock.advance(0)
            one = hosted[0].queue.channels["c"]
            places = one.channel.places
            open_ = [(*row[:2], *row[2]) for row in places.open()]
            return (
                open_,
                one.channel.counters.totals,
                one.counts(hosted[0].partition.high_watermark),
                hosted[0].ledger.log.end_offset,
                list(places.leases),
                hosted[0].partition.counters.records_out,
            )

        before = state()
        for name in ("any", "ready", "in_flight", "waiting", "parked", "given_up"):
            self.rows(broker, state=name)
        run(broker, "inflight.list")
        run(broker, "channel.members", **ONE)
        info(broker)
        assert state() == before

    def test_pages(self, broker: BrokerFixture) -> None:
        """Pages follow each other over partitions."""
        for index in (0, 1):
            broker.produce(*[b"x"] * 3, partition=index)
        broker.meta.create_channel("t", "c")
        seen, after = [], None
        while True:
            page = run(broker, "channel.peek", **ONE, limit=2, after=after)
            seen += [(row["partition"], row["offset"]) for row in page["messages"]]
            after = page["after"]
            if not page["more"]:
                break
        assert seen == [(p, o) for p in (0, 1) for o in range(3)]
        assert self.rows(broker, partition=1, limit=1) == [(0, "ready")]

    def test_what_is_no_text(self, broker: BrokerFixture) -> None:
        """Bytes come as base64, and a text that is cut stays a text."""
        keyed(broker, b"\xfe", b"\xff\x00")
        broker.produce("é".encode() * 300)
        broker.meta.create_channel("t", "c")
        first, second = run(broker, "channel.peek", **ONE)["messages"]
        assert (first["preview"], first["preview_encoding"]) == ("/wA=", "base64")
        assert (first["key"], first["key_encoding"]) == ("/g==", "base64")
        assert (second["preview"], second["preview_encoding"]) == ("é" * 100, "string")
        assert second["size"] == 600


class TestMembers:
    """Who takes messages of a channel."""

    def test_rows(self, broker: BrokerFixture) -> None:
        """A member is told with its client, what it holds and what it did."""
        broker.produce(b"a", b"b", b"c")
        taker = takes(broker, credit=10)
        first, second, _ = taker.take()
        taker.finish(first)
        taker.requeue(second, d=60_000)
        wait(taker, 2)
        (row,) = run(broker, "channel.members", **ONE)["members"]
        (client,) = broker.operate("client.list")["clients"]
        assert (row["client"], row["address"]) == (client["id"], client["address"])
        assert (row["partitions"], row["credit"], row["in_flight"]) == ([0, 1], 7, 1)
        assert (row["delivered"], row["finished"], row["requeued"]) == (3, 1, 1)
        assert row["finished_s"] == pytest.approx(0.5, rel=0.2)
        assert 1900 <= row["oldest_ms"] <= 2200
        assert (row["slow"], row["absent_until_ms"]) == ("", None)

    def test_a_lost_link(self, broker: BrokerFixture) -> None:
        """Whose link is lost stays a member while its messages are kept for it."""
        broker.produce(b"a")
        taker = takes(broker)
        taker.connection.lose()
        (row,) = run(broker, "channel.members", **ONE)["members"]
        assert (row["client"], row["in_flight"]) == (None, 1)
        assert row["address"] != ""
        assert row["absent_until_ms"] - broker.broker.channels.now() == 10_000
        broker.clock.advance(11)
        assert run(broker, "channel.members", **ONE)["members"] == []

    def test_a_link_that_takes_nothing(self, broker: BrokerFixture) -> None:
        """Who does not read is named, with since when; and nobody else is."""
        broker.produce(b"a", b"b")
        slow = takes(broker)
        slow.connection.protocol.pauseProducing()
        good = takes(broker, channel="d")
        members = run(broker, "channel.members", **ONE)["members"]
        assert "takes no bytes since" in members[0]["slow"]
        assert members[0]["slow_since_ms"] is not None
        assert "takes no bytes" in causes(broker)["slow_consumer"]
        (other,) = run(broker, "channel.members", topic="t", name="d")["members"]
        assert other["slow"] == ""
        assert len(good.take()) == 2

    def test_a_slow_handler(self, broker: BrokerFixture) -> None:
        """Who takes seconds for each message is named with the figure."""
        broker.produce(*[b"x"] * 20)
        taker = takes(broker, credit=1)
        for granted in range(2, 8):
            wait(taker, 2)
            taker.finish(*taker.take())
            taker.credit(granted)
        wait(taker, 1.5)
        assert "takes 2." in causes(broker)["slow_consumer"]

    def test_a_handler_that_hangs(self, broker: BrokerFixture) -> None:
        """Who settles nothing while others wait is named with how long it has held a message."""
        broker.produce(*[b"x"] * 5)
        taker = takes(broker, credit=2)
        wait(taker, 12)
        (member,) = run(broker, "channel.members", **ONE)["members"]
        text = "has settled nothing lately and holds 2, the oldest for 12 seconds"
        assert member["slow"] == text
        assert causes(broker)["slow_consumer"].endswith(text)


class TestWhy:
    """A channel says what keeps it from doing more."""

    def test_nothing(self, broker: BrokerFixture) -> None:
        """A channel with nothing to do has no cause."""
        broker.meta.create_channel("t", "c")
        assert causes(broker) == {}
        assert info(broker)["state"] == "no_consumers"
        takes(broker)
        assert info(broker)["state"] == "idle"
        assert info(broker)["clear_ms"] == 0

    def test_paused(self, broker: BrokerFixture) -> None:
        """A pause is told with its reason."""
        broker.meta.create_channel("t", "c")
        run(broker, "channel.pause", **ONE, reason="upgrade")
        assert causes(broker)["paused"].endswith("UTC: upgrade")
        assert info(broker)["state"] == "paused"

    def test_no_consumers(self, broker: BrokerFixture) -> None:
        """Nobody being there is told with what waits."""
        broker.meta.create_channel("t", "c")
        broker.produce(b"a")
        assert causes(broker) == {"no_consumers": "nobody is subscribed, and 1 message waits"}

    def test_no_credit(self, broker: BrokerFixture) -> None:
        """Consumers that hold nothing and want nothing are told."""
        broker.produce(b"a")
        takes(broker, credit=0)
        text = "the only consumer takes no more just now, and 1 message waits"
        assert causes(broker) == {"no_credit": text}

    def test_in_flight_limit(self, broker: BrokerFixture) -> None:
        """Consumers that hold as much as they want are told, and the channel is stuck."""
        broker.produce(*[b"x"] * 5)
        taker = takes(broker, credit=2)
        assert "2 in all, and 3 messages wait" in causes(broker)["in_flight_limit"]
        for _ in range(3):
            taker.run(9)
            taker.touch(*taker.messages)
        assert info(broker)["state"] == "stuck"

    def test_skew(self, broker: BrokerFixture) -> None:
        """A partition with most of the lag is named with its share."""
        broker.meta.create_channel("t", "c")
        broker.produce(*[b"x"] * 900)
        broker.produce(*[b"x"] * 100, partition=1)
        text = "partition 0 holds 90 % of the lag (900 of 1,000)"
        assert causes(broker)["partition_skew"] == text

    def test_poison_and_waiting(self, broker: BrokerFixture) -> None:
        """A message that failed often, and what waits for its next attempt, are told."""
        broker.meta.create_channel("t", "c", {"backoff": ["1s"], "jitter.percent": 0})
        broker.produce(b"a")
        taker = takes(broker)
        for _ in range(4):
            taker.requeue(*taker.take())
            taker.run(1.1)
        taker.requeue(*taker.take())
        found = causes(broker)
        assert found["poison"] == "message 0@0 has failed 5 times"
        assert found["waiting"].startswith("all that is left, 1 message, waits for its next")

    def test_parked(self, broker: BrokerFixture) -> None:
        """Messages behind one of their key are told."""
        broker.meta.create_channel("t", "c", {"order": "key", "backoff": ["1h"]})
        for _ in range(3):
            keyed(broker, b"k", b"x")
        taker = takes(broker)
        taker.requeue(taker.take()[0])
        taker.run()
        assert causes(broker)["parked"].startswith("2 messages stand aside")


class TestPace:
    """What a channel does is counted and told by the second."""

    def test_rates(self, broker: BrokerFixture) -> None:
        """Rates, trend and time to clear are those of the last ten seconds."""
        taker = takes(broker)
        for second in range(12):
            broker.produce(*[b"x"] * 10)
            taker.run(1)
            taker.finish(*taker.take()[:6])
            taker.credit(200 + 10 * second)
        channel = info(broker)
        rates = channel["rates"]
        assert rates["published_s"] == pytest.approx(10, abs=1.1)
        assert rates["finished_s"] == pytest.approx(6, abs=1)
        assert channel["trend_s"] == pytest.approx(4, abs=1)
        assert (channel["clear_ms"], channel["state"]) == (None, "consuming")
        assert channel["totals"]["finished"] == 72
        partition = channel["partitions"][0]
        assert partition["rates"] == rates
        (row,) = run(broker, "channel.list")["channels"]
        assert (row["rates"], row["totals"]) == (rates, channel["totals"])

    def test_a_channel_that_rests(self, broker: BrokerFixture) -> None:
        """What stands still is at zero after ten seconds, and is not looked at any more."""
        taker = takes(broker)
        broker.produce(*[b"x"] * 10)
        taker.run(1)
        taker.finish(*taker.take())
        wait(taker, 12)
        assert info(broker)["rates"]["finished_s"] == 0
        assert info(broker)["rates"]["delivered_s"] == 0
        assert broker.broker.channels.pacing.resting

    def test_the_first_second(self, broker: BrokerFixture) -> None:
        """Before a second is over nothing is known."""
        broker.meta.create_channel("t", "c")
        assert set(info(broker)["rates"].values()) == {None}

    def test_age(self, broker: BrokerFixture) -> None:
        """The lag in time is the age of the oldest message that is not settled."""
        broker.produce(b"a")
        broker.wall.now_ms += 3000
        broker.produce(b"b")
        broker.wall.now_ms += 2000
        taker = takes(broker)
        assert info(broker)["lag_ms"] == 5000
        first, second = taker.take()
        taker.finish(first)
        assert info(broker)["lag_ms"] == 2000
        taker.finish(second)
        assert info(broker)["lag_ms"] is None


def test_members_of_nothing(broker: BrokerFixture) -> None:
    """A channel that is not open on its partition cannot be acted upon."""
    broker.meta.create_channel("t", "c")
    topic = broker.meta.describe("t")
    broker.broker.channels.hosted_of(topic.id)[0].close_channel("c")
    with pytest.raises(StateError, match="is not open on partition 0"):
        settle(broker, "finish", 0)


class Slow:
    """A clock on which every look takes a while, so that nothing is done in one turn."""

    def __init__(self, broker: BrokerFixture) -> None:
        self._clock = broker.clock
        self.late = 0.0

    def seconds(self) -> float:
        """Each time it is later."""
        self.late += 1
        return self._clock.seconds() + self.late

    def callLater(self, *call: Any) -> Any:  # noqa: N802 - Twisted's name
        """Call later, as the real one."""
        return self._clock.callLater(*call)


def test_long_lists_take_turns(broker: BrokerFixture) -> None:
    """Where looking takes long, others have their turn in between, and nothing is missed."""
    for index in (0, 1):
        broker.produce(b"x", partition=index)
    takes(broker)
    usual = broker.broker.scheduler
    for name, given in (("inflight.list", {}), ("channel.peek", ONE)):
        broker.broker.scheduler = Slow(broker)
        told: list[Any] = []
        Deferred.fromCoroutine(broker.operations.run(name, dict(given))).addBoth(told.append)
        assert told == []
        for _ in range(4):
            broker.clock.advance(0)
        broker.broker.scheduler = usual
        assert [row["partition"] for row in told[0]["messages"]] == [0, 1]


def test_the_age_of_many_is_not_waited_for(broker: BrokerFixture) -> None:
    """Where logs would be looked into for too long, ages are told as they were known."""
    broker.meta.create_channel("t", "c")
    broker.produce(b"x")
    broker.produce(b"x", partition=1)
    assert info(broker)["lag_ms"] == 0
    for index in (0, 1):
        broker.produce(b"x", partition=index)
    taker = takes(broker)
    taker.finish(*[each for each in taker.take() if each.offset == 0])
    broker.wall.now_ms += 7000
    host = broker.node.channel_host
    assert isinstance(host, Hosting)
    host._aging_until = broker.clock.seconds() - 0.01
    assert info(broker)["lag_ms"] == 7000
    broker.clock.advance(1)
    assert info(broker)["lag_ms"] == 7000
