"""The operations of the MetaServer on exchanges and bindings."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meta.fakes import FakeTime, QuickStore, facts, feed
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    Overloaded,
    StateError,
    TopicExists,
    UnknownBinding,
    UnknownExchange,
    UnknownTopic,
)
from tinymq.meta import MetaServer, Store
from tinymq.meta.changes import PAGE_BYTES
from tinymq.meta.entries import Delete, Put, prefix
from tinymq.meta.exchanges import MOST_BINDINGS
from tinymq.meta.replica import Replica
from tinymq.meta.server import Clocks
from tinymq.routing import Binding, Exchange, Kind, Terms, binding_key, exchange_key

ANY = Terms()


def targets(server: MetaServer, name: str) -> set[str]:
    """Say where bindings of an exchange lead."""
    return set(server.describe_exchange(name)[1].targets)


def bindings_in(store: Store) -> int:
    """Count the bindings that a store holds."""
    return len(store.range(*prefix("binding/")))


@pytest.fixture
def fan(server: MetaServer) -> MetaServer:
    """Return a MetaServer with the exchanges a and b and the topics t and u."""
    for name in ("a", "b"):
        server.create_exchange(name, "fanout")
    for name in ("t", "u"):
        server.create_topic(name)
    return server


class TestExchanges:
    """Topics that are exchanges."""

    def test_create(self, server: MetaServer, clock: FakeTime) -> None:
        """An exchange is made with its topic, and knows where the unroutable goes."""
        topic, made = server.create_exchange("x", "topic", None, 3, {"sync": "os"})
        expected = Exchange(
            kind="topic", dead_letter="x.unroutable", created_ms=int(clock.now * 1000)
        )
        assert made == expected
        assert server.describe("x") == topic
        assert (topic.partitions, topic.config.to_mapping()["sync"]) == (3, "os")
        assert server.describe_exchange("x") == (topic, made)
        assert server.registry.exchanges == {topic.id: made}
        assert topic.id in server.registry.touched

    def test_of_a_topic_that_is_there(self, server: MetaServer) -> None:
        """A topic becomes an exchange as it is; its settings are only compared."""
        topic = server.create_topic("x", 2)
        assert server.create_exchange("x", "direct")[0] == topic
        with pytest.raises(TopicExists, match="2 partitions"):
            server.create_exchange("x", "direct", partitions=3)

    def test_again(self, server: MetaServer) -> None:
        """The same again is fine and writes nothing; another kind or target is refused."""
        made = server.create_exchange("x", "topic", "dead")
        revision = server.revision
        assert server.create_exchange("x", "topic") == made
        assert server.create_exchange("x", "topic", "dead") == made
        assert server.revision == revision
        with pytest.raises(TopicExists, match="x is a topic exchange, not fanout") as caught:
            server.create_exchange("x", "fanout")
        assert caught.value.data["field"] == "kind"
        with pytest.raises(TopicExists, match="tinymq exchange alter x --dead-letter other"):
            server.create_exchange("x", "topic", "other")

    def test_dry_run(self, server: MetaServer) -> None:
        """A dry run says what would be and writes nothing."""
        revision = server.revision
        topic, exchange = server.create_exchange("x", "rule", dry_run=True)
        assert (topic.name, exchange.kind) == ("x", "rule")
        assert server.revision == revision

    def test_nothing_is_made_of_what_is_refused(self, server: MetaServer) -> None:
        """When the exchange is refused, its topic is not made either."""
        with pytest.raises(InvalidRequest, match="x -> x"):
            server.create_exchange("x", "fanout", "x")
        with pytest.raises(InvalidName):
            server.create_exchange("x", "fanout", "no name")
        with pytest.raises(InvalidName, match="as dead_letter which topic"):
            server.create_exchange("x" * 195, "fanout")
        assert server.registry.topics == {}

    def test_alter(self, fan: MetaServer) -> None:
        """The dead-letter topic can be changed, and goes back to the default."""
        assert fan.alter_exchange("a", "t", dry_run=True).dead_letter == "t"
        assert fan.describe_exchange("a")[1].dead_letter == "a.unroutable"
        fan.add_binding("a", "u", ANY)
        fan.alter_exchange("a", "t")
        assert fan.describe_exchange("a")[1].dead_letter == "t"
        assert targets(fan, "a") == {"u"}
        assert fan.alter_exchange("a", None).dead_letter == "a.unroutable"

    def test_delete(self, fan: MetaServer, store: Store) -> None:
        """The topic stays with its messages; the bindings go."""
        topic = fan.describe("a")
        fan.add_binding("a", "t", ANY)
        assert len(fan.delete_exchange("a", dry_run=True).bindings) == 1
        assert len(fan.delete_exchange("a").bindings) == 1
        assert fan.describe("a") == topic
        assert bindings_in(store) == 0
        with pytest.raises(UnknownExchange, match="tinymq exchange create a --kind KIND"):
            fan.describe_exchange("a")
        fan.create_exchange("a", "direct")
        assert targets(fan, "a") == set()

    def test_bindings_that_lead_to_it(self, fan: MetaServer) -> None:
        """An exchange that others lead to goes only by force, and these bindings with it."""
        fan.add_binding("a", "b", ANY)
        fan.add_binding("a", "t", ANY)
        with pytest.raises(InvalidRequest, match="1 bindings lead to b, the first from a") as told:
            fan.delete_exchange("b")
        assert told.value.data == {"field": "force", "bindings": 1}
        fan.delete_exchange("b", force=True)
        assert targets(fan, "a") == {"t"}

    def test_unknown(self, fan: MetaServer) -> None:
        """Names that are none, of no topic, or of no exchange are told apart."""
        with pytest.raises(InvalidName):
            fan.delete_exchange("no name")
        with pytest.raises(UnknownTopic, match="tinymq exchange create"):
            fan.alter_exchange("nobody", None)
        with pytest.raises(UnknownExchange):
            fan.add_binding("t", "u", ANY)


class TestBindings:
    """Ways from exchanges to topics."""

    def test_add(self, fan: MetaServer, clock: FakeTime) -> None:
        """A binding is there when the call returns, and is the same when it is made again."""
        made, created = fan.add_binding("a", "t", ANY)
        assert created
        assert (made.target, made.terms, made.created_ms) == ("t", ANY, int(clock.now * 1000))
        clock.advance(5)
        assert fan.add_binding("a", "t", ANY) == (made, False)
        assert fan.describe_exchange("a")[1].bindings == {made.id: made}

    def test_terms_are_those_of_the_kind(self, server: MetaServer) -> None:
        """What a binding takes is checked before anything is written."""
        server.create_topic("t")
        cases: list[tuple[Kind, Terms]] = [
            ("direct", Terms(rule="true")),
            ("topic", Terms()),
            ("headers", Terms(key="k")),
            ("rule", Terms(rule="no such")),
        ]
        for kind, terms in cases:
            server.create_exchange(kind, kind)
            with pytest.raises(InvalidRequest):
                server.add_binding(kind, "t", terms)
            assert targets(server, kind) == set()

    def test_target_must_be_there(self, fan: MetaServer) -> None:
        """A target that is not there is not made, and the text says what to do."""
        with pytest.raises(UnknownTopic, match="tinymq topic create nobody"):
            fan.add_binding("a", "nobody", ANY)

    def test_delete(self, fan: MetaServer) -> None:
        """A binding goes by its id, and can come back."""
        made, _ = fan.add_binding("a", "t", ANY)
        assert fan.delete_binding("a", made.id, dry_run=True) == made
        assert fan.delete_binding("a", made.id) == made
        assert targets(fan, "a") == set()
        with pytest.raises(UnknownBinding, match="tinymq binding ls --exchange a"):
            fan.delete_binding("a", made.id)
        assert fan.add_binding("a", "t", ANY)[1]

    def test_ids_that_are_taken(self, server: MetaServer) -> None:
        """Two bindings whose ids would be the same get two."""
        server.create_exchange("x", "direct")
        server.create_topic("t")
        made, _ = server.add_binding("x", "t", Terms(key="k"))
        topic = server.describe("x")
        other = attrs.evolve(made, terms=Terms(key="other"))
        server._store.put(binding_key(topic.id, made.id), other.encode())
        again, created = server.add_binding("x", "t", Terms(key="k"))
        assert created
        assert again.id != made.id
        assert server.add_binding("x", "t", Terms(key="k")) == (again, False)

    def test_most(self, fan: MetaServer) -> None:
        """An exchange has only so many bindings; the text says what to do instead."""
        topic, exchange = fan.describe_exchange("a")
        many = {f"{n:08x}": Binding(id="", target="u", terms=ANY, created_ms=1) for n in range(3)}
        whole = {**many, **{f"{n:08x}": many["00000000"] for n in range(MOST_BINDINGS)}}
        full = attrs.evolve(exchange, bindings=whole)
        fan.registry = attrs.evolve(fan.registry, exchanges={topic.id: full})
        with pytest.raises(Overloaded, match="bind it to another exchange"):
            fan.add_binding("a", "t", ANY)


class TestCircles:
    """Messages never come back to where they were."""

    def test_bindings(self, fan: MetaServer) -> None:
        """A binding that would close a circle is refused with the whole way."""
        fan.create_exchange("c", "fanout")
        fan.add_binding("a", "b", ANY)
        fan.add_binding("b", "c", ANY)
        with pytest.raises(InvalidRequest, match="c -> a -> b -> c") as caught:
            fan.add_binding("c", "a", ANY)
        assert caught.value.data["circle"] == ["c", "a", "b", "c"]
        assert targets(fan, "c") == set()

    def test_itself(self, fan: MetaServer) -> None:
        """An exchange does not lead to itself."""
        with pytest.raises(InvalidRequest, match="a -> a;"):
            fan.add_binding("a", "a", ANY)
        with pytest.raises(InvalidRequest, match="a -> a;"):
            fan.alter_exchange("a", "a")

    def test_dead_letters(self, fan: MetaServer) -> None:
        """The way of what no binding takes counts as any other."""
        fan.alter_exchange("b", "a")
        with pytest.raises(InvalidRequest, match="a -> b -> a"):
            fan.add_binding("a", "b", ANY)
        fan.alter_exchange("b", None)
        fan.add_binding("a", "b", ANY)
        with pytest.raises(InvalidRequest, match="b -> a -> b") as caught:
            fan.alter_exchange("b", "a")
        assert caught.value.data["field"] == "dead_letter"

    def test_a_topic_that_becomes_an_exchange(self, fan: MetaServer) -> None:
        """A topic that messages come to cannot become an exchange that leads back."""
        fan.add_binding("a", "t", ANY)
        with pytest.raises(InvalidRequest, match="t -> a -> t"):
            fan.create_exchange("t", "fanout", "a")
        fan.create_exchange("t", "fanout")
        with pytest.raises(InvalidRequest, match="t -> a -> t"):
            fan.add_binding("t", "a", ANY)

    def test_default_dead_letters(self, server: MetaServer) -> None:
        """Also the default name may be that of an exchange that leads back."""
        server.create_exchange("x.unroutable", "fanout", "x")
        with pytest.raises(InvalidRequest, match=r"x -> x\.unroutable -> x"):
            server.create_exchange("x", "fanout")

    def test_two_at_once(self, fan: MetaServer) -> None:
        """A way that was made since it was looked for circles keeps another from being written."""
        original = fan._check_way

        def slow(name: str, target: str, what: str) -> None:
            original(name, target, what)
            fan._check_way = original  # type: ignore[method-assign]
            fan.add_binding("b", "a", ANY)  # somebody else is faster

        fan._check_way = slow  # type: ignore[method-assign]
        with pytest.raises(StateError, match="try again"):
            fan.add_binding("a", "b", ANY)
        assert (targets(fan, "a"), targets(fan, "b")) == (set(), {"a"})
        with pytest.raises(InvalidRequest, match="a -> b -> a"):
            fan.add_binding("a", "b", ANY)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.booleans())))
def test_there_is_never_a_circle(ways: list[tuple[str, str, bool]]) -> None:
    """Whatever is bound in whatever order, no message could come back."""
    with TemporaryDirectory() as folder:
        store = QuickStore(Path(folder) / "meta.db")
        server = MetaServer(store)
        server.register(server.new_broker_id(), "one", ("127.0.0.1", 7800))
        for name in "abcd":
            server.create_exchange(name, "fanout")
        refused = 0
        for origin, target, dead in ways:
            try:
                if dead:
                    server.alter_exchange(origin, target)
                else:
                    server.add_binding(origin, target, ANY)
            except InvalidRequest:
                refused += 1
        found = {name: server.describe_exchange(name)[1].leads_to for name in "abcd"}
        reached = {name: set(found[name]) for name in found}
        for _, name in product(range(4), found):
            reached[name] |= {far for each in reached[name] for far in reached.get(each, ())}
        assert [name for name in found if name in reached[name]] == []
        assert refused or not any(origin == target for origin, target, _ in ways)
        server.close()
        store.close()


class TestTopics:
    """What becomes of bindings when topics go."""

    def test_deleted_target(self, fan: MetaServer, store: Store) -> None:
        """With a topic go the bindings that lead to it, and no others."""
        fan.add_binding("a", "t", ANY)
        fan.add_binding("b", "t", ANY)
        fan.add_binding("a", "u", ANY)
        a = fan.describe("a").id
        fan.delete_topic("t")
        assert (targets(fan, "a"), targets(fan, "b")) == ({"u"}, set())
        assert bindings_in(store) == 1
        assert a in fan.registry.exchanges

    def test_deleted_exchange(self, fan: MetaServer, store: Store) -> None:
        """With the topic of an exchange go the exchange and its bindings."""
        fan.add_binding("a", "t", ANY)
        topic = fan.describe("a")
        fan.delete_topic("a")
        assert topic.id not in fan.registry.exchanges
        assert store.get(exchange_key(topic.id)) is None
        assert bindings_in(store) == 0
        fan.create_topic("a")
        with pytest.raises(UnknownExchange):
            fan.describe_exchange("a")


class TestManyBindings:
    """Thousands of bindings of one exchange."""

    @pytest.fixture
    def many(self, fan: MetaServer, store: Store) -> MetaServer:
        """Return a MetaServer one exchange of which has many bindings."""
        topic = fan.describe("a")
        puts = []
        for n in range(2500):
            made = Binding(id=f"{n:08x}", target="t", terms=Terms(key=f"k{n}"), created_ms=1)
            puts.append(Put(binding_key(topic.id, made.id), made.encode()))
        for at in range(0, len(puts), 1000):
            store.transact([], puts[at : at + 1000])
        return fan

    def test_pages(self, many: MetaServer) -> None:
        """A replica is told of them, and that they are gone, in pages of a bounded size."""
        replica = Replica()
        feed(replica, many, PAGE_BYTES)
        assert facts(replica.registry) == facts(many.registry)
        many.delete_topic("t")
        most, more = 0, True
        while more:
            page = many.changes(replica.cursor)
            replica.apply(page)
            most = max(most, sum(len(key) + len(value or b"") for key, value, _ in page.events))
            more = page.more
        assert most < 2 * PAGE_BYTES
        assert facts(replica.registry) == facts(many.registry)
        assert targets(many, "a") == set()

    def test_one_more_is_cheap(self, many: MetaServer) -> None:
        """A change beside many bindings does not read them all again."""
        many.add_binding("b", "a", ANY)
        started = time.process_time()
        for n in range(20):
            many.alter_exchange("b", f"d{n}")
        assert time.process_time() - started < 1

    def test_what_a_crash_left(self, many: MetaServer, store: Store, clock: FakeTime) -> None:
        """Bindings of exchanges, and to topics, that are gone are forgotten at the next start."""
        a, t = many.describe("a"), many.describe("t")
        many.add_binding("b", "t", ANY)
        many.add_binding("b", "u", ANY)
        store.transact([], [Delete(exchange_key(a.id))])
        store.transact([], [Delete(f"topic/{t.id.hex()}"), Delete("name/t")])
        many.close()
        again = MetaServer(store, clocks=Clocks(wall=clock))
        assert bindings_in(store) == 1
        assert targets(again, "b") == {"u"}
        again.close()

    def test_leftovers_do_not_come_back(self, many: MetaServer, store: Store) -> None:
        """What a crash left of an exchange is not taken over by a new one of the topic."""
        a = many.describe("a")
        store.transact([], [Delete(exchange_key(a.id))])
        many.create_exchange("a", "direct")
        assert targets(many, "a") == set()
        assert bindings_in(store) == 0


def test_restart(fan: MetaServer, store: Store, clock: FakeTime) -> None:
    """Exchanges and bindings are there after a restart, as they were."""
    fan.add_binding("a", "t", ANY)
    fan.add_binding("b", "a", ANY)
    before = facts(fan.registry)
    fan.close()
    again = MetaServer(store, clocks=Clocks(wall=clock))
    assert facts(again.registry) == before
    again.close()
