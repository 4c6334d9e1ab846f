"""The operations of the MetaServer on channels."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meta.fakes import FakeTime, QuickStore, facts
from tinymq.channelpolicy import DEFAULT_POLICY, ChannelPolicy
from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import (
    ChannelExists,
    InvalidName,
    InvalidRequest,
    Overloaded,
    UnknownChannel,
    UnknownTopic,
)
from tinymq.limits import Limits
from tinymq.meta import ChannelInfo, MetaServer, Pause, Registry, Start, Store, Topic
from tinymq.meta.channels import MOST_POLICY
from tinymq.meta.endpoint import Endpoint
from tinymq.meta.entries import Delete
from tinymq.meta.server import Clocks

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("create", "ensure", "alter", "delete", "drop", "again")),
        st.sampled_from(("a", "b")),
        st.sampled_from(("x", "y", "z")),
        st.integers(1, 3),
    ),
    max_size=30,
)


@pytest.fixture
def topic(server: MetaServer) -> Topic:
    """Return a topic without channels."""
    return server.create_topic("a", 2)


@pytest.mark.usefixtures("topic")
def test_create(server: MetaServer, clock: FakeTime) -> None:
    """A channel has its policy, its start and the time at which it was made."""
    made = server.create_channel("a", "work", {"attempts": 3, "backoff": "1s 2s"}, "latest")
    assert made == ChannelInfo(
        name="work",
        policy=ChannelPolicy(attempts=3, backoff=("1s", "2s")),
        start="latest",
        created_ms=int(clock.now * 1000),
    )
    assert server.describe_channel("a", "work") == made


def test_defaults(server: MetaServer, topic: Topic) -> None:
    """A creator who says nothing gets the default policy, from the first record on."""
    made = server.create_channel("a", "work")
    assert (made.policy, made.start) == (DEFAULT_POLICY, "earliest")
    assert server.registry.channels_of(topic.id) == {"work": made}


@pytest.mark.usefixtures("topic")
def test_create_again(server: MetaServer) -> None:
    """Creating what exists returns it, as long as what is said agrees."""
    made = server.create_channel("a", "work", {"attempts": 3}, 7)
    before = server.registry
    assert server.create_channel("a", "work", {"attempts": "3"}, 7) == made
    assert server.create_channel("a", "work", {"order": "none"}) == made
    assert server.create_channel("a", "work") == made
    assert server.ensure_channel("a", "work", "latest") == made
    assert server.registry is before


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("given", "start", "field"),
    [({"attempts": 4}, None, "attempts"), ({}, "earliest", "start"), ({}, 8, "start")],
)
def test_create_something_else(
    server: MetaServer, given: dict[str, int], start: Start | None, field: str
) -> None:
    """Creating what exists and differs names the field."""
    server.create_channel("a", "work", {"attempts": 3}, 7)
    with pytest.raises(ChannelExists, match=field) as caught:
        server.create_channel("a", "work", given, start)
    assert caught.value.data["field"] == field


@pytest.mark.usefixtures("topic")
def test_ensure(server: MetaServer) -> None:
    """The first use makes a channel, and only the first."""
    made = server.ensure_channel("a", "work", "latest")
    assert made.start == "latest"
    assert server.ensure_channel("a", "work") is server.registry.channel(
        server.describe("a").id, "work"
    )


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    "start", ["", "first", "@", "@-1", "@soon", -1, True, 1.5, 2**63, ["earliest"]]
)
def test_starts(server: MetaServer, start: Start) -> None:
    """A start that is none of those that there are is refused."""
    with pytest.raises(InvalidRequest, match="earliest, latest, an offset or @") as caught:
        server.create_channel("a", "work", start=start)
    assert caught.value.data["field"] == "start"
    assert server.registry.channels == {}


@pytest.mark.usefixtures("topic")
def test_bad_names(server: MetaServer) -> None:
    """Every operation that takes a name refuses a bad one in the same way."""
    for name in ("../x", "", ".a", "a/b", "x" * 201):
        for call in (
            server.create_channel,
            server.ensure_channel,
            server.describe_channel,
            server.delete_channel,
        ):
            with pytest.raises(InvalidName):
                call("a", name)
            with pytest.raises(InvalidName):
                call(name, "work")
    assert server.registry.channels == {}


def test_long_names(store: Store) -> None:
    """A setting may allow shorter names of new channels only; those that are there stay."""
    before = MetaServer(store)
    before.register(before.new_broker_id(), "one", ("127.0.0.1", 7800))
    before.create_topic("a", 1)
    made = before.create_channel("a", "long-name")
    server = MetaServer(store, Config(limits=Limits(name=8)))
    assert server.create_channel("a", "long-name") == made
    assert server.create_channel("a", "8-letter").name == "8-letter"
    with pytest.raises(InvalidName, match=r"limits\.name allows 8"):
        server.create_channel("a", "9-letters")


def test_nothing_of_nothing(server: MetaServer) -> None:
    """Without the topic, or without the channel, there is nothing to change."""
    for call in (server.create_channel, server.ensure_channel, server.delete_channel):
        with pytest.raises(UnknownTopic):
            call("a", "work")
    server.create_topic("a")
    with pytest.raises(UnknownChannel, match="the topic a has no channel 'work'"):
        server.describe_channel("a", "work")
    with pytest.raises(UnknownChannel):
        server.alter_channel("a", "work", {})
    with pytest.raises(UnknownChannel):
        server.delete_channel("a", "work")
    with pytest.raises(UnknownChannel, match="this topic"):
        Registry().channel(bytes(16), "work")


@pytest.mark.usefixtures("topic")
def test_alter(server: MetaServer) -> None:
    """An alteration changes what it names; None stands for the default."""
    made = server.create_channel("a", "work", {"attempts": 3, "order": "key"}, 7)
    changed = server.alter_channel("a", "work", {"attempts": None, "max.length": 5})
    assert changed == attrs.evolve(made, policy=ChannelPolicy(order="key", max_length=5))
    assert server.describe_channel("a", "work") == changed
    before = server.registry
    assert server.alter_channel("a", "work", {"order": "key"}) == changed
    assert server.registry is before


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"attempts": 0}, "attempts"),
        ({"lease": 1}, "lease"),
        ({"dead.letter": "a"}, "dead.letter"),
        ({"filter": [f"h={'x' * 480}{number}" for number in range(18)]}, "filter"),
    ],
)
def test_bad_policies(
    server: MetaServer, given: dict[str, str | int | list[str] | None], field: str
) -> None:
    """A policy that cannot be changes nothing, and makes no channel."""
    with pytest.raises(InvalidRequest) as caught:
        server.create_channel("a", "work", given)
    assert caught.value.data["field"] == field
    made = server.create_channel("a", "other")
    with pytest.raises(InvalidRequest):
        server.alter_channel("a", "other", {"order": "key", **given})
    assert server.registry.channels_of(server.describe("a").id) == {"other": made}


def test_how_long_a_policy_may_be(server: MetaServer, topic: Topic) -> None:
    """As many bytes as are allowed fit."""
    texts = [f"h={'x' * 410}"] * 19
    texts.append(f"h={'x' * (MOST_POLICY - 19 * 412 - len('h=1s10s'))}")
    with pytest.raises(InvalidRequest, match=str(MOST_POLICY)):
        server.create_channel("a", "work", {"filter": texts, "backoff": "1s 100s"})
    made = server.create_channel("a", "work", {"filter": texts, "backoff": "1s 10s"})
    assert server.registry.channels_of(topic.id) == {"work": made}


def test_delete(server: MetaServer, topic: Topic) -> None:
    """A deleted channel is gone, and one that is made again is another."""
    made = server.create_channel("a", "work", {"attempts": 3})
    other = server.create_channel("a", "other")
    assert server.delete_channel("a", "work") == made
    assert server.registry.channels_of(topic.id) == {"other": other}
    again = server.create_channel("a", "work")
    assert again.policy == DEFAULT_POLICY
    assert again.created_ms > made.created_ms, "brokers tell them apart by it"
    server.delete_channel("a", "work")
    server.delete_channel("a", "other")
    assert server.registry.channels == {}


@pytest.mark.usefixtures("topic")
def test_pause(server: MetaServer, store: Store, clock: FakeTime) -> None:
    """A pause has a reason and maybe an end, begins once, and outlives a restart."""
    now = int(clock.now * 1000)
    made = server.create_channel("a", "work")
    assert not made.paused_at(now)
    assert server.pause_channel("a", "work", dry_run=True).pause == Pause(now)
    assert server.describe_channel("a", "work") == made
    server.pause_channel("a", "work", reason="upgrade")
    clock.advance(1)
    paused = server.pause_channel("a", "work", now + 5000, "upgrade")
    assert paused.pause == Pause(now, now + 5000, "upgrade")
    assert [paused.paused_at(now + 4999), paused.paused_at(now + 5000)] == [True, False]
    assert server.alter_channel("a", "work", {"attempts": 3}).pause == paused.pause
    server.close()
    again = MetaServer(store, clocks=Clocks(wall=clock))
    assert again.describe_channel("a", "work").pause == paused.pause
    with pytest.raises(InvalidRequest, match="past"):
        again.pause_channel("a", "work", now)
    clock.advance(10)
    assert again.pause_channel("a", "work").pause == Pause(now + 11_000)
    assert again.pause_channel("a", "work", undo=True).pause is None
    assert again.describe_channel("a", "work").policy.attempts == 3


@pytest.mark.usefixtures("topic")
def test_dry_runs(server: MetaServer) -> None:
    """A dry run answers as the real one would, and writes nothing."""
    made = server.create_channel("a", "work")
    before, revision = server.registry, server.revision
    assert server.create_channel("a", "new", {"attempts": 3}, dry_run=True).policy.attempts == 3
    assert server.alter_channel("a", "work", {"attempts": 3}, dry_run=True).policy.attempts == 3
    assert server.delete_channel("a", "work", dry_run=True) == made
    assert (server.registry, server.revision) == (before, revision)


def test_no_more_than_allowed(store: Store) -> None:
    """A topic has at most as many channels as the setting allows; another has its own."""
    server = MetaServer(store, DEFAULT_CONFIG.changed({"topics.channels": 2}))
    server.register(server.new_broker_id(), "one", ("127.0.0.1", 7800))
    for name in ("a", "b"):
        server.create_topic(name)
        server.create_channel(name, "one")
        server.create_channel(name, "two")
    with pytest.raises(Overloaded, match=r"topics\.channels") as caught:
        server.create_channel("a", "three")
    assert caught.value.data["limit"] == 2
    assert server.create_channel("a", "two").name == "two"
    server.delete_channel("a", "one")
    assert server.create_channel("a", "three").name == "three"


def test_a_topic_takes_its_channels_along(server: MetaServer, store: Store, topic: Topic) -> None:
    """A topic that is made again has no channels of the one before."""
    server.create_channel("a", "work")
    server.create_channel("a", "other")
    server.delete_topic("a")
    assert server.registry.channels == {}
    assert not store.range("channel/", "channel0")
    assert server.registry.touched == {topic.id}
    server.create_topic("a")
    with pytest.raises(UnknownChannel):
        server.describe_channel("a", "work")


def test_a_topic_keeps_its_channels(server: MetaServer, topic: Topic) -> None:
    """A topic whose settings change has the channels that it had."""
    made = server.create_channel("a", "work")
    server.alter_topic("a", {"sync": "os"}, 3)
    assert server.registry.channels_of(topic.id) == {"work": made}


def test_who_is_told(server: MetaServer, topic: Topic) -> None:
    """A topic counts as touched when its channels change, and snapshots stay what they were."""
    touched: list[frozenset[bytes]] = []
    server.watch(lambda _before, after: touched.append(after.touched))
    server.create_channel("a", "work")
    before = server.registry
    server.alter_channel("a", "work", {"attempts": 3})
    server.delete_channel("a", "work")
    server.create_topic("b")
    assert touched == [*[frozenset({topic.id})] * 3, frozenset({server.describe("b").id})]
    assert before.channel(topic.id, "work").policy == DEFAULT_POLICY


@given(OPERATIONS)
@settings(deadline=None, max_examples=25)
def test_what_is_there_is_what_was_done(operations: list[tuple[str, str, str, int]]) -> None:
    """Whatever is done in whatever order, there is what a plain table says, after a restart too."""
    expected: dict[str, dict[str, int]] = {}
    with TemporaryDirectory() as folder:
        store = QuickStore(Path(folder, "meta.db"))
        server = MetaServer(store)
        server.register(1, "one", ("h", 1))
        for what, topic, name, number in operations:
            if what == "again":
                server.close()
                server = MetaServer(store)
            else:
                _operate(server, expected, what, topic, (name, number))
        again = MetaServer(store)
        assert facts(again.registry) == facts(server.registry)
        found = {
            topic.name: {
                name: channel.policy.attempts
                for name, channel in again.registry.channels_of(topic.id).items()
            }
            for topic in again.registry.topics.values()
        }
        store.close()
    assert found == expected
    assert set(again.registry.channels) <= set(again.registry.topics)


def _operate(
    server: MetaServer,
    expected: dict[str, dict[str, int]],
    what: str,
    topic: str,
    channel: tuple[str, int],
) -> None:
    """Do one thing to a MetaServer and to a table of the numbers of attempts."""
    server.ensure_topic(topic)
    name, number = channel
    channels = expected.setdefault(topic, {})
    if what == "create" and name not in channels:
        server.create_channel(topic, name, {"attempts": number})
        channels[name] = number
    elif what == "ensure":
        server.ensure_channel(topic, name)
        channels.setdefault(name, DEFAULT_POLICY.attempts)
    elif what == "alter" and name in channels:
        server.alter_channel(topic, name, {"attempts": number})
        channels[name] = number
    elif what == "delete" and name in channels:
        server.delete_channel(topic, name)
        del channels[name]
    elif what == "drop":
        server.delete_topic(topic)
        del expected[topic]


# --- temporary channels --------------------------------------------------------------


@pytest.mark.usefixtures("topic")
def test_a_temporary_channel_goes_when_nobody_uses_it(server: MetaServer, clock: FakeTime) -> None:
    """It begins at the latest message, stays while it is in use, and goes after the grace."""
    made = server.create_channel("a", "work", temporary=True)
    assert (made.temporary, made.start) == (True, "latest")
    for _ in range(5):
        clock.advance(14)
        server.use_channels([made.lease, 12_345])
        server.expire()
    assert server.describe_channel("a", "work") == made

    clock.advance(16)
    server.expire()
    with pytest.raises(UnknownChannel):
        server.describe_channel("a", "work")


@pytest.mark.usefixtures("topic")
def test_a_temporary_channel_stays_what_it_is(server: MetaServer, clock: FakeTime) -> None:
    """Altering or pausing it does not make it stay; deleting it leaves nothing."""
    made = server.create_channel("a", "work", temporary=True)
    server.alter_channel("a", "work", {"attempts": 3})
    paused = server.pause_channel("a", "work")
    assert paused.lease == made.lease
    clock.advance(16)
    server.expire()
    assert server.registry.channels == {}

    server.create_channel("a", "other", temporary=True)
    server.delete_channel("a", "other")
    assert server.registry.channels == {}


@pytest.mark.usefixtures("topic")
def test_who_wants_a_temporary_channel_gets_one(server: MetaServer, clock: FakeTime) -> None:
    """Its first use makes it, a later one lets it stay, and one that is over is made anew."""
    made = server.ensure_channel("a", "work", "earliest", temporary=True)
    clock.advance(14)
    assert server.ensure_channel("a", "work", temporary=True) == made
    clock.advance(14)
    server.expire()
    assert server.ensure_channel("a", "work") == made
    clock.advance(16)
    again = server.ensure_channel("a", "work", "latest", temporary=True)

    assert again.created_ms > made.created_ms
    assert server.describe_channel("a", "work") == again


@pytest.mark.usefixtures("topic")
def test_temporary_or_not_is_a_difference(server: MetaServer) -> None:
    """A channel that stays is not taken for one that goes, nor the other way round."""
    server.create_channel("a", "stays")
    server.create_channel("a", "goes", temporary=True)
    for name, temporary in (("stays", True), ("goes", False)):
        with pytest.raises(ChannelExists, match="temporary"):
            server.create_channel("a", name, temporary=temporary)
    with pytest.raises(ChannelExists, match="temporary"):
        server.ensure_channel("a", "stays", temporary=True)
    assert server.ensure_channel("a", "goes").temporary
    assert not server.create_channel("a", "dry", temporary=True, dry_run=True).lease


def test_a_temporary_channel_goes_after_a_restart(tmp_path: Path, clock: FakeTime) -> None:
    """A MetaServer that was restarted gives it its time once more, and no longer."""
    file = tmp_path / "meta.sqlite"
    for lives in (True, False):
        store = Store(file, monotonic=clock)
        server = MetaServer(store, DEFAULT_CONFIG, Clocks(wall=clock))
        if lives:
            server.register(1, "one", ("127.0.0.1", 7800), takeover=True)
            server.create_topic("a")
            server.create_channel("a", "work", temporary=True)
            clock.advance(14)
        else:
            clock.advance(14)
            server.expire()
            assert server.describe_channel("a", "work").temporary
            clock.advance(2)
            server.expire()
            assert server.registry.channels == {}
        server.close()
        store.close()


@pytest.mark.usefixtures("topic")
def test_a_channel_of_an_instance(server: MetaServer) -> None:
    """A channel may be one instance's of a group; both are names by the rule."""
    assert server.create_channel("a", "cache@10.0.0.1-7800").name == "cache@10.0.0.1-7800"
    for name in ("@", "cache@", "@7", "cache@@7", "cache@a@b", "cache@.7", f"c@{'x' * 400}"):
        with pytest.raises(InvalidName):
            server.create_channel("a", name)


class TestKeep:
    """A broker knows a channel that the store does not."""

    def test_lost(self, server: MetaServer) -> None:
        """It is taken back as it was; once is enough."""
        topic = server.create_topic("t")
        made = server.create_channel("t", "c", {"attempts": 7})
        stored = made.encode()
        key = f"channel/{topic.id.hex()}/c"
        server._write([], [Delete(key)])
        assert server.keep_channel(topic.id, "c", stored)
        assert server.describe_channel("t", "c") == made
        revision = server.revision
        assert server.keep_channel(topic.id, "c", stored)
        assert server.revision == revision

    def test_its_push_endpoint(self, server: MetaServer) -> None:
        """It comes back with the channel, and with that alone."""
        topic = server.create_topic("t")
        stored = server.create_channel("t", "c").encode()
        endpoint = Endpoint(channel="c", url="https://example.com/", secret="whsec_x", set_ms=7)
        server._write([], [Delete(f"channel/{topic.id.hex()}/c")])
        assert server.keep_channel(topic.id, "c", stored, endpoint.encode())
        assert server.describe_endpoint("t", "c") == endpoint
        server.delete_endpoint("t", "c")
        assert server.keep_channel(topic.id, "c", stored, endpoint.encode())
        assert server.registry.endpoints == {}

    def test_deleted_or_made_anew(self, server: MetaServer) -> None:
        """What was deleted stays deleted, and what was made anew stays as it is."""
        topic = server.create_topic("t")
        stored = server.create_channel("t", "c").encode()
        server.delete_channel("t", "c")
        assert not server.keep_channel(topic.id, "c", stored)
        assert server.registry.channels == {}
        anew = server.create_channel("t", "c", {"attempts": 3})
        assert not server.keep_channel(topic.id, "c", stored)
        assert server.describe_channel("t", "c") == anew
