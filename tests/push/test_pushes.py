"""Whole brokers push to servers in memory: what is finished, and what comes again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.whole_cluster import WholeCluster
from tests.push.net import OK, Behaviour, Request, Wire, always, answer, closing, never
from tests.push.town import HOOK, Town
from tinymq.errors import EndpointRefused, InvalidRequest, UnknownEndpoint
from tinymq.webhook import verify

Make = Callable[..., WholeCluster]


@pytest.fixture
def town(make: Make) -> Town:
    """Return a MetaServer and two brokers, and a server that takes everything."""
    return Town(make(), always(OK))


def test_messages_are_pushed(town: Town) -> None:
    """Each message of every partition is sent once, signed, and settled."""
    secret = town.prepare(partitions=4)
    for partition in range(4):
        town.publish(b"%d" % partition, partition=partition, key=b"k")
    town.cluster.advance(1)
    assert sorted(town.bodies) == [b"0", b"1", b"2", b"3"]
    for request in town.requests:
        stamp = int(request.headers["webhook-timestamp"])
        verify(request.headers, request.body, secret, now=partial(float, stamp))
    assert town.lag == 0
    row = town.row
    assert (row["delivered"], row["failed"], row["state"]) == (4, 0, "active")
    assert row["last_status"] == 200


def test_each_broker_sends_what_it_leads(town: Town) -> None:
    """No broker fetches what lies on another."""
    town.prepare(partitions=4)
    for partition in range(4):
        town.publish(b"%d" % partition, partition=partition)
    town.cluster.advance(1)
    sent = {name: len(net.wires) > 0 for name, net in town.nets.items()}
    assert sent["b1"]
    assert sent["b2"]
    assert len(town.requests) == 4


def test_failures_come_again(town: Town) -> None:
    """What is not taken comes again by the channel's policy, with the attempt counted."""
    town.prepare(config={"backoff": ["1s"]})
    town.behave(always(answer("503 Busy", b"later"), OK))
    town.publish(b"v")
    town.cluster.advance(0.5)
    assert len(town.requests) == 1
    assert town.lag == 1
    assert town.row["last_error"] == "503 Busy: later"
    town.cluster.advance(3)
    assert [each.headers["tinymq-attempt"] for each in town.requests] == ["1", "2"]
    assert len({each.headers["webhook-id"] for each in town.requests}) == 1
    assert town.lag == 0
    assert town.row["failed"] == 1


def test_given_up_messages_are_dead_letters(town: Town) -> None:
    """After the channel's attempts a message goes to its dead-letter topic with what was said."""
    town.prepare(config={"backoff": ["1s"], "attempts": 2})
    town.behave(always(answer("400 Bad", b"no such order")))
    town.publish(b"v")
    town.cluster.advance(10)
    (letter,) = town.operate("dlq.messages", target="t.c.dead")["messages"]
    assert "400 Bad: no such order" in json.dumps(letter)
    assert town.row["state"] == "active"


@pytest.mark.parametrize("behaviour", [never, closing, always(b"garbage\r\n\r\n")])
def test_hostile_servers_take_nothing(town: Town, behaviour: Behaviour) -> None:
    """Without a status from 200 to 299 no message is finished."""
    town.prepare(timeout_ms=1000, config={"attempts": 1000, "backoff": ["1s"]})
    town.behave(behaviour)
    town.publish(b"1", b"2")
    town.cluster.advance(30)
    assert town.lag == 2
    assert town.row["delivered"] == 0
    town.behave(always(OK))
    town.operate("push.resume", topic="t", name="c")
    town.cluster.advance(20)
    assert town.lag == 0


def test_at_most_once(town: Town) -> None:
    """What is settled when it is delivered is sent once, also to an endpoint that fails."""
    town.prepare(config={"delivery": "at_most_once"}, concurrency=3)
    town.behave(always(answer("500 Oops")))
    town.publish(*(b"%d" % number for number in range(9)))
    town.cluster.advance(60)
    assert len(town.bodies) == len(set(town.bodies)) == 9
    assert town.lag == 0


class TestWaiting:
    """An endpoint that asks to be left alone is."""

    def test_retry_after(self, town: Town) -> None:
        """Nothing is sent until it said, not even other messages; then everything."""
        town.prepare(concurrency=1)
        town.behave(always(answer("429 Slow", Retry_After="60"), OK))
        town.publish(b"1", b"2", b"3")
        town.cluster.advance(50)
        assert len(town.requests) == 1
        row = town.row
        assert row["retry_at_ms"] is not None
        assert row["why"].startswith("it asked to be left alone until ")
        assert row["state"] == "active"
        info = town.operate("channel.info", topic="t", name="c")["channel"]
        assert info["in_flight"] == 0
        town.cluster.advance(15)
        assert sorted(town.bodies) == [b"1", b"1", b"2", b"3"]
        assert town.row["retry_at_ms"] is None

    def test_resume(self, town: Town) -> None:
        """Somebody can have it go on before that."""
        town.prepare(config={"backoff": ["1s"]})
        town.behave(always(answer("429 Slow", Retry_After="86400"), OK))
        town.publish(b"1")
        town.cluster.advance(5)
        town.publish(b"2")
        town.cluster.advance(5)
        assert town.bodies == [b"1"]
        town.operate("push.resume", topic="t", name="c")
        town.cluster.advance(5)
        assert town.bodies == [b"1", b"2"]


class TestGivingUp:
    """An endpoint that takes nothing is paused, with the reason shown."""

    def test_failures_in_a_row(self, town: Town) -> None:
        """After so many failures it is paused everywhere, and goes on when it is resumed."""
        town.prepare(give_up=3, config={"backoff": ["1s"], "attempts": 100})
        town.behave(always(answer("500 Oops")))
        town.publish(b"v")
        town.cluster.advance(30)
        assert len(town.requests) == 3
        row = town.row
        assert (row["state"], row["why"]) == (
            "paused",
            "3 failures in a row; the last: 500 Oops",
        )
        town.cluster.advance(60)
        assert len(town.requests) == 3
        town.behave(always(OK))
        assert town.operate("push.resume", topic="t", name="c")["endpoint"]["state"] == "active"
        town.cluster.advance(5)
        assert town.lag == 0

    def test_a_success_between(self, town: Town) -> None:
        """Failures with successes between them are the messages' matter."""

        def behave(request: Request, wire: Wire) -> None:
            wire.say(answer("422 No") if request.body == b"bad" else OK)

        town.prepare(give_up=3, config={"attempts": 1})
        town.behave(behave)
        for _ in range(10):
            town.publish(b"bad", b"good", b"good")
            town.cluster.advance(3)
        assert town.row["state"] == "active"
        assert town.row["delivered"] == 20

    def test_together(self, town: Town) -> None:
        """Requests that fail together count once."""
        town.prepare(give_up=5, concurrency=10, timeout_ms=1000, config={"backoff": ["1s"]})
        town.behave(never)
        town.publish(*(b"%d" % number for number in range(10)))
        town.cluster.advance(1.5)
        assert len(town.requests) >= 10
        assert town.row["state"] == "active"

    def test_gone(self, town: Town) -> None:
        """410 pauses at once."""
        town.prepare()
        town.behave(always(answer("410 Gone")))
        town.publish(b"v")
        town.cluster.advance(3)
        assert len(town.requests) == 1
        assert (town.row["state"], town.row["why"]) == ("paused", "it answered 410 Gone")

    def test_over_a_restart(self, town: Town) -> None:
        """A pause holds on brokers that start later, and over restarts of all."""
        town.prepare(partitions=2)
        town.operate("push.pause", topic="t", name="c", reason="upgrade")
        town.publish(b"v", partition=0)
        for name in ("b1", "b2"):
            town.cluster[name].stop()
            town.start(name)
        town.cluster.advance(20)
        assert town.requests == []
        assert (town.row["state"], town.row["why"]) == ("paused", "upgrade")
        town.operate("push.resume", topic="t", name="c")
        town.cluster.advance(5)
        assert town.bodies == [b"v"]

    def test_while_the_metaserver_is_away(self, town: Town) -> None:
        """A broker that gives up tells the MetaServer when that is back."""
        town.prepare(give_up=1, config={"backoff": ["1s"], "attempts": 100})
        town.behave(always(answer("500 Oops")))
        town.publish(b"v")
        town.cluster["meta"].kill()
        town.cluster.advance(30)
        count = len(town.requests)
        town.start("meta")
        town.cluster.advance(60)
        assert len(town.requests) == count
        assert town.row["state"] == "paused"


class TestLife:
    """Kills and stops lose nothing."""

    def test_killed_broker(self, town: Town) -> None:
        """What was sent and not answered when a broker was killed comes again."""
        town.prepare()
        town.behave(never)
        town.publish(b"1", b"2", b"3")
        leader = town.cluster[
            town.operate("topic.info", name="t")["topic"]["partitions"][0]["leader"]
        ]
        town.cluster.advance(1)
        assert sorted(town.bodies) == [b"1", b"2", b"3"]
        leader.kill()
        town.behave(always(OK))
        town.start(leader.name)
        town.cluster.advance(120)
        assert sorted(town.bodies) == [b"1", b"1", b"2", b"2", b"3", b"3"]
        assert town.lag == 0

    def test_stop_lets_requests_end(self, town: Town) -> None:
        """A stop waits for answers that come in time: such a message is settled."""

        def slow(request: Request, wire: Wire) -> None:
            wire._net.callLater(2, wire.say, OK)

        town.prepare()
        town.behave(slow)
        town.publish(b"1")
        leader = town.cluster[
            town.operate("topic.info", name="t")["topic"]["partitions"][0]["leader"]
        ]
        town.cluster.advance(1)
        leader.stop()
        town.start(leader.name)
        town.cluster.advance(60)
        assert town.bodies == [b"1"]
        assert town.lag == 0

    def test_stop_gives_the_others_back(self, town: Town) -> None:
        """A request that takes longer than a stop is cut; its message comes again, not failed."""
        town.prepare(timeout_ms=60_000, config={"attempts": 1})
        town.behave(never)
        town.publish(b"1")
        leader = town.cluster[
            town.operate("topic.info", name="t")["topic"]["partitions"][0]["leader"]
        ]
        town.cluster.advance(1)
        leader.stop()
        town.behave(always(OK))
        town.start(leader.name)
        town.cluster.advance(60)
        assert [each.body for each in town.requests] == [b"1", b"1"]
        assert town.lag == 0

    def test_stop_after_a_change(self, town: Town) -> None:
        """A request of before the endpoint was set anew does not hold up a stop either."""
        town.prepare(timeout_ms=600_000)
        town.behave(never)
        town.publish(b"1")
        town.cluster.advance(1)
        town.operate("push.set", topic="t", name="c", url=f"{HOOK}/2", timeout_ms=600_000)
        town.cluster.advance(1)
        name = town.operate("topic.info", name="t")["topic"]["partitions"][0]["leader"]
        began = town.cluster.now
        town.cluster[name].stop()
        assert town.cluster.now - began < 20
        town.behave(always(OK))
        town.start(name)
        town.cluster.advance(60)
        assert town.lag == 0

    def test_deleted(self, town: Town) -> None:
        """An endpoint that is deleted is sent nothing; its messages stay in the channel."""
        town.prepare()
        town.operate("push.delete", topic="t", name="c")
        town.publish(b"1")
        town.cluster.advance(5)
        assert (town.requests, town.lag) == ([], 1)
        with pytest.raises(UnknownEndpoint):
            town.operate("push.info", topic="t", name="c")

    def test_goes_with_its_channel(self, town: Town) -> None:
        """A channel made anew under the name is not pushed."""
        town.prepare()
        town.operate("channel.delete", topic="t", name="c")
        town.operate("channel.create", topic="t", name="c")
        town.publish(b"1")
        town.cluster.advance(5)
        assert town.requests == []
        assert town.operate("push.list")["endpoints"] == []

    def test_goes_with_its_topic(self, town: Town) -> None:
        """So with a topic."""
        town.prepare()
        town.operate("topic.delete", name="t")
        town.cluster.advance(5)
        assert town.operate("push.list")["endpoints"] == []

    def test_set_anew(self, town: Town) -> None:
        """A new URL is used from then on, with secret and headers of before; a pause ends."""
        secret = town.prepare(headers={"X-Key": "abc"})
        town.operate("push.pause", topic="t", name="c")
        told = town.operate("push.set", topic="t", name="c", url=f"{HOOK}/2")
        assert told["secret"] is None
        town.publish(b"1")
        town.cluster.advance(5)
        (request,) = town.requests
        assert request.line == "POST /in/2 HTTP/1.1"
        assert request.headers["x-key"] == "abc"
        told = town.operate("push.set", topic="t", name="c", url=HOOK, headers={})
        assert told["endpoint"]["headers"] == []
        stamp = int(request.headers["webhook-timestamp"])
        verify(request.headers, request.body, secret, now=lambda: stamp)

    def test_more_partitions(self, town: Town) -> None:
        """Partitions that are added are pushed too."""
        town.prepare()
        town.operate("topic.alter", name="t", partitions=4)
        for partition in range(4):
            town.publish(b"%d" % partition, partition=partition)
        town.cluster.advance(5)
        assert sorted(town.bodies) == [b"0", b"1", b"2", b"3"]


class TestSlow:
    """One slow endpoint is nobody else's matter."""

    def test_others_go_on(self, town: Town) -> None:
        """Publishers and other endpoints do not wait for one that never answers."""
        town.prepare(timeout_ms=60_000)
        town.net.names["other.example"] = [["1.1.1.1"]]
        town.net.servers["1.1.1.1"] = always(OK)
        town.behave(never)
        town.operate("channel.create", topic="t", name="d")
        town.operate("push.set", topic="t", name="d", url="http://other.example/")
        town.publish(*(b"%d" % number for number in range(50)))
        town.cluster.advance(1)
        (slow, quick) = town.operate("push.list")["endpoints"]
        assert (slow["in_flight"], slow["delivered"]) == (10, 0)
        assert quick["delivered"] == 50

    def test_leases_are_renewed(self, town: Town) -> None:
        """A request that takes longer than a lease is sent once."""

        def slow(request: Request, wire: Wire) -> None:
            wire._net.callLater(40, wire.say, OK)

        town.prepare(timeout_ms=60_000, config={"lease.ms": 5000})
        town.behave(slow)
        town.publish(b"1")
        town.cluster.advance(50)
        assert (town.bodies, town.lag) == ([b"1"], 0)

    def test_many_idle(self, town: Town) -> None:
        """Endpoints with nothing to do share a few connections, and have no wire."""
        town.operate("topic.create", name="t", partitions=1)
        meta = town.cluster["meta"].meta
        for number in range(20):
            name = f"c{number}"
            town.operate("channel.create", topic="t", name=name)
            town.operate("push.set", topic="t", name=name, url=HOOK)
        assert len(meta.registry.endpoints) == 20
        town.cluster.advance(30)
        assert town.requests == []
        assert all(net.wires == [] for net in town.nets.values())
        clients = town.operate("client.list", limit=500)["clients"]
        assert sum(each["client_id"] == "tinymq-push" for each in clients) == 3
        town.operate("topic.delete", name="t")
        town.cluster.advance(30)
        clients = town.operate("client.list", limit=500)["clients"]
        assert [each for each in clients if each["client_id"] == "tinymq-push"] == []


class TestTelling:
    """What is told of endpoints, and what is not."""

    def test_secrets(self, town: Town, tmp_path: Path) -> None:
        """The secret and the values of headers are told nowhere after the first time."""
        secret = town.prepare(headers={"Authorization": "Bearer hush"})
        town.behave(always(answer("500 Oops")))
        town.publish(b"v")
        town.cluster.advance(3)
        told = [
            town.operate("push.info", topic="t", name="c"),
            town.operate("push.list"),
            town.operate("push.test", topic="t", name="c"),
            town.operate("push.pause", topic="t", name="c"),
            town.operate("push.resume", topic="t", name="c"),
        ]
        registry = town.cluster["meta"].registry
        text = repr(told) + repr(registry) + repr(town.cluster.logged.texts)
        assert secret not in text
        assert "hush" not in text
        assert told[0]["endpoint"]["headers"] == ["Authorization"]

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"url": "http://127.0.0.1/"}, EndpointRefused),
            ({"url": "http://in.example/"}, EndpointRefused),
            ({"url": "http://user:word@hook.example/"}, InvalidRequest),
            ({"url": "http://hook.example/#x"}, InvalidRequest),
            ({"url": "file:///etc/passwd"}, InvalidRequest),
            ({"secret": "whsec_short"}, InvalidRequest),
            ({"headers": {"Host": "x"}}, InvalidRequest),
            ({"headers": {"X": "a\r\nY: b"}}, InvalidRequest),
            ({"headers": {"X\r\nY": "b"}}, InvalidRequest),
            ({"headers": {"Webhook-Signature": "b"}}, InvalidRequest),
            ({"headers": {"a": "b", "A": "b"}}, InvalidRequest),
            ({"timeout_ms": 0}, InvalidRequest),
            ({"concurrency": 0}, InvalidRequest),
        ],
    )
    def test_refused(self, town: Town, change: dict[str, Any], error: type[Exception]) -> None:
        """What cannot be is refused when it is set."""
        town.net.names["in.example"] = [["10.0.0.1"]]
        town.operate("topic.create", name="t", partitions=1)
        town.operate("channel.create", topic="t", name="c")
        with pytest.raises(error):
            town.operate("push.set", **{"topic": "t", "name": "c", "url": HOOK, **change})

    def test_temporary(self, town: Town) -> None:
        """A channel that goes by itself takes no endpoint."""
        town.operate("topic.create", name="t", partitions=1)
        town.operate("channel.create", topic="t", name="c", temporary=True)
        with pytest.raises(InvalidRequest):
            town.operate("push.set", topic="t", name="c", url=HOOK)

    def test_dry_run(self, town: Town) -> None:
        """What would be is told, and nothing is."""
        town.operate("topic.create", name="t", partitions=1)
        town.operate("channel.create", topic="t", name="c")
        told = town.operate("push.set", topic="t", name="c", url=HOOK, dry_run=True)
        assert (told["secret"], told["endpoint"]["url"]) == (None, HOOK)
        assert town.operate("push.list")["endpoints"] == []

    def test_test(self, town: Town) -> None:
        """A test sends one made-up message, also where the endpoint is paused."""
        town.prepare()
        town.operate("push.pause", topic="t", name="c")
        town.behave(always(answer("200 OK", b"thanks")))
        told = town.operate("push.test", topic="t", name="c")
        assert (told["ok"], told["status"], told["answer"]) == (True, 200, "thanks")
        (request,) = town.requests
        assert request.headers["tinymq-test"] == "1"
        town.behave(always(answer("500 Oops", b"x" * 3000)))
        told = town.operate("push.test", topic="t", name="c")
        assert (told["ok"], told["status"], told["answer"]) == (False, 500, "x" * 1024)

    def test_silent_broker(self, town: Town) -> None:
        """A broker that is away makes the endpoint offline, with its name."""
        town.prepare(partitions=2)
        town.cluster["b2"].kill()
        town.cluster.advance(20)
        row = town.row
        assert row["state"] == "offline"
        assert row["why"].startswith("b2 does not answer")
        assert town.operate("push.list")["silent"] == ["b2"]

    def test_pages(self, town: Town) -> None:
        """A list comes in pages, and of one topic alone."""
        for topic in ("a", "b"):
            town.operate("topic.create", name=topic, partitions=1)
            for name in ("x", "y"):
                town.operate("channel.create", topic=topic, name=name)
                town.operate("push.set", topic=topic, name=name, url=HOOK)
        page = town.operate("push.list", limit=3)
        rest = town.operate("push.list", limit=3, after=page["after"])
        rows = page["endpoints"] + rest["endpoints"]
        assert [(row["topic"], row["channel"]) for row in rows] == [
            ("a", "x"),
            ("a", "y"),
            ("b", "x"),
            ("b", "y"),
        ]
        assert (page["more"], rest["more"], page["total"]) == (True, False, 4)
        assert len(town.operate("push.list", topic="a")["endpoints"]) == 2
        assert len(town.operate("push.list", filter="x")["endpoints"]) == 2
