"""`tinymq consume`, `peek` and `tail`."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from typing_extensions import override

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker, MemoryClient, MemoryConsumer
from tinymq.cli import read
from tinymq.cli.reading import Part, until_end
from tinymq.cli.render import compile_format
from tinymq.cli.session import Session
from tinymq.client.core.offsets import Survey
from tinymq.errors import ConnectionLost, CorruptBatch, DeadlineExceeded

FIRST = "2025-06-15T15:06:41.000Z"


@pytest.fixture
def filled(broker: MemoryBroker) -> MemoryBroker:
    """Return the broker with ten records in `audit` and three in each half of `orders`."""
    for number in range(10):
        broker.append("audit", b"%d" % number, key=b"k%d" % (number % 2))
    for number in range(6):
        broker.append("orders", b"order %d" % number, partition=number % 2)
    return broker


def test_consume_to_the_end(filled: MemoryBroker, run: Run) -> None:
    """With -e it stops where the topic ended when it began."""
    result = run("consume", "audit", "-e")
    assert result.output == "".join(f"{number}\n" for number in range(10))
    assert result.exit_code == 0


def test_consume_goes_on_until_ctrl_c(filled: MemoryBroker, run: Run) -> None:
    """Without -e it waits for more, and Ctrl-C is a good end."""
    filled.idle.append(lambda: void(filled.append("audit", b"late")))
    result = run("consume", "audit", "--from", "latest")
    assert (result.output, result.exit_code) == ("late\n", 0)


def void(value: object) -> None:
    """Take a value and return nothing."""


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("7", "7 8 9"),
        ("-2", "8 9"),
        ("earliest", "0 1 2 3 4 5 6 7 8 9"),
        ("latest", ""),
        ("@1750000009000", "8 9"),
        ("@2030-01-01", ""),
        ("10", ""),
    ],
)
def test_consume_from(filled: MemoryBroker, run: Run, start: str, expected: str) -> None:
    """Reading begins at an end, an offset, the last few, or a time."""
    assert run("consume", "audit", "-e", "--from", start).output.split() == expected.split()


def test_consume_beyond_the_end(filled: MemoryBroker, run: Run) -> None:
    """An offset that one partition does not have is refused, with the range."""
    result = run("consume", "audit", "--from", "11")
    assert result.exit_code == 1
    assert "holds offsets 0 to 10, not 11" in result.stderr


def test_consume_of_several_partitions_begins_as_near_as_can_be(
    filled: MemoryBroker, run: Run
) -> None:
    """With several partitions an offset that one does not have is moved into its range."""
    assert run("consume", "orders", "-e", "--from", "2").output == "order 4\norder 5\n"
    assert run("consume", "orders", "-e", "--from", "5").output == ""


def test_consume_some(filled: MemoryBroker, run: Run) -> None:
    """--max stops in the middle of a batch."""
    assert run("consume", "audit", "--max", "4").output.split() == list("0123")
    grepped = run("consume", "audit", "--max", "2", "--grep", "[78]")
    assert grepped.output.split() == ["7", "8"]


def test_consume_partitions(filled: MemoryBroker, run: Run) -> None:
    """Only the partitions that were named are read."""
    assert run("consume", "orders", "-e", "-p", "1").output.split("\n")[:-1] == [
        "order 1",
        "order 3",
        "order 5",
    ]
    result = run("consume", "orders", "-e", "-p", "2")
    assert result.exit_code == 1
    assert "has no partition 2" in result.stderr


def test_a_missing_topic_is_not_made(broker: MemoryBroker, run: Run) -> None:
    """Reading a topic that does not exist fails and makes none."""
    result = run("consume", "nothing")
    assert result.exit_code == 1
    assert "hint: `tinymq topic ls` lists them" in result.stderr
    assert "nothing" not in broker.topics


def test_bytes_stay_as_they_are(broker: MemoryBroker, run: Run) -> None:
    """A pipe gets each value byte for byte, with and without a format."""
    value = bytes(range(256))
    broker.append("audit", value)
    assert run("consume", "audit", "-e", "-f", "%v").stdout_bytes == value
    assert run("consume", "audit", "-e").stdout_bytes == value + b"\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_terminal_gets_no_control_characters(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """On a terminal a value moves no cursor, and bytes that are no text are escaped."""
    monkeypatch.setattr(read, "on_terminal", lambda: True)
    broker.append("audit", b"\x1b[2J\xc2\x9b31m", key=b"\x1b]0;x\x07")
    broker.append("audit", b"tab\tand \xff")
    lines = run("consume", "audit", "-e", "-o", form).output.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    if form == "text":
        assert lines == ["\\x1b[2J\\x9b31m", "tab    and \\xff"]


def test_an_error_ends_a_follower(filled: MemoryBroker, run: Run) -> None:
    """An error that waiting does not mend is one line and the end."""

    def fail() -> None:
        filled.failure = CorruptBatch("the batch is damaged")

    filled.idle.append(fail)
    result = run("consume", "audit")
    assert (result.exit_code, result.stderr) == (1, "error: the batch is damaged\n")


def test_reading_to_the_end_does_not_wait_for_ever(filled: MemoryBroker, run: Run) -> None:
    """With -e a lost connection is an error: a script wants an end."""
    filled.failure = ConnectionLost("it went away")
    assert run("consume", "audit", "-e").exit_code == 3


def test_json_loses_nothing(broker: MemoryBroker, run: Run) -> None:
    """JSON has value and encoding, base64 where it must be."""
    broker.append("audit", b"\xff\x00", key="schlüssel".encode(), headers=[("h", b"\xfe")])
    broker.append("audit", None)
    first, second = run("consume", "audit", "-e", "-o", "ndjson").output.splitlines()
    assert json.loads(first) == {
        "topic": "audit",
        "partition": 0,
        "offset": 0,
        "time_ms": 1_750_000_001_000,
        "time": FIRST,
        "created_ms": None,
        "key": "schlüssel",
        "key_encoding": "string",
        "headers": [{"name": "h", "value": "/g==", "encoding": "base64"}],
        "size": 2,
        "value": "/wA=",
        "value_encoding": "base64",
    }
    assert json.loads(second)["value"] is None


def test_formats(broker: MemoryBroker, run: Run) -> None:
    """Each letter and each escape of a format has its meaning."""
    broker.append("orders", b"value", key=b"key", partition=1, headers=[("a", b"1"), ("b", b"2")])
    pattern = r"%t %p %o %k %v %h %d %T %K %S %%\t\\\x41\0\r\n"
    result = run("consume", "orders", "-e", "-f", pattern)
    assert result.stdout_bytes == (
        b"orders 1 0 key value a:1,b:2 2025-06-15T15:06:41.000Z 1750000001000 3 5 %\t\\A\0\r\n"
    )


@pytest.mark.parametrize("pattern", ["%z", "%", "\\q", "\\", "\\xzz"])
def test_bad_formats(filled: MemoryBroker, run: Run, pattern: str) -> None:
    """A format that means nothing is a usage error that lists the letters."""
    result = run("consume", "audit", "-f", pattern)
    assert result.exit_code == 2
    assert "%t topic" in result.stderr


def test_a_format_adds_nothing() -> None:
    """An empty format writes nothing, not even a newline."""
    assert compile_format("")(None) == b""  # type: ignore[arg-type]


def test_bad_pattern(filled: MemoryBroker, run: Run) -> None:
    """A regular expression that is none is a usage error."""
    assert run("consume", "audit", "--grep", "(").exit_code == 2


def test_peek(filled: MemoryBroker, run: Run) -> None:
    """A peek shows place, time, key and value of the first records."""
    assert run("peek", "audit", "-n", "2").output == (
        f"0@0  {FIRST}  key=k0  0\n0@1  2025-06-15T15:06:42.000Z  key=k1  1\n"
    )


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("orders", ["0@0", "1@0", "0@1"]),
        ("orders/1", ["1@0", "1@1", "1@2"]),
        ("orders/1@2", ["1@2"]),
        ("orders@-1", ["0@2", "1@2"]),
        ("orders@2030-01-01", []),
        ("audit@@1750000009000", ["0@8", "0@9"]),
        ("audit@-1", ["0@9"]),
    ],
)
def test_peek_places(filled: MemoryBroker, run: Run, place: str, expected: list[str]) -> None:
    """A place is a topic, perhaps a partition, perhaps a position; merged by time."""
    output = run("peek", place, "-n", "3", "-f", r"%p@%o\n").output
    assert output.split() == expected


@pytest.mark.parametrize("place", ["orders/x", "orders@yesterday"])
def test_bad_places(filled: MemoryBroker, run: Run, place: str) -> None:
    """A place that means nothing is a usage error."""
    assert run("peek", place).exit_code == 2


def test_a_preview_keeps_to_its_line(broker: MemoryBroker, run: Run) -> None:
    """Control characters are escaped, long values cut, tombstones named."""
    broker.append("audit", b"a\nb\x1b[31m", key=b"\xff", headers=[("h", b"v\t")])
    broker.append("audit", b"x" * 3000)
    broker.append("audit", None)
    lines = run("peek", "audit").output.splitlines()
    assert lines[0] == f"0@0  {FIRST}  key=\\xff  h:v\\t  a\\nb\\x1b[31m"
    assert lines[1].endswith("x" * 200 + "  … (2.9 KiB)")
    assert lines[2].endswith("(tombstone)")


def test_tail(filled: MemoryBroker, run: Run) -> None:
    """The last records come first, then those that arrive."""
    filled.idle.append(lambda: void(filled.append("audit", b"new")))
    # The first pause is that of reading the last records, which does not wait.
    assert run("tail", "audit", "-n", "2", "-f", r"%v\n").output.split() == ["8", "9", "new"]
    assert run("tail", "audit", "-n", "1", "--no-follow", "-f", "%v").output == "new"
    assert run("tail", "audit", "-n", "0", "--no-follow").output == ""
    assert run("tail", "orders@-1", "--no-follow", "-f", r"%v\n").output == "order 4\norder 5\n"


def test_tail_from(filled: MemoryBroker, run: Run) -> None:
    """With --from everything from there on is shown."""
    result = run("tail", "orders/1", "--from", "1", "--no-follow", "-f", r"%o ")
    assert result.output == "1 2 "


@pytest.fixture
def half(filled: MemoryBroker) -> MemoryBroker:
    """Return the broker with the first half of `orders` at a broker that is silent."""
    filled.topics["orders"].silent = {0}
    return filled


def test_a_part_is_not_taken_for_the_whole(half: MemoryBroker, run: Run) -> None:
    """Reading to the end is refused while an end is not known; the others can be read."""
    result = run("consume", "orders", "-e")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "partition 0 cannot be read now: it has no live leader\n"
        "error: the end of partition 0 is not known "
        "(hint: -p reads the others; without --exit the broker is waited for)\n"
    )
    others = run("consume", "orders", "-e", "-p", "1")
    assert (others.stdout, others.stderr) == ("order 1\norder 3\norder 5\n", "")


def test_a_look_shows_what_there_is(half: MemoryBroker, run: Run) -> None:
    """Looking shows the partitions that answer, and names the others."""
    for verb in (["peek", "orders"], ["tail", "orders", "--no-follow"]):
        result = run(*verb, "-f", r"%v\n")
        assert result.stdout == "order 1\norder 3\norder 5\n"
        assert result.stderr == "partition 0 cannot be read now: it has no live leader\n"


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 3), ("1", 1), ("-1", 3), ("@1750000012500", 1)],
)
def test_a_silent_broker_is_waited_for(
    half: MemoryBroker, run: Run, start: str, first: int
) -> None:
    """Who follows gets a partition from where it was to begin, once its broker is back."""
    result = run("consume", "orders", "--from", start, "-f", r"%p@%o\n")
    places = [line for line in result.stdout.splitlines() if line.startswith("0@")]
    assert places == [f"0@{offset}" for offset in range(first, 3)]


def test_a_tail_goes_on_behind_the_end(half: MemoryBroker, run: Run) -> None:
    """What is new in a partition that was silent is shown, and nothing that is old."""
    half.idle += [lambda: None, lambda: void(half.append("orders", b"new", partition=0))]
    assert run("tail", "orders", "-n", "1", "-f", r"%v\n").stdout == "order 5\nnew\n"


def test_readers_need_no_metaserver(filled: MemoryBroker, run: Run) -> None:
    """Reading asks the brokers alone: no administrative operation is carried out."""
    for verb in (["consume", "-e"], ["peek"], ["tail", "--no-follow"], ["consume"]):
        assert run(*verb, "audit", "-f", "%v").stdout == "0123456789"
    assert filled.calls == []


@pytest.mark.parametrize("verb", [["consume", "-e"], ["peek"], ["tail", "--no-follow"]])
def test_silence_is_not_taken_for_an_empty_topic(
    half: MemoryBroker, run: Run, verb: list[str]
) -> None:
    """What ends by itself fails when no broker of the wanted partitions answers."""
    result = run(*verb, "orders", "-p", "0")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "error: it has no live leader (hint: `tinymq node ls`" in result.stderr


def test_the_end_of_patience(filled: MemoryBroker) -> None:
    """A broker that falls silent while it is read ends the reading within the time-out."""
    session = Session(lambda url, timeout: cast("Any", MemoryClient(filled)))
    session.given = 4.0
    now = [0.0]
    session.clock = lambda: now[0]
    asked: list[float] = []

    class Deaf(MemoryClient):
        """Nothing comes any more, and questions take all the time there is."""

        @override
        def survey(self, topic: str, partitions: Any, time_ms: int, within_s: float) -> Survey:
            asked.append(within_s)
            now[0] += within_s
            return Survey({}, {0: DeadlineExceeded("no answer")})

    class Silent(MemoryConsumer):
        """Reads nothing."""

        @override
        def next_batch(self, timeout: float | None = None) -> None:
            """Wait in vain."""
            now[0] += timeout or 0

    session._client = cast("Any", Deaf(filled))
    stream = until_end(session, cast("Any", Silent(filled)), "audit", [Part(0, 0, 10)])
    with pytest.raises(DeadlineExceeded):
        list(stream)
    assert len(asked) == 1
    assert now[0] == pytest.approx(4.0)
