"""The table of operations: what it says of each, that it is true, and who may use which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.broker.groups.reading import GroupReader
from tests.fakes.broker import BrokerFixture, Connection, error_of, outcome_of
from tests.fakes.channels import FakeChannels
from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape
from tinymq.client.core.admin import HARMLESS
from tinymq.cluster.forwarding import Forwarding
from tinymq.errors import Forbidden, InvalidRequest, WireError
from tinymq.groups.values import Client
from tinymq.node import NODE_OPERATIONS
from tinymq.operation import ROLES, Operation, Role
from tinymq.operations import OPERATIONS, run_on_node
from tinymq.routing import Terms, binding_id
from tinymq.wire.messages import Member, Operate

BOUND = binding_id("t", Terms(key="eu.#"))
CHANNEL = {"topic": "t", "name": "work"}
SCHEDULE = {"name": "nightly", "topic": "t", "cron": "0 3 * * *", "headers": {"a": "b"}}
DELAYED = {"topic": "t", "partition": 0}
EVERY = list({**OPERATIONS, **NODE_OPERATIONS}.values())


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic of three records, and somebody connected."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", partitions=2)
    fixture.produce(b"a", b"b", b"c")
    fixture.node.channel_host = FakeChannels(fixture.broker)
    return fixture


def of(operation: Operation) -> str:
    """Name a case."""
    return operation.name


@pytest.mark.parametrize("operation", EVERY, ids=of)
def test_everything_is_said(operation: Operation) -> None:
    """Operations of people have all ways in, with texts for people; others have none."""
    assert operation.run is not None
    assert operation.public == (operation.name in PUBLIC)
    if not operation.public:
        assert (operation.http, operation.cli) == (None, None)
        return
    assert operation.http
    assert operation.cli
    assert operation.result
    texts = [operation.text, *(parameter.text for parameter in operation.parameters)]
    assert [text for text in texts if not text.endswith(".") or not text[0].isupper()] == []


@pytest.mark.parametrize("operation", EVERY, ids=of)
def test_schemas_are_schemas(operation: Operation) -> None:
    """What a parameter may be is told as JSON Schema, which takes the default."""
    for parameter in operation.parameters:
        schema = json.loads(json.dumps(parameter.check.schema))
        Draft202012Validator.check_schema(schema)
        assert parameter.check.must
        if not parameter.required:
            default = list(parameter.default) if parameter.default == () else parameter.default
            Draft202012Validator(schema).validate(default)


def test_ways_in_differ() -> None:
    """No two operations have the same route or the same command."""
    routes = [operation.http for operation in PUBLIC.values()]
    verbs = [operation.cli for operation in PUBLIC.values()]
    assert (len(set(routes)), len(set(verbs))) == (len(PUBLIC), len(PUBLIC))


def test_what_may_be_repeated() -> None:
    """Clients repeat exactly the operations that change nothing."""
    assert {name for name, each in PUBLIC.items() if not each.changes} == HARMLESS


def test_results_have_the_shape_that_is_told(fixture: BrokerFixture) -> None:
    """Every public operation gives exactly the fields of the table."""
    fixture.connect()
    number = fixture.operate("client.list")["clients"][0]["id"]
    broker = fixture.operate("broker.list")["brokers"][0]["name"]
    fixture.operate("meta.ensure_dead_letters", origin="t", name="t.work.dead")
    fixture.produce(b"x", b"y", topic="t.work.dead")
    GroupReader(fixture).commit(2)
    fixture.broker.coordinating.member(
        Member(group="team", member="m-1", topics=["t"]), Client("c", "p"), lambda found: None
    )
    fixture.broker.transacting.init_producer("bank", 1000, "", lambda found: None)
    fixture.clock.pump([0] * 4)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("topic.create", {"name": "new", "dry_run": True}),
        ("topic.create", {"name": "new", "config": {"storage": "memory"}}),
        ("topic.alter", {"name": "new", "partitions": 2}),
        ("topic.list", {}),
        ("topic.info", {"name": "t"}),
        ("topic.history", {"name": "new", "limit": 1}),
        ("topic.purge", {"name": "t", "before": 2}),
        ("topic.undo_purge", {"name": "t"}),
        ("topic.alter", {"name": "t", "config": {"retention.mode": "compact"}}),
        ("topic.compact", {"name": "t", "dry_run": True}),
        ("topic.alter", {"name": "t", "config": {"retention.mode": None}}),
        ("channel.create", {**CHANNEL, "dry_run": True}),
        ("channel.create", CHANNEL),
        ("channel.alter", {**CHANNEL, "config": {"attempts": 3}}),
        ("channel.list", {}),
        ("channel.info", CHANNEL),
        ("channel.members", CHANNEL),
        ("channel.peek", CHANNEL),
        ("inflight.list", {}),
        (
            "inflight.settle",
            {**CHANNEL, "partition": 0, "offsets": [0], "act": "requeue", "dry_run": True},
        ),
        ("channel.wake", {**CHANNEL, "partition": 0, "offsets": [0]}),
        ("channel.delay", {**CHANNEL, "partition": 0, "offsets": [0], "delay_ms": 5}),
        ("delayed.list", {"topic": "t", "channel": CHANNEL["name"]}),
        ("delayed.histogram", {"topic": "t", "channel": CHANNEL["name"]}),
        ("channel.pause", CHANNEL),
        ("channel.seek", {**CHANNEL, "to": "latest"}),
        ("channel.undo_seek", CHANNEL),
        ("channel.empty", CHANNEL),
        ("push.set", {**CHANNEL, "url": "https://example.com/hook", "dry_run": True}),
        ("push.set", {**CHANNEL, "url": "https://example.com/hook"}),
        ("push.list", {}),
        ("push.info", CHANNEL),
        ("push.pause", CHANNEL),
        ("push.resume", CHANNEL),
        ("push.test", {**CHANNEL, "dry_run": True}),
        ("push.delete", CHANNEL),
        ("group.list", {}),
        ("group.info", {"name": "g"}),
        ("group.seek", {"name": "g", "topic": "t", "to": "-1", "dry_run": True}),
        ("group.seek", {"name": "g", "topic": "t", "partition": 0, "to": "latest"}),
        ("group.undo_seek", {"name": "g"}),
        ("group.reset", {"name": "g"}),
        ("group.delete", {"name": "g"}),
        ("group.evict", {"name": "team", "member": "m-1", "dry_run": True}),
        ("message.life", {"topic": "t", "partition": 0, "offset": 1}),
        ("channel.delete", CHANNEL),
        ("schedule.create", {**SCHEDULE, "dry_run": True}),
        ("schedule.create", SCHEDULE),
        ("schedule.create", {**SCHEDULE, "value": "other"}),
        ("schedule.list", {}),
        ("schedule.info", {"name": "nightly"}),
        ("schedule.pause", {"name": "nightly"}),
        ("schedule.resume", {"name": "nightly"}),
        ("schedule.run", {"name": "nightly", "dry_run": True}),
        ("schedule.delete", {"name": "nightly"}),
        ("transaction.list", {}),
        ("transaction.list", {"state": "open"}),
        ("transaction.abort", {"transactional_id": "bank", "dry_run": True}),
        ("transaction.abort", {"transactional_id": "bank"}),
        ("delayed.list", {}),
        ("delayed.list", {"topic": "t"}),
        ("delayed.histogram", {}),
        ("delayed.cancel", {**DELAYED, "ids": [0]}),
        ("delayed.now", {**DELAYED, "ids": [0]}),
        ("delayed.move", {**DELAYED, "ids": [0], "delay_ms": 1000}),
        ("delayed.apply", {"act": "cancel", "topic": "t"}),
        ("dlq.list", {}),
        ("dlq.messages", {"target": "t.work.dead"}),
        ("dlq.redrive", {"target": "t.work.dead", "dry_run": True}),
        ("dlq.redrive", {"target": "t.work.dead", "offsets": ["0:0"]}),
        ("dlq.drop", {"target": "t.work.dead", "dry_run": True}),
        ("exchange.create", {"name": "x", "kind": "topic", "dry_run": True}),
        ("exchange.create", {"name": "x", "kind": "topic"}),
        ("exchange.alter", {"name": "x", "dead_letter": "nobody"}),
        ("binding.add", {"exchange": "x", "target": "t", "key": "eu.#"}),
        ("binding.list", {}),
        ("exchange.list", {}),
        ("exchange.info", {"name": "x"}),
        ("exchange.test", {"name": "x", "key": "eu.de", "headers": {"a": "b"}, "value": "{}"}),
        ("exchange.topology", {}),
        ("binding.delete", {"exchange": "x", "id": BOUND, "dry_run": True}),
        ("exchange.delete", {"name": "x", "dry_run": True}),
        ("topic.delete", {"name": "t"}),
        ("broker.list", {}),
        ("broker.info", {}),
        ("broker.drain", {"broker": broker, "dry_run": True}),
        ("client.list", {}),
        ("client.info", {"broker": broker, "id": number}),
        ("client.kick", {"broker": broker, "id": number, "dry_run": True}),
        ("cluster.watch", {}),
        ("cluster.watch", {"revision": 1}),
        ("lookup.list", {}),
        ("lookup.find", {"name": "t"}),
    ]
    for name, arguments in calls:
        result = fixture.carry_out(name, **arguments)
        Draft202012Validator(shape(**PUBLIC[name].result)).validate(json.loads(json.dumps(result)))
    assert {name for name, _ in calls} | {"broker.log_level", "delayed.get"} == set(PUBLIC)


class TestRoles:
    """A role that is too low is refused, whatever way it comes."""

    @pytest.mark.parametrize("role", ROLES)
    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=of)
    def test_wire(self, fixture: BrokerFixture, operation: Operation, role: Role) -> None:
        """Over the wire each operation is refused or let in as its row of the table says."""
        connection: Connection = fixture.connect()
        connection.protocol.caller.role = role
        # An argument that nothing takes: who is let in is told so, and nothing happens.
        frame = connection.ask(Operate(name=operation.name, arguments={"?": 1}))
        refused = ROLES.index(role) < ROLES.index(operation.role)
        expected: type[WireError] = Forbidden if refused else InvalidRequest
        assert type(error_of(frame)) is expected

    @pytest.mark.parametrize("role", ROLES)
    @pytest.mark.parametrize("operation", EVERY, ids=of)
    def test_at_a_broker(self, fixture: BrokerFixture, operation: Operation, role: Role) -> None:
        """A broker refuses what it would forward, as the MetaServer would."""
        asked: list[str] = []
        forwarding = Forwarding(fixture.broker, fixture.node, _Meta(asked))  # type: ignore[arg-type]
        refused = ROLES.index(role) < ROLES.index(operation.role)
        with pytest.raises(Forbidden if refused else InvalidRequest):
            outcome_of(forwarding.run(operation.name, {"?": 1}, Caller(role=role)))
        assert not (refused and asked)

    def test_what_a_broker_does_itself(self, fixture: BrokerFixture) -> None:
        """What a broker tells of itself needs the role of the operation, not that of its parts."""
        forwarding = Forwarding(fixture.broker, fixture.node, _Meta([]))  # type: ignore[arg-type]
        told = outcome_of(forwarding.run("broker.info", {}, Caller(role="viewer")))
        assert told["ready"]

    def test_what_is_not_known(self, fixture: BrokerFixture) -> None:
        """A broker does not forward an operation that it does not know."""
        asked: list[str] = []
        forwarding = Forwarding(fixture.broker, fixture.node, _Meta(asked))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            outcome_of(forwarding.run("topic.explode", {}, Caller(role="admin")))
        assert asked == []

    def test_text(self, fixture: BrokerFixture) -> None:
        """The refusal says which role is needed, before any argument is looked at."""
        with pytest.raises(Forbidden) as caught:
            outcome_of(fixture.operations.run("topic.delete", {}, Caller(role="operator")))
        assert str(caught.value) == "topic.delete needs the role admin; yours is operator"
        assert caught.value.data == {"needed": "admin", "role": "operator"}
        with pytest.raises(Forbidden):
            outcome_of(run_on_node(fixture.node, "node.info", {}, Caller(role="admin")))


class _Meta:
    """A MetaServer that takes no argument."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    async def ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Note what was asked."""
        self._asked.append(name)
        raise InvalidRequest("no", field="?")
