"""The administrative operations on exchanges: what they change and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import BrokerFixture, outcome_of
from tinymq.caller import Caller
from tinymq.catalog.exchanges import MOST_EDGES, MOST_NODES, MOST_SHOWN
from tinymq.errors import InvalidRequest, UnknownExchange
from tinymq.routing import Terms, binding_id


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with the exchange x and the topics t and u."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.operate("exchange.create", name="x", kind="topic", partitions=2)
    for name in ("t", "u"):
        fixture.topic(name)
    return fixture


def add(fixture: BrokerFixture, exchange: str, target: str, **terms: Any) -> str:
    """Add a binding and return its id."""
    made = fixture.operate("binding.add", exchange=exchange, target=target, **terms)
    return str(made["binding"]["id"])


def make(fixture: BrokerFixture, name: str, kind: str, **more: Any) -> None:
    """Make an exchange."""
    fixture.operate("exchange.create", name=name, kind=kind, **more)


def test_create(fixture: BrokerFixture) -> None:
    """The answer says what is there, and whether it was there before."""
    made = fixture.operate("exchange.create", name="new", kind="rule", dry_run=True)
    assert (made["created"], made["dry_run"], made["exchange"]["kind"]) == (True, True, "rule")
    assert "new" not in fixture.broker.meta.registry.by_name
    again = fixture.operate("exchange.create", name="x", kind="topic")
    assert (again["created"], again["exchange"]["dead_letter"]) == (False, "x.unroutable")


def test_list_goes_on(fixture: BrokerFixture) -> None:
    """A list says where its next page begins, and tells what nobody knows as null."""
    for name in ("a", "b"):
        make(fixture, name, "fanout")
    page = fixture.operate("exchange.list", limit=2)
    assert [row["name"] for row in page["exchanges"]] == ["a", "b"]
    assert (page["more"], page["after"], page["total"]) == (True, "b", 3)
    rest = fixture.operate("exchange.list", limit=2, after="b")
    assert [row["name"] for row in rest["exchanges"]] == ["x"]
    assert (rest["more"], rest["after"]) == (False, None)
    assert fixture.operate("exchange.list", filter="[ab]")["total"] == 2


def test_info(fixture: BrokerFixture) -> None:
    """One exchange is told with its first bindings, in order of their targets."""
    for number in range(MOST_SHOWN):
        add(fixture, "x", "u", key=f"k{number}")
    add(fixture, "x", "t", key="#")
    found = fixture.operate("exchange.info", name="x")
    assert (found["exchange"]["bindings"], found["exchange"]["partitions"]) == (MOST_SHOWN + 1, 2)
    assert (len(found["bindings"]), found["more"]) == (MOST_SHOWN, True)
    assert found["bindings"][0]["target"] == "t"
    with pytest.raises(UnknownExchange):
        fixture.operate("exchange.info", name="t")


def test_bindings(fixture: BrokerFixture) -> None:
    """Bindings are listed by exchange and id, filtered, and page after page."""
    make(fixture, "a", "headers")
    ids = sorted(add(fixture, "x", "t", key=f"k{number}") for number in range(3))
    other = add(fixture, "a", "t", headers=["region=eu", "!test"])
    add(fixture, "x", "u", key="k")
    found: list[str] = []
    after = ""
    while True:
        page = fixture.operate("binding.list", target="t", limit=1, after=after)
        found += [row["id"] for row in page["bindings"]]
        assert page["total"] == 4
        if not page["more"]:
            break
        after = page["after"]
    assert found == [other, *ids]
    row = fixture.operate("binding.list", exchange="a")["bindings"][0]
    assert (row["key"], row["headers"], row["rule"]) == (None, ["region=eu", "!test"], None)
    assert fixture.operate("binding.list", exchange="x")["total"] == 4
    gone = fixture.operate("binding.delete", exchange="x", id=ids[0])["binding"]
    assert (gone["id"], gone["target"]) == (ids[0], "t")
    assert fixture.operate("binding.list", exchange="x")["total"] == 3


class TestWhereTo:
    """Asking where a message would go."""

    def test_through_exchanges(self, fixture: BrokerFixture) -> None:
        """The ways go on through exchanges; each topic is told once."""
        make(fixture, "y", "headers")
        first = add(fixture, "x", "y", key="eu.#")
        second = add(fixture, "x", "t", key="eu.*")
        third = add(fixture, "y", "t", headers=["region=eu"])
        fourth = add(fixture, "y", "u", headers=["region"])
        found = fixture.operate(
            "exchange.test", name="x", key="eu.de", headers={"region": "eu"}, value="text"
        )
        assert found["targets"] == ["t", "u"]
        assert found["path"] == [
            {"exchange": "x", "binding": second, "target": "t"},
            {"exchange": "x", "binding": first, "target": "y"},
            {"exchange": "y", "binding": third, "target": "t"},
            {"exchange": "y", "binding": fourth, "target": "u"},
        ]
        assert (found["unroutable"], found["dead_letter"]) == (False, "x.unroutable")

    def test_nothing_takes_it(self, fixture: BrokerFixture) -> None:
        """What no binding takes goes to the dead-letter topic, and on if that is an exchange."""
        make(fixture, "rest", "direct")
        fixture.operate("exchange.alter", name="x", dead_letter="rest")
        found = fixture.operate("exchange.test", name="x", key="us")
        assert found["path"] == [
            {"exchange": "x", "binding": None, "target": "rest"},
            {"exchange": "rest", "binding": None, "target": "rest.unroutable"},
        ]
        assert (found["unroutable"], found["targets"]) == (True, ["rest.unroutable"])

    def test_lost_further_on(self, fixture: BrokerFixture) -> None:
        """Only what the first exchange cannot route is told as unroutable."""
        make(fixture, "y", "direct")
        add(fixture, "x", "y", key="#")
        found = fixture.operate("exchange.test", name="x", key="us")
        assert (found["unroutable"], found["targets"]) == (False, ["y.unroutable"])

    def test_rules(self, fixture: BrokerFixture) -> None:
        """Rules that fail on it are told with the reason."""
        make(fixture, "r", "rule")
        add(fixture, "r", "t", rule="json.total > 100")
        found = fixture.operate("exchange.test", name="r", value='{"total": 150}')
        assert (found["targets"], found["failures"]) == (["t"], [])
        found = fixture.operate("exchange.test", name="r", value="eA==", encoding="base64")
        assert found["targets"] == ["r.unroutable"]
        assert found["failures"][0].startswith("r: json.total > 100: ")
        with pytest.raises(InvalidRequest, match="no base64"):
            fixture.operate("exchange.test", name="r", value="?", encoding="base64")

    def test_half_a_character(self, fixture: BrokerFixture) -> None:
        """JSON can say it; it is bytes like any others."""
        make(fixture, "r", "rule")
        add(fixture, "r", "t", rule="'h' in headers")
        found = fixture.operate("exchange.test", name="r", headers=[["h", "\ud800"]])
        assert found["targets"] == ["t"]

    def test_a_trial_is_by_what_there_is_now(self, fixture: BrokerFixture) -> None:
        """Though no table is made anew for it, and what failed before is over."""
        make(fixture, "r", "rule")
        binding = add(fixture, "r", "t", rule="json.total > 100")
        assert fixture.operate("exchange.test", name="r", key="k")["failures"]
        fixture.operate("binding.delete", exchange="r", id=binding)
        add(fixture, "r", "t", rule="key == 'k'")
        found = fixture.operate("exchange.test", name="r", key="k")
        assert (found["targets"], found["failures"]) == (["t"], [])

    def test_many_ways(self, fixture: BrokerFixture) -> None:
        """However many bindings take it, the answer is bounded, and the targets are all there."""
        for number in range(100):
            add(fixture, "x", "t", key=f"#.{number}.#")
        key = ".".join(str(number) for number in range(70))
        found = fixture.operate("exchange.test", name="x", key=key)
        assert (found["targets"], len(found["path"])) == (["t"], 70)

    @pytest.mark.parametrize("headers", [["a"], [["a", 1]], {"a": 1}, "a", [["a", "b", "c"]]])
    def test_headers(self, fixture: BrokerFixture, headers: object) -> None:
        """Headers that are none are refused."""
        with pytest.raises(InvalidRequest) as caught:
            fixture.operate("exchange.test", name="x", headers=headers)
        assert caught.value.data == {"field": "headers"}

    def test_who_may_ask(self, fixture: BrokerFixture) -> None:
        """Whoever may look may ask; nothing is published by it."""
        run = fixture.operations.run("exchange.test", {"name": "x"}, Caller(role="viewer"))
        assert outcome_of(run)["unroutable"]


class TestTopology:
    """Which exchanges and topics lead where."""

    def test_whole(self, fixture: BrokerFixture) -> None:
        """All exchanges with their targets and dead-letter topics; several bindings are one way."""
        make(fixture, "y", "fanout")
        first = add(fixture, "x", "y", key="eu.#")
        for number in range(5):
            add(fixture, "y", "t") if number == 0 else add(fixture, "x", "u", key=f"k{number}")
        found = fixture.operate("exchange.topology")
        assert [(row["name"], row["kind"]) for row in found["nodes"]] == [
            ("x", "exchange"),
            ("y", "exchange"),
            ("t", "topic"),
            ("u", "topic"),
            ("x.unroutable", "topic"),
            ("y.unroutable", "topic"),
        ]
        assert found["nodes"][0]["exchange_kind"] == "topic"
        edges = {(row["from"], row["to"]): row for row in found["edges"]}
        assert (edges["x", "y"]["id"], edges["x", "y"]["label"]) == (first, "eu.#")
        assert (edges["x", "u"]["id"], edges["x", "u"]["bindings"]) == (None, 4)
        assert edges["x", "u"]["label"].endswith(" and 1 more")
        assert edges["x", "x.unroutable"]["dead_letter"]
        assert found["left_out"] == {"nodes": 0, "edges": 0}

    def test_of_one(self, fixture: BrokerFixture) -> None:
        """Of one exchange there is what lies before and behind it, and nothing else."""
        for name in ("a", "b", "other"):
            make(fixture, name, "fanout")
        add(fixture, "a", "x")
        add(fixture, "a", "b")
        add(fixture, "x", "t", key="#")
        found = fixture.operate("exchange.topology", exchange="x")
        names = {row["name"] for row in found["nodes"]}
        assert names == {"a", "x", "t", "x.unroutable"}

    def test_too_many(self, fixture: BrokerFixture) -> None:
        """What is too many is left out and counted."""
        for number in range(MOST_NODES // 2 + 10):
            make(fixture, f"many{number:03}", "fanout")
        found = fixture.operate("exchange.topology")
        assert (len(found["nodes"]), len(found["edges"])) == (MOST_NODES, MOST_NODES // 2 - 11)
        assert found["left_out"] == {"nodes": 22, "edges": 22}
        assert len(found["edges"]) <= MOST_EDGES


def test_topics_that_go(fixture: BrokerFixture) -> None:
    """With a topic go its bindings, and those that lead to it."""
    add(fixture, "x", "t", key="a")
    add(fixture, "x", "u", key="a")
    fixture.operate("topic.delete", name="t")
    assert [row["target"] for row in fixture.operate("binding.list")["bindings"]] == ["u"]
    fixture.operate("topic.delete", name="x")
    assert fixture.operate("exchange.list")["exchanges"] == []


def test_delete(fixture: BrokerFixture) -> None:
    """An exchange that is deleted leaves its topic."""
    add(fixture, "x", "t", key="a")
    told = fixture.operate("exchange.delete", name="x", dry_run=True)
    assert (told["exchange"]["bindings"], told["dry_run"]) == (1, True)
    assert fixture.operate("exchange.delete", name="x")["exchange"]["name"] == "x"
    assert fixture.operate("topic.info", name="x")["topic"]["name"] == "x"
    assert fixture.operate("binding.list")["total"] == 0


def test_same_binding(fixture: BrokerFixture) -> None:
    """The same binding again is the one that there is."""
    first = fixture.operate("binding.add", exchange="x", target="t", key="#")
    again = fixture.operate("binding.add", exchange="x", target="t", key="#")
    assert (first["created"], again["created"]) == (True, False)
    assert again["binding"] == first["binding"]
    assert first["binding"]["id"] == binding_id("t", Terms(key="#"))


@pytest.mark.parametrize(
    "rule",
    [
        "__import__('os').system('x')",
        "().__class__.__bases__",
        "9**9**9",
        "key.matches('(a{1,100}){1,90}b')",
        "json.all(a, json.all(b, json.all(c, a == b && b == c)))",
        "[json].map(x, [x, x]).map(x, [x, x])",
    ],
)
def test_rules_that_would_do_harm(fixture: BrokerFixture, rule: str) -> None:
    """A rule that reaches out, or would take for ever, is refused; the broker goes on."""
    make(fixture, "r", "rule")
    with pytest.raises(InvalidRequest, match="the rule"):
        add(fixture, "r", "t", rule=rule)
    assert fixture.operate("binding.list")["total"] == 0
    assert fixture.operate("broker.info")["ready"]


def test_figures(fixture: BrokerFixture) -> None:
    """What brokers tell of their exchanges is summed up in lists and of single ones."""
    add(fixture, "x", "t", key="eu.#")
    row = fixture.operate("exchange.list")["exchanges"][0]
    assert (row["unroutable"], row["failed"], row["lag"], row["stuck"]) == (0, 0, 0, [])
    assert (row["in_s"], row["out_s"]) == (0, 0)
    found = fixture.operate("exchange.info", name="x")["exchange"]
    assert (found["lag"], found["silent"]) == (0, [])
