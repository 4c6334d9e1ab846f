"""`tinymq pub` and reading stdin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from attrs import Factory, frozen
from click.testing import _NamedTextIOWrapper

from tests.cli.conftest import Run
from tests.fakes.memory_broker import BEGIN_MS, MemoryBroker, MemoryClient, MemoryProducer
from tinymq.cli.failure import Failed, status_of
from tinymq.cli.lines import CHUNK, gather, lines, whole
from tinymq.cli.pub import Publisher
from tinymq.errors import DeadlineExceeded, NotLeader, StorageFull, TinyMQError, Unroutable
from tinymq.sync import Failed as FailedRecord
from tinymq.sync import PartlySent, ProducerConfig, Sent


def values(broker: MemoryBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    """Give what a partition holds."""
    return [record.value for record in broker.topics[topic].partitions[partition].records]


def test_pub_a_value(broker: MemoryBroker, run: Run) -> None:
    """A value on the command line is one message."""
    result = run("pub", "orders", "hello")
    assert result.output == "published 1 message (5 B) to orders at 0@0\n"
    assert values(broker, "orders") == [b"hello"]


def test_pub_later(broker: MemoryBroker, run: Run) -> None:
    """What waits is told with its id and its time, also as lines and as JSON."""
    one = run("pub", "orders", "hello", "--delay", "5m")
    lines = run("pub", "orders", "-l", "--at", "2027-01-01T09:00+01:00", "-p", "1", stdin=b"a\nb\n")
    told = json.loads(run("pub", "orders", "x", "--at", "1900000000000", "-o", "json").stdout)

    assert one.output == (
        "published 1 message (5 B) to orders, delayed until 2025-06-15T15:11:40.000Z: orders/0~0\n"
    )
    assert lines.output == "published 2 messages (2 B) to orders, delayed: orders/1~1..2\n"
    assert told["delayed"] == [{"partition": 0, "first": 3, "last": 3}]
    assert (told["positions"], told["due_ms"]) == ([], 1_900_000_000_000)
    assert [due for _, _, _, due, _ in broker.delayed][1:3] == [1_798_790_400_000] * 2
    assert values(broker, "orders") == []


def test_a_time_that_is_over_is_told(broker: MemoryBroker, run: Run) -> None:
    """Seconds given for milliseconds lie in 1970, and the message comes at once: say so."""
    result = run("pub", "orders", "x", "--at", "1893456000")

    assert result.exit_code == 0
    assert "1970-01-22T21:57:36.000Z has passed" in result.stderr


def test_pub_with_a_time_to_live(broker: MemoryBroker, run: Run) -> None:
    """A time to live goes along, alone or with a delay; no delay is an ordinary message."""
    run("pub", "orders", "x", "--delay", "1h30m", "--ttl", "1h")

    assert broker.delayed[0][3:] == (BEGIN_MS + 5_400_000, 3600.0)
    assert run("pub", "orders", "x", "--delay", "0", "--ttl", "90s").output.endswith(" at 0@0\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--delay", "-5m"), "cannot be negative"),
        (("--delay", "soon"), "no duration"),
        (("--delay", "8000000d"), "year 9999 (253402300799999 ms)"),
        (("--at", "tomorrow"), "2027-01-01T09:00+01:00"),
        (("--at", "253402300800000"), "year 9999"),
        (("--at", "1960-01-01"), "before 1970"),
        (("--at", "0001-01-01"), "before 1970"),
        (("--ttl", "0"), "above zero"),
        (("--ttl", "-1s"), "above zero"),
        (("--delay", "1s", "--at", "2027-01-01"), "not both"),
    ],
)
def test_pub_at_no_time(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """What is no time is refused before anything is sent, with what can be written."""
    result = run("pub", "orders", "x", *arguments)

    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_pub_to_memory(broker: MemoryBroker, run: Run) -> None:
    """An acknowledgement from memory says so."""
    broker.make("fleeting", storage="memory")
    assert run("pub", "fleeting", "x").output.endswith("at 0@0, in memory only\n")
    lines = run("pub", "fleeting", "-l", stdin=b"y\nz\n").output
    assert lines.endswith("at 0@1..2, in memory only\n")


def test_pub_stdin_whole(broker: MemoryBroker, run: Run) -> None:
    """Without -l all of stdin is one message, byte for byte."""
    content = bytes(range(256)) + b"\n\n"
    run("pub", "audit", stdin=content)
    assert values(broker, "audit") == [content]


def test_pub_lines(broker: MemoryBroker, run: Run) -> None:
    """With -l each line is a message; only the newline goes."""
    result = run("pub", "audit", "-l", stdin=b"one\n\n\xff \r\nlast")
    assert values(broker, "audit") == [b"one", b"", b"\xff \r", b"last"]
    assert result.output == "published 4 messages (10 B) to audit at 0@0..3\n"


def test_pub_nothing(broker: MemoryBroker, run: Run) -> None:
    """Empty stdin is one empty message, or no lines at all."""
    assert run("pub", "audit", "-l", stdin=b"").output == "published 0 messages (0 B) to audit\n"
    run("pub", "audit", stdin=b"")
    assert values(broker, "audit") == [b""]


def test_pub_with_everything(broker: MemoryBroker, run: Run) -> None:
    """Key, headers and partition go with each message."""
    result = run(
        "pub", "orders", "v", "-k", "key", "-H", "a:1", "-H", "b:x:y", "-p", "1", "-o", "json"
    )
    record = broker.topics["orders"].partitions[1].records[0]
    assert (record.key, list(record.headers)) == (b"key", [("a", b"1"), ("b", b"x:y")])
    assert json.loads(result.output) == {
        "topic": "orders",
        "count": 1,
        "bytes": 1,
        "positions": [{"partition": 1, "first": 0, "last": 0}],
        "delayed": [],
        "due_ms": None,
        "unroutable": 0,
        "duplicates": [],
        "volatile": False,
        "dry_run": False,
    }


def test_pub_keys_in_lines(broker: MemoryBroker, run: Run) -> None:
    """-K cuts the key off each line; a line without the separator has none."""
    run("pub", "audit", "-l", "-K", "::", stdin=b"a::1::2\nplain\n::3\n")
    records = broker.topics["audit"].partitions[0].records
    assert [(each.key, each.value) for each in records] == [
        (b"a", b"1::2"),
        (None, b"plain"),
        (b"", b"3"),
    ]


def test_pub_makes_topics_unless_told_not_to(broker: MemoryBroker, run: Run) -> None:
    """A first publish makes the topic, --no-create refuses."""
    assert run("pub", "fresh", "x", "--no-create").exit_code == 1
    assert run("pub", "fresh", "x").exit_code == 0


def test_pub_dry_run(broker: MemoryBroker, run: Run) -> None:
    """A dry run counts and publishes nothing."""
    result = run("pub", "audit", "-l", "--dry-run", stdin=b"1\n2\n")
    assert result.output == "would publish 2 messages (2 B) to audit\n"
    assert values(broker, "audit") == []


def test_pub_too_long(broker: MemoryBroker, run: Run) -> None:
    """Too long a value or line is refused, with its number, before it is held."""
    whole_text = run("pub", "audit", "--max-bytes", "10", stdin=b"x" * 11)
    assert whole_text.exit_code == 1
    assert "stdin holds more than 10 bytes" in whole_text.stderr
    line = run("pub", "audit", "-l", "--max-bytes", "10", stdin=b"short\n" + b"x" * 11 + b"\n")
    assert "line 2 is longer than 10 bytes" in line.stderr
    assert values(broker, "audit") == []


def test_pub_refused(broker: MemoryBroker, run: Run) -> None:
    """What the broker refuses has status 1."""
    broker.failure = StorageFull("the disk is full")
    result = run("pub", "audit", "x")
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    "options", [["value", "-l"], ["-K", ":"], ["-H", "nothing"], ["-H", ":x"], ["-p", "-1"]]
)
def test_pub_usage(run: Run, options: list[str]) -> None:
    """Options that make no sense together are a usage error."""
    assert run("pub", "audit", *options, stdin=b"").exit_code == 2


def test_lines_over_any_cuts() -> None:
    """Lines are the same wherever the chunks are cut."""
    content = b"one\ntwo\n\nthree"
    for cut in range(len(content) + 1):
        chunks = iter([content[:cut], content[cut:]])
        found = [line for some in lines(chunks, 100) for line in some]
        assert found == [b"one", b"two", b"", b"three"]


def test_an_endless_line_is_not_held() -> None:
    """A line without an end fails at its limit, however much would follow."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 100

    with pytest.raises(Failed, match="line 1 is longer than 1000 bytes"):
        list(lines(endless(), 1000))
    with pytest.raises(Failed, match="more than 1000 bytes"):
        whole(endless(), 1000)


def test_gathering() -> None:
    """What flows is gathered to chunks, what trickles is handed on at once."""
    pieces = [b"a" * (CHUNK // 2)] * 4 + [b"last", b""]
    flowing = iter(pieces)
    assert [len(each) for each in gather(lambda: next(flowing), lambda: True)] == [
        CHUNK,
        CHUNK,
        4,
    ]
    trickling = iter(pieces)
    assert len(list(gather(lambda: next(trickling), lambda: False))) == 5


@pytest.mark.parametrize(
    ("options", "what"),
    [([], "all of it is one message"), (["-l"], "each line is published")],
)
def test_a_terminal_as_stdin(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: list[str], what: str
) -> None:
    """Who types is told how it ends; who gives a value or a pipe is not."""
    assert run("pub", "orders", *options, stdin=b"x").stderr == ""
    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda stream: True, raising=False)
    monkeypatch.setattr("tinymq.cli.pub.progress", no_progress)
    result = run("pub", "orders", *options, stdin=b"x")
    assert result.stderr == f"reading from the terminal until Ctrl-D; {what}\n"
    assert run("pub", "orders", "x").stderr == ""


@contextmanager
def no_progress(title: str, total: float | None) -> Iterator[Callable[[float, str], None]]:
    """Show nothing."""
    yield lambda amount, text: None


@frozen
class Broken:
    """A producer that fails from the second call on."""

    error: BaseException
    calls: list[int] = Factory(list)

    def send_batch(self, topic: str, values: list[bytes], **more: Any) -> Sent:
        """Send the first time."""
        self.calls.append(len(values))
        if len(self.calls) > 1:
            raise self.error
        return Sent(len(values), [(0, 0, len(values))])


def broken(error: BaseException) -> Publisher:
    """Make a publisher that has two lines behind it."""
    publisher = Publisher(cast("Any", Broken(error)), "t")
    publisher.publish([b"a", b"b"], None)
    return publisher


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("why", "status"), [(DeadlineExceeded("late"), 3), (NotLeader("away"), 3), (StorageFull(""), 1)]
)
def test_where_to_go_on(why: TinyMQError, status: int, *, wrap: bool) -> None:
    """A failure tells how many lines are acknowledged, and has the status of its cause."""
    values = [b"c", b"d", b"e", b"f"]
    missing = [FailedRecord("t", b"d", why), FailedRecord("t", b"e", why)]
    error = PartlySent(Sent(2, [(0, 2, 1), (1, 0, 1)]), missing) if wrap else why
    with pytest.raises(Failed) as raised:
        broken(error).publish(values, None)
    done = "3 are acknowledged, and 1 of the 3 behind them" if wrap else "2 are acknowledged"
    assert str(raised.value) == f"lines 1 to {done}; the others may be stored or not: {why}"
    assert raised.value.hint == f"go on with line {4 if wrap else 3}"
    assert status_of(raised.value) == status


def test_lines_that_go_nowhere() -> None:
    """What no binding takes is stored: it is counted, and the other lines go on."""
    lost = Unroutable("no binding of exchange t takes this message")
    sent = Sent(1, [(0, 7, 1)])
    for error, astray, ranges in (
        (PartlySent(sent, [FailedRecord("t", b"b", lost)]), 1, {0: (0, 7)}),
        (lost, 2, {0: (0, 1)}),
    ):
        publisher = broken(error)
        publisher.publish([b"a", b"b"], None)
        told = publisher.published
        assert (told.unroutable, told.ranges) == (astray, ranges)


def test_ctrl_c_tells_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    """Who breaks off learns how many lines are acknowledged."""
    with pytest.raises(KeyboardInterrupt):
        broken(KeyboardInterrupt()).publish([b"c"], None)
    assert capsys.readouterr().err == "lines 1 to 2 are acknowledged\n"


def test_no_line_at_all(broker: MemoryBroker, run: Run) -> None:
    """When the first lines fail already, that is said, and the error is as for a value."""
    broker.failure = NotLeader("no live broker leads it")
    lines, value = run("pub", "audit", "-l", stdin=b"1\n"), run("pub", "audit", "x")
    assert (lines.exit_code, value.exit_code) == (3, 3)
    assert lines.stderr == f"no line is acknowledged\n{value.stderr}"


@pytest.mark.parametrize(
    ("options", "patience"), [(["-l"], 60), (["-l", "--timeout", "3s"], 3), ([], 10)]
)
def test_patience(
    broker: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    options: list[str],
    patience: int,
) -> None:
    """Lines wait longer for a broker than a value, unless --timeout says how long."""
    seen: list[float] = []
    make = MemoryClient.producer

    def producer(client: MemoryClient, config: ProducerConfig) -> MemoryProducer:
        seen.append(config.deadline_s)
        return make(client, config)

    monkeypatch.setattr(MemoryClient, "producer", producer)
    assert run("pub", "audit", *options, stdin=b"1\n").exit_code == 0
    assert seen == [patience]


def test_empty_id(run: Run) -> None:
    """An id that is empty, as of a variable that is not set, would make all but one a repeat."""
    refused = run("pub", "orders", "--id", "", "tea")
    assert refused.exit_code == 2
    assert "--id is empty" in refused.stderr
