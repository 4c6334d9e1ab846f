"""`tinymq channel`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_channels import NOW_MS, MemoryChannel
from tinymq.channelpolicy import ChannelPolicy
from tinymq.cli import channel as verbs
from tinymq.cli import paging


@pytest.fixture
def work(broker: MemoryBroker) -> MemoryChannel:
    """Return a channel with six messages left to do."""
    return broker.channels.make("orders", "work", cursor=4, consumers=2)


def told(run: Run, *words: str) -> str:
    """Run a verb on the channel, which must end well."""
    result = run("channel", *words[:1], "orders", "work", *words[1:])
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def test_list(broker: MemoryBroker, run: Run, work: MemoryChannel) -> None:
    """A list has what each channel has to do, and whether it is paused."""
    paused = {"since_ms": NOW_MS, "until_ms": None, "reason": "upgrade"}
    broker.channels.make("audit", "copy", paused=paused)
    assert [line.split() for line in run("channel", "ls").output.splitlines()] == [
        ["TOPIC", "CHANNEL", "READY", "IN-FLIGHT", "WAITING", "LAG", "AGE", "CONSUMERS", "STATE"],
        ["audit", "copy", "10", "0", "0", "10", "2s", "0", "paused:", "upgrade"],
        ["orders", "work", "6", "0", "0", "6", "2s", "2", "consuming"],
    ]
    heading = run("channel", "ls", "-o", "wide").output.splitlines()[0].split()
    assert heading[-6:] == ["PARKED", "GIVEN-UP", "ORDER", "DELIVERY", "CREATED", "WHY"]
    assert run("channel", "ls", "-t", "orders", "-o", "name").output == "orders/work\n"
    assert run("channel", "ls", "--filter", "c*", "--columns", "channel,lag").output.split() == [
        *("CHANNEL", "LAG", "copy", "10"),
    ]


def test_list_goes_on_page_after_page(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More channels than a page holds are all listed; a limit cuts them."""
    monkeypatch.setattr(paging, "PAGE", 2)
    for number in range(5):
        broker.channels.make("orders", f"c{number}")
    names = run("channel", "ls", "-o", "name").output.split()
    assert names == [f"orders/c{each}" for each in range(5)]
    assert [call["limit"] for _, call in broker.calls] == [2, 2, 2]
    document = json.loads(run("channel", "ls", "--limit", "3", "-o", "json").output)
    assert [row["name"] for row in document["channels"]] == ["c0", "c1", "c2"]
    assert (document["more"], document["total"], document["after"]) == (True, 5, "orders/c2")


def test_create(broker: MemoryBroker, run: Run) -> None:
    """A channel is made with its settings; made again it is no error."""
    settings = ("-s", "order=key", "-s", "lease.ms=2m", "--start", "7")
    assert told(run, "create", *settings, "--dry-run") == "would make orders/work\n"
    assert broker.channels.found == {}
    assert told(run, "create", *settings) == "made orders/work\n"
    made = broker.channels.find("orders", "work")
    assert (made.policy, made.start) == (ChannelPolicy(order="key", lease_ms=120_000), 7)
    assert told(run, "create") == "exists already: orders/work\n"
    assert json.loads(told(run, "create", "-o", "json"))["created"] is False
    assert told(run, "create", "-o", "csv").splitlines()[1].startswith("orders,work,10,")


def test_a_dry_run_as_csv(run: Run) -> None:
    """What is not there yet has no counts."""
    assert told(run, "create", "--dry-run", "-o", "csv").splitlines()[1].startswith("orders,work,,")


def test_info(run: Run, work: MemoryChannel) -> None:
    """Facts and settings come under one another; partitions on request."""
    lines = told(run, "info", "-p").splitlines()
    assert lines[0].split() == ["topic", "orders"]
    facts = dict(line.split(maxsplit=1) for line in lines[1:] if len(line.split()) > 1)
    assert facts["lag"] == "6, oldest 2s, -2.0/s, clear in 3s"
    assert (facts["state"], facts["finished"]) == ("consuming", "1.5/s")
    assert facts["backoff"] == "1s 5s 30s 2m 10m"
    assert lines[-1].split() == ["0", "4", "4", "10", "6", "0", "0", "6", "2s", "ok"]
    assert json.loads(told(run, "info", "-o", "json"))["lag"] == 6
    assert told(run, "info", "-o", "name") == told(run, "create", "-o", "name") == "orders/work\n"
    assert told(run, "info", "-p", "-o", "csv").splitlines()[0].startswith("partition,floor,cursor")


def test_a_silent_broker(run: Run, work: MemoryChannel) -> None:
    """What a silent broker knows is unknown, and that is said."""
    work.silent = True
    result = run("channel", "info", "orders", "work", "-p")
    assert "offline: far does not answer" in result.stdout
    assert result.stderr == "broker far does not answer; what it holds is not counted\n"
    assert run("channel", "ls").stderr == result.stderr


def test_nothing_there(run: Run) -> None:
    """A channel that there is not ends with status 1 and says how to find others."""
    result = run("channel", "info", "orders", "none")
    assert result.exit_code == 1
    assert "`tinymq channel ls` lists the channels" in result.stderr


def test_edit(run: Run, work: MemoryChannel) -> None:
    """Changes are shown as old and new; a setting can return to its default."""
    text = told(run, "edit", "-s", "attempts=3", "-s", "backoff=1s 2s")
    assert [line.split(maxsplit=2) for line in text.splitlines()] == [
        ["SETTING", "OLD", "NEW"],
        ["attempts", "10", "3"],
        ["backoff", "1s", "5s 30s 2m 10m  1s 2s"],
    ]
    assert work.policy.attempts == 3
    assert told(run, "edit", "-s", "attempts=3").endswith("already; nothing changed\n")
    told(run, "edit", "--unset", "attempts")
    assert work.policy.attempts == 10
    assert run("channel", "edit", "orders", "work").exit_code == 2


def test_remove(broker: MemoryBroker, run: Run, work: MemoryChannel) -> None:
    """Removing says what is left to do, and wants a yes."""
    assert told(run, "rm", "--dry-run") == ("would remove orders/work with 6 messages left to do\n")
    assert run("channel", "rm", "orders", "work").exit_code == 2
    assert broker.channels.found
    assert told(run, "rm", "--yes") == "removed orders/work with 6 messages left to do\n"
    assert broker.channels.found == {}


def test_pause(run: Run, work: MemoryChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel is paused, for a while if wanted, and goes on."""
    monkeypatch.setattr(verbs, "now_ms", lambda: NOW_MS)
    assert told(run, "pause", "--dry-run") == "orders/work would be paused\n"
    assert "consuming" in told(run, "info")
    text = told(run, "pause", "--for", "10m", "--reason", "upgrade")
    assert text == "orders/work is paused\n"
    assert "paused until 2025-06-15T15:16:40.000Z: upgrade" in told(run, "info")
    assert told(run, "pause") == "orders/work was paused already\n"
    assert told(run, "resume", "--dry-run") == "orders/work would be going on\n"
    assert told(run, "resume") == "orders/work is going on\n"
    assert told(run, "pause", "--undo") == "orders/work was going on already\n"
    assert work.paused is None
    assert run("channel", "pause", "orders", "work", "--undo", "--for", "1m").exit_code == 2


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        ("earliest", {"to": "earliest"}),
        ("latest", {"to": "latest"}),
        ("7", {"to": 7}),
        ("@2025-06-15T15:00:00Z", {"time_ms": 1_749_999_600_000}),
    ],
)
def test_where_a_seek_goes(
    broker: MemoryBroker,
    run: Run,
    work: MemoryChannel,
    where: str,
    arguments: dict[str, str | int],
) -> None:
    """A place is an end, an offset or a time."""
    told(run, "seek", "--to", where, "-p", "0", "--yes")
    _, sent = broker.calls[-1]
    assert sent == {
        "topic": "orders",
        "name": "work",
        "partition": 0,
        "dry_run": False,
        **arguments,
    }


def test_seek(run: Run, work: MemoryChannel) -> None:
    """A seek says what it does, wants a yes, and can be taken back."""
    assert told(run, "seek", "--to", "7", "--dry-run") == (
        "orders/work: 3 messages would be settled, 0 brought back, 2 taken from consumers\n"
    )
    assert run("channel", "seek", "orders", "work", "--to", "7").exit_code == 2
    assert work.cursor == 4
    work.consumers = 0
    assert told(run, "seek", "--to", "3", "--yes", "-o", "wide").splitlines()[::2] == [
        "orders/work: 0 messages were settled, 1 brought back",
        "        0       4           3        0        1     0",
    ]
    assert told(run, "undo-seek", "--dry-run") == (
        "would take the last seek of orders/work back on 1 partition\n"
    )
    assert told(run, "undo-seek") == "orders/work has 6 messages left to do again\n"
    assert run("channel", "undo-seek", "orders", "work").exit_code == 1


@pytest.mark.parametrize("where", [(), ("--to", "-5"), ("--to", "middle")])
def test_a_seek_to_nowhere(
    broker: MemoryBroker, run: Run, work: MemoryChannel, where: tuple[str, ...]
) -> None:
    """A place that is none is a usage error, before anybody is asked."""
    assert run("channel", "seek", "orders", "work", *where, "--yes").exit_code == 2
    assert broker.calls == []


def test_purge(run: Run, work: MemoryChannel) -> None:
    """Purging settles everything, and can be seen as JSON."""
    plan = json.loads(told(run, "purge", "--yes", "-o", "json"))["plan"]
    assert (plan["skipped"], work.cursor) == (6, 10)


MEMBER: dict[str, Any] = {
    "broker": "b1",
    "broker_id": 1,
    "client": 7,
    "client_id": "mailer",
    "address": "10.0.0.1:4000",
    "agent": "tinymq",
    "partitions": [0, 2],
    "credit": 10,
    "in_flight": 3,
    "oldest_ms": 61_000,
    "delivered": 9,
    "finished": 5,
    "requeued": 1,
    "timed_out": 0,
    "finished_s": 0.5,
    "slow_since_ms": None,
    "slow": "",
    "absent_until_ms": None,
}


def test_members(broker: MemoryBroker, run: Run) -> None:
    """Who takes messages is listed, and who is slow or away."""
    rows = [
        MEMBER,
        {**MEMBER, "client": None, "client_id": "gone", "absent_until_ms": NOW_MS},
        {**MEMBER, "client_id": "lame", "slow": "half as fast as the others"},
    ]
    broker.answers["channel.members"] = [{"members": rows, "silent": ["far"]}] * 2
    result = run("channel", "members", "orders", "work")
    lines = [line.split() for line in result.stdout.splitlines()[1:]]
    assert lines[0] == ["b1/7", "mailer", "0,2", "10", "3", "1m1s", "0.5/s", "ok"]
    assert lines[1][0] == "-"
    assert "absent;" in lines[1]
    assert lines[2][-6:] == ["SLOW:", "half", "as", "fast", "as", "the", "others"][-6:]
    assert "broker far does not answer" in result.stderr
    names = run("channel", "members", "orders", "work", "-o", "name").stdout
    assert names.split() == ["b1/7", "gone", "b1/7"]


def test_peek(broker: MemoryBroker, run: Run) -> None:
    """Unsettled messages are shown with their state; bytes that are no text are escaped."""
    row = {
        "partition": 0,
        "offset": 5,
        "state": "waiting",
        "attempt": 2,
        "failures": 1,
        "due_ms": 1,
        "deadline_ms": None,
        "time_ms": NOW_MS,
        "size": 3,
        "key": "/w==",
        "key_encoding": "base64",
        "preview": "tea",
        "preview_encoding": "string",
    }
    page = {"messages": [row], "more": True, "after": "0@5", "silent": []}
    broker.answers["channel.peek"] = [page, {**page, "more": False}] * 2
    text = told(run, "peek", "--state", "waiting")
    assert text.splitlines()[1].split() == [
        *("0", "5", "waiting", "2", "1", "0s", "-", "3", "B", "\\xff", "tea"),
    ]
    assert [call["after"] for _, call in broker.calls if "after" in call] == ["0@5"]
    assert broker.calls[0][1]["limit"] == 20
    assert told(run, "peek", "-n", "1", "-o", "name") == "0@5\n"


def test_a_verb_that_others_call_so(run: Run) -> None:
    """Who knows the verb from elsewhere is told its name here."""
    assert "did you mean purge?" in run("channel", "empty", "orders", "work").stderr


def test_temporary(run: Run) -> None:
    """A channel can be made that goes with its last consumer, which its facts say."""
    made = run("channel", "create", "orders", "look", "--temporary")
    shown = run("channel", "info", "orders", "look")

    assert made.exit_code == 0, made.stderr
    assert "while somebody subscribes" in shown.output
    assert "latest" in shown.output
