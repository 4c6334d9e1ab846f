"""Links and metadata over a network without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.puppet import ADDRESS, CoreNetwork, Puppet
from tinymq.client.core.address import Address, parse_url, url_from
from tinymq.client.core.config import (
    Backoff,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
)
from tinymq.client.core.link import Phase
from tinymq.client.core.metadata import MetadataCache, TopicInfo
from tinymq.errors import (
    ClosedError,
    ConfigError,
    ConnectionLost,
    DeadlineExceeded,
    NoBroker,
    Overloaded,
    TinyMQError,
    UnknownTopic,
    UnreachableError,
    UnsupportedVersion,
)
from tinymq.wire.header import MessageType
from tinymq.wire.messages import InitProducer, Metadata, MetadataReply, TopicRow, error_meta


class Outcome:
    """Notes how requests end."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.errors: list[TinyMQError] = []

    def done(self, reply: Any, payload: Any, error: TinyMQError | None, now: float) -> None:
        """Note the end of a request."""
        self.found(reply, error, now)

    def found(self, reply: Any, error: TinyMQError | None, now: float) -> None:
        """Note the end of a look-up."""
        if error is not None:
            self.errors.append(error)
        else:
            self.replies.append(reply)


# --- settings ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("tinymq://localhost", [("localhost", 7800)]),
        ("tinymq://a:1,b,[::1]:3/", [("a", 1), ("b", 7800), ("::1", 3)]),
    ],
)
def test_url(url: str, expected: list[tuple[str, int]]) -> None:
    """A URL holds one or more places."""
    assert expected == parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://a",
        "tinymq://",
        "tinymq://a:0",
        "tinymq://a:99999",
        "tinymq://a b",
        "tinymq://::1",
    ],
)
def test_wrong_url(url: str) -> None:
    """What is no URL is refused with its text."""
    with pytest.raises(ConfigError):
        parse_url(url)


def test_url_choice() -> None:
    """The caller's word comes before the environment's, and that before the default."""
    assert url_from("tinymq://x", {"TINYMQ_URL": "tinymq://y"}) == "tinymq://x"
    assert url_from(None, {"TINYMQ_URL": "tinymq://y"}) == "tinymq://y"
    assert url_from(None, {}) == "tinymq://127.0.0.1:7800"
    assert str(Address("::1", 2)) == "[::1]:2"
    assert str(ADDRESS) == "127.0.0.1:7800"


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (ClientConfig, "deadline_s", 0),
        (ClientConfig, "deadline_s", True),
        (ClientConfig, "heartbeat_s", 1.5),
        (ClientConfig, "client_id", 3),
        (ClientConfig, "backoff", None),
        (ProducerConfig, "acks", "some"),
        (ProducerConfig, "codec", "lz4"),
        (ProducerConfig, "partitioner", 1),
        (ProducerConfig, "partitioner", "random"),
        (ProducerConfig, "in_flight", 0),
        (ProducerConfig, "idempotent", 1),
        (ConsumerConfig, "out_of_range", "skip"),
        (ConsumerConfig, "max_wait_ms", -1),
        (ConsumerConfig, "on_gap", 3),
        (Backoff, "jitter", 1.1),
    ],
)
def test_nonsense(kind: type, setting: str, value: object) -> None:
    """A setting out of its range is refused by name."""
    with pytest.raises(ConfigError, match=setting):
        kind(**{setting: value})


def test_backoff() -> None:
    """Waits double up to a bound, and chance takes a share."""
    backoff = Backoff(first_s=1, most_s=5, factor=2, jitter=0.5)

    assert [backoff.delay(n, 0.0) for n in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]
    assert backoff.delay(1, 1.0) == 0.5


def test_the_url_of_the_dashboard() -> None:
    """Who gives the dashboard's URL is told which one is meant."""
    with pytest.raises(ConfigError, match="HTTP is the dashboard's, brokers have port 7800"):
        parse_url("http://127.0.0.1:7801")


# --- links ---------------------------------------------------------------------


def test_dials_when_asked() -> None:
    """Nothing is connected before somebody asks, then once."""
    net = CoreNetwork()
    cluster = net.cluster()
    net.pump()
    assert net.dialed == []
    outcome = Outcome()
    for _ in range(3):
        cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.pump()

    assert net.dialed == [ADDRESS]
    assert [reply.producer_id for reply in outcome.replies] == [101, 102, 103]
    assert cluster.seed.phase is Phase.UP


def test_tries_the_addresses_in_turn() -> None:
    """A place that does not answer leads to the next."""
    net = CoreNetwork()
    dead = Address("dead", 1)
    cluster = net.cluster()
    cluster.seed.addresses = [dead, ADDRESS]
    outcome = Outcome()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.advance(1)

    assert [dead, ADDRESS] == net.dialed
    assert len(outcome.replies) == 1


def test_unreachable_within_the_deadline() -> None:
    """When nobody answers, the call says so at its deadline, and dialing backs off."""
    net = CoreNetwork()
    net.up = False
    cluster = net.cluster()
    outcome = Outcome()
    cluster.ask_once(InitProducer(), net.now + 5, outcome.done, net.now)
    net.advance(4.9)
    assert not outcome.errors
    net.advance(0.2)

    assert isinstance(outcome.errors[0], UnreachableError)
    assert "127.0.0.1:7800 refused" in str(outcome.errors[0])
    assert 5 < len(net.dialed) < 12


def test_nobody_is_waited_for() -> None:
    """If the settings say so, a call ends as soon as every address was tried in vain."""
    net = CoreNetwork()
    net.up = False
    other = Address("b", 1)
    cluster = net.cluster(ClientConfig(wait_for_broker=False), other)
    outcome = Outcome()
    for _ in range(2):
        cluster.topic("t", net.now + 100, outcome.found, net.now)
        cluster.ask(InitProducer(), net.now + 100, outcome.done, net.now)
        net.advance(1)

        assert [NoBroker, NoBroker] == [type(error) for error in outcome.errors]
        assert str(outcome.errors[0]).startswith(
            "no broker answers at tinymq://127.0.0.1:7800,b:1: "
        )
        outcome.errors.clear()
    assert net.dialed == [ADDRESS, other] * 2


def test_a_broker_that_answered_once_is_waited_for() -> None:
    """Not to wait is for the first contact: a restart is ridden over in any case."""
    net = CoreNetwork()
    cluster = net.cluster(ClientConfig(wait_for_broker=False))
    outcome = Outcome()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.pump()
    net.up = False
    net.cut()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.advance(3)
    assert outcome.errors == []
    net.up = True
    net.advance(3)

    assert len(outcome.replies) == 2


def test_connecting_takes_too_long() -> None:
    """An attempt to connect that hangs is given up."""
    net = CoreNetwork()
    net.hang = True
    cluster = net.cluster(ClientConfig(connect_timeout_s=1))
    outcome = Outcome()
    cluster.ask_once(InitProducer(), net.now + 3, outcome.done, net.now)
    net.advance(2.5)
    net.hang = False
    net.advance(1)

    assert len(outcome.replies) == 1


def test_repeats_after_a_loss() -> None:
    """A harmless request is repeated after the link was lost; another one is not."""
    net = CoreNetwork()
    cluster = net.cluster()
    net.puppet.deaf = {MessageType.INIT_PRODUCER}
    again, once = Outcome(), Outcome()
    cluster.ask(InitProducer(), net.now + 5, again.done, net.now)
    cluster.ask_once(InitProducer(), net.now + 5, once.done, net.now)
    net.pump()
    net.cut()
    net.puppet.deaf = set()
    net.advance(1)

    assert [ConnectionLost] == [type(error) for error in once.errors]
    assert [len(again.replies), len(again.errors)] == [1, 0]
    assert len(net.dialed) == 2


def test_gives_up_repeating() -> None:
    """Repeating ends at the deadline with the last error."""
    net = CoreNetwork()
    cluster = net.cluster()
    net.puppet.refuse = lambda request: Overloaded("busy")
    outcome = Outcome()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.advance(5)

    assert [Overloaded] == [type(error) for error in outcome.errors]


def test_silent_broker() -> None:
    """A broker that is silent for three heartbeats is dead, and dialed again."""
    net = CoreNetwork()
    cluster = net.cluster(ClientConfig(request_timeout_s=300))
    outcome = Outcome()
    net.puppet.deaf = {MessageType.INIT_PRODUCER, MessageType.PING}
    cluster.ask(InitProducer(), net.now + 100, outcome.done, net.now)
    net.advance(44)
    assert len(net.dialed) == 1
    net.puppet.deaf = set()
    net.advance(2)

    assert [len(net.dialed), len(outcome.replies)] == [2, 1]


def test_a_program_that_did_nothing_for_long() -> None:
    """Nothing is written to a connection that nobody looked after; a new one is made for it."""
    net = CoreNetwork()
    cluster = net.cluster()
    first, second = Outcome(), Outcome()
    cluster.ask_once(InitProducer(), net.now + 5, first.done, net.now)
    net.pump()
    net.now += 60
    cluster.ask_once(InitProducer(), net.now + 5, second.done, net.now)
    net.advance(1)

    assert [len(first.replies), len(second.replies)] == [1, 1]
    assert second.errors == []
    assert len(net.dialed) == 2


def test_wrong_version_fails_at_once() -> None:
    """When the broker speaks another version, waiting calls do not wait in vain."""
    net = CoreNetwork()
    cluster = net.cluster()
    net.puppet.refuse_hello = lambda request: UnsupportedVersion("use version 9")
    outcome = Outcome()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
    net.pump()

    assert [UnsupportedVersion] == [type(error) for error in outcome.errors]


def test_close_ends_everything() -> None:
    """Closing ends what waits, in every phase, and later calls too."""
    for phase in ("dialing", "up", "again"):
        net = CoreNetwork()
        cluster = net.cluster()
        net.hang = phase == "dialing"
        net.puppet.deaf = {MessageType.INIT_PRODUCER, MessageType.METADATA}
        if phase == "again":
            net.puppet.refuse = lambda request: Overloaded()
        outcome = Outcome()
        cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
        cluster.topic("t", net.now + 5, outcome.found, net.now)
        net.pump()
        cluster.close(net.now)
        cluster.close(net.now)
        cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now)
        cluster.ask_once(InitProducer(), net.now + 5, outcome.done, net.now)
        cluster.topic("t", net.now + 5, outcome.found, net.now)

        assert [ClosedError] * 5 == [type(error) for error in outcome.errors]
        assert cluster.wake_at == float("inf")


def test_session_is_kept() -> None:
    """A link that comes back offers the session that it had."""
    net = CoreNetwork()
    cluster = net.cluster()
    for _ in range(2):
        cluster.ask(InitProducer(), net.now + 5, Outcome().done, net.now)
        net.pump()
        net.cut()

    assert [hello.session for hello in net.puppet.hellos] == [None, b"s" * 16]


def test_other_brokers() -> None:
    """Each leader has a link of its own; one that nobody knows is asked for by the seed."""
    net = CoreNetwork()
    other = Puppet(2)
    net.puppets[Address("other", 7)] = other
    net.puppet.brokers.append((2, "other", 7, "other"))
    cluster = net.cluster()
    net.puppet.make("t")
    cluster.topic("t", net.now + 5, Outcome().found, net.now)
    net.pump()
    outcome = Outcome()
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now, broker=2)
    cluster.ask(InitProducer(), net.now + 5, outcome.done, net.now, broker=1)
    net.pump()

    assert [
        other.kinds(),
        net.puppet.kinds(),
    ] == [["INIT_PRODUCER"], ["METADATA", "INIT_PRODUCER"]]
    assert cluster.link(99) is cluster.seed
    assert len(cluster.links) == 2
    net.cut()
    assert cluster.link(1) is cluster.seed


# --- metadata ------------------------------------------------------------------


def test_cache_prefers_the_newer() -> None:
    """An answer of an older revision changes nothing that is known."""
    cache = MetadataCache()
    cache.apply(MetadataReply(revision=5, brokers=[], topics=[("t", b"1" * 16, [1, 1], {}, None)]))
    found = cache.apply(
        MetadataReply(
            revision=4, brokers=[(1, "h", 1, "")], topics=[("t", b"0" * 16, [1], {}, None)]
        )
    )
    known = cache.get("t")

    assert known is not None
    assert [known, 2, True] == [found["t"], known.partitions, cache.lagging]
    assert [cache.brokers, cache.names, len(cache)] == [{}, ["t"], 1]


def test_a_partition_without_a_leader_is_named() -> None:
    """Topic and partition are named in any case, and the broker if it was known before."""
    cache = MetadataCache()
    row: TopicRow = ("t", b"1" * 16, [-1, 2], {}, None)
    cache.apply(MetadataReply(revision=1, brokers=[(2, "h", 1, "broker-2")], topics=[row]))
    first = cache.leaderless("t", 0)
    cache.apply(
        MetadataReply(revision=2, brokers=[], topics=[("t", b"1" * 16, [-1, -1], {}, None)])
    )
    second = cache.leaderless("t", 1)

    assert str(first) == (
        "no live broker leads partition 0 of topic t: the one that holds it is away"
    )
    assert str(second) == "broker-2 (2) is away: no live broker leads partition 1 of topic t"
    assert [first.data["broker"], second.data["broker"]] == [-1, 2]


def test_cache_forgets_what_is_gone() -> None:
    """A topic that does not exist is forgotten; one that could not be told is not."""
    cache = MetadataCache()
    row: TopicRow = ("t", b"1" * 16, [1], {}, None)
    cache.apply(MetadataReply(revision=1, brokers=[], topics=[row]))
    cache.apply(
        MetadataReply(revision=2, brokers=[], topics=[("t", b"", [], {}, error_meta(Overloaded()))])
    )
    assert cache.get("t")
    cache.apply(
        MetadataReply(
            revision=3, brokers=[], topics=[("t", b"", [], {}, error_meta(UnknownTopic()))]
        )
    )

    assert cache.get("t") is None


def test_topic_from_the_cache() -> None:
    """A known topic costs no request; a missing one is an error, or is created."""
    net = CoreNetwork()
    net.puppet.make("t")
    cluster = net.cluster()
    outcome = Outcome()
    for name, create in (("t", False), ("nix", False), ("made", True)):
        cluster.topic(name, net.now + 5, outcome.found, net.now, create=create)
    net.pump()
    cluster.topic("t", net.now + 5, outcome.found, net.now)

    assert sorted(info.name for info in outcome.replies) == ["made", "t", "t"]
    assert [UnknownTopic] == [type(error) for error in outcome.errors]
    asked = [request for request in net.puppet.seen if isinstance(request, Metadata)]
    assert [(request.names, request.create) for request in asked] == [
        (["t"], False),
        (["nix"], False),
        (["made"], True),
    ]


def test_topic_look_up_repeats_until_its_deadline() -> None:
    """Passing errors are waited out; at the deadline the last one is told."""
    net = CoreNetwork()
    net.puppet.make("t")
    cluster = net.cluster()
    outcome = Outcome()
    net.puppet.refuse = lambda request: Overloaded("busy")
    cluster.topic("t", net.now + 2, outcome.found, net.now)
    cluster.topic("t", net.now + 9, outcome.found, net.now)
    net.advance(3)
    assert [Overloaded] == [type(error) for error in outcome.errors]
    net.puppet.refuse = lambda request: None
    net.advance(3)

    assert [info.name for info in outcome.replies] == ["t"]


def test_mute_metadata() -> None:
    """A look-up that nobody answers ends within its deadline."""
    net = CoreNetwork()
    cluster = net.cluster()
    net.puppet.mute = {MessageType.METADATA}
    outcome = Outcome()
    cluster.topic("t", net.now + 2, outcome.found, net.now)
    net.advance(2)

    assert [DeadlineExceeded] == [type(error) for error in outcome.errors]


class Part:
    """Counts what a producer or consumer is told."""

    wake_at = float("inf")
    changes = 0
    links = 0

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def link_changed(self, now: float) -> None:
        """Count."""
        self.links += 1

    def topics_changed(self, now: float) -> None:
        """Count."""
        self.changes += 1

    def cluster_closed(self, now: float) -> None:
        """Nothing to end."""


def test_refresh_by_time_and_on_demand() -> None:
    """Known topics are read anew after a while, and when something did not fit."""
    net = CoreNetwork()
    net.puppet.make("t")
    cluster = net.cluster(ClientConfig(metadata_age_s=60))
    part = Part()
    cluster.add(part)
    cluster.topic("t", net.now + 5, Outcome().found, net.now)
    net.advance(1)
    topic = net.puppet.make("t", 3)
    net.advance(58)
    assert part.changes == 1
    net.advance(2)
    known = cluster.metadata.get("t")
    assert known == TopicInfo("t", topic.id, (1, 1, 1), {})
    net.puppet.make("t", 4)
    cluster.refresh(net.now)
    net.advance(1)

    known = cluster.metadata.get("t")
    assert known is not None
    assert [known.partitions, part.changes] == [4, 3]
    assert part.links == 1
    cluster.remove(part)
    cluster.remove(part)


def test_refresh_survives_a_dead_broker() -> None:
    """While nobody answers the cache is kept, and asked again later."""
    net = CoreNetwork()
    net.puppet.make("t")
    cluster = net.cluster()
    cluster.topic("t", net.now + 5, Outcome().found, net.now)
    net.pump()
    net.up = False
    net.cut()
    net.advance(200)
    assert cluster.metadata.get("t")
    net.up = True
    seen = len(net.puppet.seen)
    net.advance(30)

    assert len(net.puppet.seen) > seen
