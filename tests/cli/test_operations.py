"""Every operation has its verb, and every verb the parameters of its operation."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker, MemoryClient
from tests.fakes.memory_cluster import broker_row
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import WHOLE
from tinymq.cli import operation as verbs
from tinymq.cli.app import VERBS, root
from tinymq.cli.session import Session
from tinymq.operation import DRY, WHICH, Operation, Parameter
from tinymq.wire.fields import I64, array, boolean, choice, integer, mapping, optional, text

#: What a verb may have beside the parameters of its operation: how it asks, chooses and shows.
ITS_OWN = {
    *("output", "columns", "sort", "limit", "url", "timeout", "yes"),
    *("pattern", "only", "most", "slow", "places"),
    *("length", "where", "older", "act", "delay", "extend"),
    *("rate", "since", "until"),
}
#: Shortcuts of single verbs.
SHORTCUTS = {"topic.info": {"partitions"}, "topic.purge": {"undo"}, "topic.alter": {"unset"}}
_FIT = {"topic", "partition", "key", "schedule", "after", "every"}
SHORTCUTS |= {f"delayed.{act}": _FIT for act in ("cancel", "now", "move")}
SHORTCUTS |= {"channel.info": {"partitions"}, "channel.alter": {"unset"}}
SHORTCUTS |= {"push.set": {"no_headers", "new_secret"}}
SHORTCUTS |= {"exchange.info": {"bindings"}, "exchange.alter": {"default"}}


def verb_of(operation: Operation) -> click.Command:
    """The command of an operation."""
    found: click.Command = root
    for word in operation.cli or ():
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), word)
        assert below is not None, operation.cli
        found = below
    return found


@pytest.mark.parametrize("operation", PUBLIC.values(), ids=lambda each: each.name)
def test_verbs_cover_parameters(operation: Operation) -> None:
    """The verb is there, takes each parameter, and nothing else but how it is shown."""
    verb = verb_of(operation)
    covers = vars(verb.callback)["covers"]
    taken = {parameter.name for parameter in verb.params}
    covered = covers[operation.name]
    assert list(covered) == [each.name for each in operation.parameters]
    assert set(covered.values()) <= taken
    others = taken - set(covered.values()) - ITS_OWN
    assert others == SHORTCUTS.get(operation.name, set())


@pytest.mark.parametrize("operation", PUBLIC.values(), ids=lambda each: each.name)
def test_options_say_what_the_table_says(operation: Operation) -> None:
    """Texts and defaults of options are those of the table."""
    verb = verb_of(operation)
    taken = {parameter.name: parameter for parameter in verb.params}
    covered = vars(verb.callback)["covers"][operation.name]
    assert verb.help
    for parameter in operation.parameters:
        option = taken[covered[parameter.name]]
        if covered[parameter.name] != parameter.name or not isinstance(option, click.Option):
            continue
        if parameter.name in {"limit", "before"}:  # all of a list; a time as well
            continue
        assert option.help == parameter.text
        assert option.default == parameter.default
        assert option.opts[0] == f"--{parameter.name.replace('_', '-')}"


@pytest.mark.parametrize("operation", PUBLIC.values(), ids=lambda each: each.name)
def test_usage_is_that_of_the_table(operation: Operation) -> None:
    """The command that documents name has as many arguments as the verb."""
    words = operation.command.split()[1 + len(operation.cli or ()) :]
    arguments = [each for each in verb_of(operation).params if isinstance(each, click.Argument)]
    assert len(words) == len(arguments)


# --- verbs that nobody wrote ---------------------------------------------------------

WAREHOUSE = Operation(
    "shelf.move",
    "admin",
    True,
    (
        WHICH,
        Parameter("shelf", integer(1, 9), text="Which shelf."),
        Parameter("speed", choice("slow", "fast"), default="slow", text="How fast it goes."),
        Parameter("weight_g", optional(integer(0, I64)), default=None, text="Weight in grams."),
        Parameter("note", text(20), default="", text="For people."),
        Parameter("careful", boolean, default=False, text="Whether it breaks easily."),
        Parameter("labels", mapping, default={}, text="Names and values."),
        Parameter("tags", array(text(9), 3), default=(), text="Some words."),
        DRY,
    ),
    text="Move something to a shelf.",
    cli=("shelf", "move"),
    result={"moved": WHOLE},
)


@pytest.fixture
def session(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session with a broker that knows one operation more."""
    monkeypatch.setitem(PUBLIC, WAREHOUSE.name, WAREHOUSE)
    broker.answers[WAREHOUSE.name] = [{"moved": 3, "place": {"shelf": 2}}]
    client: Any = MemoryClient(broker)
    return Session(lambda url, timeout: client)


def shelf(session: Session, *arguments: str) -> click.testing.Result:
    """Run the verb that nobody wrote."""
    return CliRunner().invoke(root, ["shelf", "move", *arguments], obj=session)


def test_a_verb_that_nobody_wrote(broker: MemoryBroker, session: Session) -> None:
    """An operation without a verb of its own has one all the same, and arguments of every type."""
    result = shelf(
        session,
        *("box", "2", "--speed", "fast", "--weight-g", "70", "--careful", "--yes", "-o", "json"),
        *("--labels", '{"a": 1}', "--tags", '["x"]'),
    )
    assert json.loads(result.output) == {"moved": 3, "place": {"shelf": 2}}
    (call,) = broker.calls
    assert call[1] == {
        "name": "box",
        "shelf": 2,
        "speed": "fast",
        "weight_g": 70,
        "note": "",
        "careful": True,
        "labels": {"a": 1},
        "tags": ["x"],
        "dry_run": False,
    }
    assert WAREHOUSE.arguments(call[1]) == call[1]


def test_its_facts_and_its_help(session: Session) -> None:
    """Its result is shown as facts, and its help is the table's."""
    assert shelf(session, "box", "2", "--dry-run").output == "moved        3\nplace.shelf  2\n"
    told = " ".join(shelf(session, "--help").output.split())
    for parameter in WAREHOUSE.parameters:
        assert parameter.required or parameter.text in told
    assert "Move something to a shelf." in told
    assert "shelf" in CliRunner().invoke(root, ["--help"], obj=session).output


@pytest.mark.parametrize(
    "arguments",
    [
        ("box",),
        ("box", "10", "--yes"),
        ("box", "2", "--speed", "high", "--yes"),
        ("box", "2", "--weight-g", "-1", "--yes"),
        ("box", "2", "--labels", "{", "--yes"),
        ("box", "2"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    broker: MemoryBroker, session: Session, arguments: tuple[str, ...]
) -> None:
    """What the table does not take is refused before anybody is asked; so is a change unasked."""
    assert shelf(session, *arguments).exit_code == 2
    assert broker.calls == []


def test_nothing_is_missing() -> None:
    """Today every operation has a verb of its own."""
    for word in VERBS:
        found = root.get_command(click.Context(root), word)
        if isinstance(found, click.Group):
            assert verbs.missing((word,), found.commands) == {}


def test_more_of_the_verbs(broker: MemoryBroker, run: Run) -> None:
    """Options that came from the table reach the broker."""
    wrong = "0" * 32
    assert run("topic", "rm", "orders", "--id", wrong, "--yes").exit_code == 1
    assert broker.calls[-1][1]["id"] == wrong
    assert run("topic", "rm", "orders", "audit", "--id", wrong, "--yes").exit_code == 2
    assert run("topic", "ls", "--after", "audit", "-o", "name").output == "orders\n"
    run("topic", "purge", "orders", "--yes")
    assert "would bring back" in run("topic", "undo-purge", "orders", "--dry-run").output
    assert "holds 0 messages again" in run("topic", "undo-purge", "orders", "-p", "1").output
    broker.cluster.brokers = [broker_row(2, "broker-2")]
    assert "partitions again" in run("node", "drain", "broker-2", "--undo").output
