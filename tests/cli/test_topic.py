"""`tinymq topic` and the forms of its output."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from click.testing import _NamedTextIOWrapper

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli import topic


def test_list_is_aligned_in_a_pipe(broker: MemoryBroker, run: Run) -> None:
    """A pipe gets aligned lines without borders or colour."""
    broker.append("orders", b"x" * 2048)
    result = run("topic", "ls")
    assert result.output == (
        "NAME    PARTITIONS  MESSAGES    BYTES\n"
        "audit            1         0      0 B\n"
        "orders           2         1  2.0 KiB\n"
    )
    assert result.exit_code == 0


def test_wide_list_has_all_columns(run: Run) -> None:
    """The wide table adds what the plain one leaves out."""
    (heading, first, _) = run("topic", "ls", "-o", "wide").output.splitlines()
    assert heading.split() == [
        "NAME", "PARTITIONS", "MESSAGES", "BYTES", "SYNC", "STORAGE", "CREATED", "ID",
    ]  # fmt: skip
    assert "2025-06-15T15:06:40.001Z" in first


def test_json_is_the_answer_of_the_api(run: Run) -> None:
    """JSON has the API's keys, with each time once more in ISO-8601."""
    document = json.loads(run("topic", "ls", "-o", "json").output)
    assert (document["total"], document["more"]) == (2, False)
    assert document["topics"][0] == {
        "name": "audit",
        "id": f"{1:032x}",
        "created_ms": 1_750_000_000_001,
        "created": "2025-06-15T15:06:40.001Z",
        "config": {"sync": "always", "storage": "disk"},
        "messages": 0,
        "bytes": 0,
        "partitions": 1,
    }


def test_other_forms_of_a_list(run: Run) -> None:
    """There is one object a line, CSV with raw values, and bare names."""
    lines = run("topic", "ls", "-o", "ndjson").output.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["audit", "orders"]
    rows = list(csv.DictReader(io.StringIO(run("topic", "ls", "-o", "csv").output)))
    assert rows[1]["bytes"] == "0"
    assert rows[1]["created"] == "2025-06-15T15:06:40.000Z"
    assert run("topic", "ls", "-o", "name").output == "audit\norders\n"


def test_list_is_filtered_and_cut(broker: MemoryBroker, run: Run) -> None:
    """A filter, a limit and an order narrow the list down."""
    broker.append("audit", b"1")
    assert run("topic", "ls", "--filter", "o*", "-o", "name").output == "orders\n"
    assert run("topic", "ls", "--limit", "1", "-o", "name").output == "audit\n"
    broker.append("orders", b"1")
    broker.append("orders", b"2")
    by_messages = run("topic", "ls", "--sort", "messages", "--limit", "1", "-o", "json")
    document = json.loads(by_messages.output)
    assert [row["name"] for row in document["topics"]] == ["orders"]
    assert document["more"] is True


def test_list_goes_on_page_after_page(broker: MemoryBroker, run: Run) -> None:
    """More topics than a page holds are all listed."""
    for number in range(1001):
        broker.make(f"many-{number:04d}")
    names = run("topic", "ls", "--filter", "many-*", "-o", "name").output.splitlines()
    assert len(names) == 1001
    assert [name for name, _ in broker.calls] == ["topic.list"] * 3


def test_columns_are_chosen(run: Run) -> None:
    """Columns come as they were asked for, and an unknown one is a usage error."""
    assert run("topic", "ls", "--columns", "sync,name").output.splitlines() == [
        "SYNC    NAME",
        "always  audit",
        "always  orders",
    ]
    result = run("topic", "ls", "--columns", "colour")
    assert result.exit_code == 2
    assert "there is no column 'colour'" in result.stderr


def test_create(broker: MemoryBroker, run: Run) -> None:
    """A topic is made with its settings; made again it is no error."""
    result = run("topic", "create", "new", "-p", "3", "-s", "sync=os")
    assert result.output == "made new with 3 partitions\n"
    assert broker.calls == [
        (
            "topic.create",
            {"name": "new", "partitions": 3, "config": {"sync": "os"}, "dry_run": False},
        )
    ]
    assert run("topic", "create", "new").output == "exists already: new with 3 partitions\n"
    created = json.loads(run("topic", "create", "new", "-o", "json").output)["created"]
    assert created is False


def test_create_dry_run(broker: MemoryBroker, run: Run) -> None:
    """A dry run says what would be made, and makes nothing."""
    assert run("topic", "create", "new", "--dry-run").output == "would make new with 1 partition\n"
    assert "new" not in broker.topics


def test_refused_create(run: Run) -> None:
    """What the broker refuses has status 1 and says what to do."""
    result = run("topic", "create", "orders", "-p", "5")
    assert (result.exit_code, result.output) == (
        1,
        (
            "error: topic orders exists with other partitions "
            "(hint: `tinymq topic edit` changes settings)\n"
        ),
    )


def test_history(broker: MemoryBroker, run: Run) -> None:
    """Who changed what: the newest first, each setting with what it was before."""
    first = {"at_ms": 1_750_000_000_000, "who": "", "peer": "", "act": "created", "note": ""}
    rows = [{"name": "partitions", "before": None, "after": "2"}]
    then = {**first, "who": "ana", "peer": "10.0.0.7:5", "act": "altered"}
    more = [{"name": "sync", "before": "always", "after": "os"}]
    changes = [{**then, "settings": more}, {**first, "settings": rows}]
    broker.answers["topic.history"] = [{"changes": changes, "more": False, "after": None}]
    assert [line.split()[1:] for line in run("topic", "history", "orders").output.splitlines()] == [
        ["WHO", "FROM", "DID", "WHAT"],
        ["ana", "10.0.0.7:5", "altered", "sync", "always", "->", "os"],
        ["first", "use", "-", "created", "partitions", "=", "2"],
    ]


def test_info(broker: MemoryBroker, run: Run) -> None:
    """Facts come under one another; partitions on request."""
    broker.append("orders", b"x", partition=1)
    text = run("topic", "info", "orders", "-p").output
    assert text.splitlines()[0] == "name        orders"
    assert text.splitlines()[-1].split() == [
        "1", "0", "1", "1", "1", "B",
        "2025-06-15T15:06:41.000Z", "2025-06-15T15:06:41.000Z", "online", "memory",
    ]  # fmt: skip
    document = json.loads(run("topic", "info", "orders", "-o", "json").output)
    assert document["partitions"][1]["end"] == 1
    rows = run("topic", "info", "orders", "-p", "-o", "csv").output.splitlines()
    assert rows[0].startswith("partition,start,end")
    assert run("topic", "info", "orders", "-o", "name").output == "orders\n"


def test_silent_brokers(broker: MemoryBroker, run: Run) -> None:
    """What a silent broker holds is unknown and not counted, and that is said."""
    broker.append("orders", b"x", partition=1)
    broker.topics["orders"].silent = {0}
    result = run("topic", "info", "orders", "-p")
    lines = result.stdout.splitlines()
    assert lines[-2].split() == [*"0------", "offline:", "far", "does", "not", "answer", "far"]
    assert lines[-1].split()[:4] == ["1", "0", "1", "1"]
    assert result.stderr == "broker far does not answer; what it holds is not counted\n"
    document = json.loads(run("topic", "info", "orders", "-o", "json").stdout)
    assert document["silent"] == ["far"]
    broker.answers["topic.list"] = [{"topics": [], "more": False, "total": 0, "silent": ["far"]}]
    listed = run("topic", "ls", "-o", "json")
    assert json.loads(listed.stdout)["silent"] == ["far"]
    assert listed.stderr == result.stderr


def test_edit(broker: MemoryBroker, run: Run) -> None:
    """Changes are shown as old and new; a setting can return to its default."""
    result = run("topic", "edit", "orders", "-s", "sync=os", "--unset", "retention.ms")
    assert result.output == "SETTING  OLD     NEW\nsync     always  os\n"
    assert broker.calls[-1][1]["config"] == {"retention.ms": None, "sync": "os"}
    assert run("topic", "edit", "orders", "-s", "sync=os").output == (
        "orders has these settings already; nothing changed\n"
    )
    assert run("topic", "edit", "orders").exit_code == 2


def test_settings_in_units(broker: MemoryBroker, run: Run) -> None:
    """Settings that count milliseconds or bytes take durations and sizes; none stays none."""
    result = run(
        *("topic", "edit", "orders"),
        *("-s", "retention.ms=7d", "-s", "segment.bytes=64MB", "-s", "undo.ms=1500"),
        *("-s", "memory.bytes=none", "-s", "sync=os"),
    )
    assert result.exit_code == 0
    assert broker.calls[-1][1]["config"] == {
        "retention.ms": "604800000",
        "segment.bytes": "67108864",
        "undo.ms": "1500",
        "memory.bytes": "none",
        "sync": "os",
    }
    wrong = run("topic", "create", "new", "-s", "retention.ms=soon")
    assert wrong.exit_code == 2
    assert "retention.ms: 'soon' is no duration; write 250ms" in wrong.stderr


def test_none_is_shown_in_one_way(broker: MemoryBroker, run: Run) -> None:
    """A setting without a value is none: in facts, as old and as new, in tables and CSV."""
    settings: dict[str, Any] = {"retention.ms": None, "retention.bytes": 5}
    broker.make("t", **settings)
    facts = run("topic", "info", "t").output
    assert "retention.ms     none\n" in facts
    edits = ("topic", "edit", "t", "-s", "retention.ms=1s", "--dry-run")
    assert run(*edits).output.splitlines()[1].split() == ["retention.ms", "none", "1000"]
    unset = ("topic", "edit", "orders", "-s", "sync=os", "--dry-run", "-o", "csv")
    assert run(*unset).output.splitlines()[1] == "sync,always,os"
    broker.topics["t"].config["retention.ms"] = 1000
    gone = run("topic", "edit", "t", "--unset", "retention.ms", "-o", "csv").output
    assert gone.splitlines()[1] == "retention.ms,1000,none"


def test_remove_asks_for_yes_where_nobody_can_be_asked(broker: MemoryBroker, run: Run) -> None:
    """Without a terminal and without --yes nothing is removed."""
    result = run("topic", "rm", "orders")
    assert result.exit_code == 2
    assert "give --yes" in result.stderr
    assert "orders" in broker.topics


def test_remove(broker: MemoryBroker, run: Run) -> None:
    """With --yes topics are removed, and a dry run removes nothing."""
    broker.append("orders", b"x")
    dry = run("topic", "rm", "orders", "--dry-run")
    assert dry.output == "would remove orders with 1 message (1 B)\n"
    assert run("topic", "rm", "orders", "audit", "--yes").output == (
        "removed orders with 1 message (1 B)\nremoved audit with 0 messages (0 B)\n"
    )
    assert broker.topics == {}


def test_remove_with_the_name_typed(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the topic's name has to be typed."""
    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda stream: True, raising=False)
    wrong = run("topic", "rm", "orders", stdin="order\n")
    assert wrong.exit_code == 1
    assert "nothing was changed" in wrong.stderr
    assert "orders" in broker.topics
    right = run("topic", "rm", "orders", stdin="orders\n")
    assert right.exit_code == 0
    assert "orders" not in broker.topics


def test_purge_and_undo(broker: MemoryBroker, run: Run) -> None:
    """A purge says until when it can be undone, and can be."""
    for _ in range(5):
        broker.append("audit", b"xy")
    assert run("topic", "purge", "audit", "--before", "2", "--yes").output == (
        "removed 2 messages (4 B) of audit; --undo brings it back until 2025-06-15T15:16:40.000Z\n"
    )
    assert run("topic", "purge", "audit", "--undo", "--dry-run").output == (
        "would bring back what the last purge of audit took\n"
    )
    assert run("topic", "purge", "audit", "--undo").output == "audit holds 5 messages again\n"
    assert run("topic", "purge", "audit", "--undo").exit_code == 1


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--keep", "3"], {"keep": 3}),
        (["--before", "-3"], {"keep": 3}),
        (["--before", "@1750000000000"], {"before_ms": 1_750_000_000_000}),
        (["--before", "latest"], {}),
        (["-p", "1"], {"partition": 1}),
    ],
)
def test_purge_bounds(
    broker: MemoryBroker, run: Run, options: list[str], arguments: dict[str, int]
) -> None:
    """What is purged is said by count, offset, time or partition."""
    assert run("topic", "purge", "orders", "--dry-run", *options).exit_code == 0
    name, given = broker.calls[-1]
    assert (name, given) == (
        "topic.purge",
        {"name": "orders", "dry_run": True} | arguments,
    )


def test_purge_refuses_two_bounds(run: Run) -> None:
    """Two bounds at once, or a bound for an undo, are a usage error."""
    assert run("topic", "purge", "audit", "--keep", "1", "--before", "1").exit_code == 2
    assert run("topic", "purge", "audit", "--undo", "--keep", "1").exit_code == 2


def test_a_plan_as_json(run: Run) -> None:
    """A plan has the API's keys."""
    document = json.loads(run("topic", "purge", "audit", "--dry-run", "-o", "json").output)
    assert document["plan"]["messages"] == 0
    assert document["undo_until"] == "2025-06-15T15:16:40.000Z"


@pytest.mark.parametrize(
    "name", ["..", ".", "../../x", "/etc/x", "a/../b", "C:\\x", "%2e%2e%2f", "", "x" * 201, "ä"]
)
@pytest.mark.parametrize(
    "verb", [["topic", "create"], ["topic", "info"], ["pub"], ["consume", "-e"], ["tail"]]
)
def test_names_that_break_the_rule(run: Run, verb: list[str], name: str) -> None:
    """A bad name is refused by every verb, in the same words, with status 1."""
    extra = ["value"] if verb == ["pub"] else []
    result = run(*verb, "--", name, *extra)
    if verb == ["tail"] and "/" in name:
        assert result.exit_code == 2
    else:
        assert result.exit_code == 1
        assert "a name is 1 to 200 bytes" in result.stderr


@pytest.mark.parametrize("letter", ["a", "Z", "0", "_", "-", "a.", "stats", "view", "pause"])
def test_every_allowed_letter(broker: MemoryBroker, run: Run, letter: str) -> None:
    """Names of every allowed letter work, even one that looks like an option."""
    assert run("topic", "create", "--", letter).exit_code == 0
    assert run("topic", "info", "--", letter).exit_code == 0
    assert run("pub", "--", letter, "value").exit_code == 0
    assert run("consume", "-e", "--", letter).output == "value\n"
    assert run("topic", "rm", "--yes", "--", letter).exit_code == 0


def test_what_is_held_back() -> None:
    """The state of a partition says for which channel files stay that would go."""
    held = {"channel": "work", "offset": 5, "bytes": 2048, "since_ms": 1, "refusing": True}
    row = {"state": "online", "reason": "", "held": held}
    told = topic._state(row)
    assert told.startswith("online: holds 2.0 KiB since 1970-01-01")
    assert told.endswith("for work, refuses producers")
