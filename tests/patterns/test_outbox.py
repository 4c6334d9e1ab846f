"""The outbox: what is written, and what becomes of it, on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.postgres import needs_postgres
from tests.patterns.conftest import Base
from tests.patterns.outboxes import Stage
from tinymq.errors import (
    ClosedError,
    InvalidDelay,
    InvalidName,
    InvalidRequest,
    StorageFull,
    UnreachableError,
    UsageError,
    ValueTooLarge,
)
from tinymq.patterns.outbox import (
    MESSAGE_ID,
    SQLITE,
    Outbox,
    Relay,
    RelayConfig,
    Row,
    Step,
    statements,
)
from tinymq.patterns.outbox.ids import Ids, made_ms
from tinymq.patterns.outbox.table import lane_of
from tinymq.patterns.outbox.way import chunks
from tinymq.patterns.sql import Statements

KIB = 1024


@pytest.fixture
def stage(base: Base) -> Iterator[Stage]:
    """Return an outbox on each database."""
    stage = Stage(base)
    yield stage
    stage.close()


@pytest.fixture
def small(lite: Base) -> Iterator[Stage]:
    """Return an outbox on SQLite."""
    stage = Stage(lite)
    yield stage
    stage.close()


# --- what is written -------------------------------------------------------------------


def test_a_message_is_published_as_it_was_written(stage: Stage) -> None:
    """Topic, key, value and headers arrive, with the id as a header."""
    with stage.work() as connection:
        headers = [("a", b"1"), ("a", b"2")]
        made = stage.outbox.add(connection, "t", b"\0\xff", "k", headers)

    assert stage.relay().turn() == 1
    (row,) = stage.topics.stored
    assert (row.id, row.topic, row.key, row.value) == (made, "t", b"k", b"\0\xff")
    assert row.headers == (("a", b"1"), ("a", b"2"), (MESSAGE_ID, made.encode()))
    assert stage.left == 0


def test_tombstones_and_missing_keys(stage: Stage) -> None:
    """None stays None, and an empty value stays empty."""
    with stage.work() as connection:
        stage.outbox.add(connection, "t", None, b"")
        stage.outbox.add(connection, "t", b"", None)
    stage.relay().turn()

    assert {(row.key, row.value) for row in stage.topics.stored} == {(b"", None), (None, b"")}


def test_what_is_rolled_back_is_not_published(stage: Stage) -> None:
    """Nothing is committed by the outbox itself."""

    def work() -> None:
        with stage.work() as connection:
            stage.outbox.add(connection, "t", b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()

    assert (stage.relay().turn(), stage.topics.came, stage.left) == (0, [], 0)


def test_a_cursor_will_do(stage: Stage) -> None:
    """A cursor of the driver can stand for the connection."""
    with stage.work() as connection:
        stage.outbox.add(connection.cursor(), "t", b"by cursor")
    stage.relay().turn()

    assert stage.topics.values == [b"by cursor"]


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (InvalidName, {"topic": "no spaces"}),
        (InvalidName, {"topic": ""}),
        (InvalidName, {"topic": "t" * 201}),
        (ValueTooLarge, {"value": bytes(16 * KIB * KIB + 1)}),
        (ValueTooLarge, {"key": b"k" * (64 * KIB + 1)}),
        (ValueTooLarge, {"headers": {"h": bytes(64 * KIB)}}),
        (InvalidRequest, {"headers": [("h", b"")] * 128}),
        (UsageError, {"value": "text"}),
        (UsageError, {"headers": {"h": "text"}}),
        (UsageError, {"delay": 1, "at": 5}),
        (InvalidDelay, {"delay": -1}),
        (InvalidDelay, {"at": -1}),
    ],
)
def test_what_the_broker_would_refuse_is_refused_at_once(
    small: Stage, error: type[Exception], arguments: dict[str, Any]
) -> None:
    """The work is rolled back by the error, instead of leaving a message that goes nowhere."""
    given: dict[str, Any] = {"topic": "t", "value": b"v", **arguments}

    def work() -> None:
        with small.work() as connection:
            connection.execute("INSERT INTO work VALUES (1)")
            small.outbox.add(connection, **given)

    with small.work() as connection:
        connection.execute("CREATE TABLE work (n)")
    with pytest.raises(error):
        work()
    with small.work() as connection:
        assert connection.execute("SELECT * FROM work").fetchall() == []
    assert small.left == 0


def test_a_connection_without_transactions_is_refused(base: Base) -> None:
    """Where each statement commits by itself, work and message would not be one."""
    stage = Stage(base)
    with stage.work() as connection:
        if base.dialect is SQLITE:
            connection.isolation_level = None
        else:
            connection.autocommit = True
        with pytest.raises(UsageError, match="commits every statement"):
            stage.outbox.add(connection, "t", b"v")
        connection.execute("BEGIN")
        stage.outbox.add(connection, "t", b"in a transaction")
        connection.execute("COMMIT")

    assert stage.left == 1


@pytest.mark.process
@needs_postgres()
def test_a_relay_wants_transactions(pg: Base) -> None:
    """A connection of its own that commits every statement would hold no lease."""
    stage = Stage(pg)

    def connect() -> Any:
        connection = pg.connect()
        connection.autocommit = True
        return connection

    with (
        Relay(stage.outbox, connect, stage.topics) as relay,
        pytest.raises(UsageError, match="commits every"),
    ):
        relay.turn()


def test_what_is_not_due_stays(stage: Stage) -> None:
    """A delay counts from the writing; a message waits in the outbox and holds up nobody."""
    with stage.work() as connection:
        stage.outbox.add(connection, "t", b"90 s", "k", delay=90)
        stage.outbox.add(connection, "t", b"at", "k", at=datetime(2030, 1, 1, tzinfo=UTC))
        stage.outbox.add(connection, "t", b"at once", "k", delay=0)
    relay = stage.relay()
    relay.turn()
    assert (stage.topics.values, relay._due_in_s()) == ([b"at once"], 90)

    stage.time += 89.9
    assert relay.turn() == 0
    stage.time += 0.1
    assert relay.turn() == 1
    stage.time = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert relay.turn() == 1
    assert (stage.topics.values[1:], relay._due_in_s()) == ([b"90 s", b"at"], float("inf"))


def test_tables_are_made_once(stage: Stage) -> None:
    """Making them again keeps what is there; an unknown version is refused."""
    stage.add(b"kept")
    with stage.work() as connection:
        stage.outbox.create(connection)

    assert stage.left == 1
    with pytest.raises(UsageError, match="have version 1"):
        statements(stage.base.dialect, version=2)
    with pytest.raises(UsageError, match="name of a table"):
        Outbox(SQLITE, table="x; DROP TABLE y")
    with pytest.raises(UsageError, match="only PostgreSQL"):
        Outbox(SQLITE, notify=True)


class Driver:
    """A driver of SQLite that wants parameters in another style."""

    def __init__(self, connection: sqlite3.Connection, style: str) -> None:
        self._connection = connection
        self._style = style
        self.texts: list[str] = []

    def cursor(self) -> Driver:
        """Be a cursor, too."""
        return self

    def execute(self, text: str, values: Any = ()) -> None:
        """Carry out a statement that is written in the style."""
        self.texts.append(text)
        if isinstance(values, dict):
            assert self._style in {"named", "pyformat"}
            marks = {"named": ":{}", "pyformat": "%({})s"}[self._style]
            for name in sorted(values, key=len, reverse=True):
                text = text.replace(marks.format(name), f":{name}")
        else:
            for place in range(len(values), 0, -1):
                text = text.replace(f":{place}", "?") if self._style == "numeric" else text
            text = text.replace("%s", "?") if self._style == "format" else text
        self._connection.execute(text, values)

    def fetchone(self) -> None:
        """Nothing is read in this test."""


@pytest.mark.parametrize(
    ("style", "mark"),
    [("qmark", "?"), ("format", "%s"), ("pyformat", "%(p1)s"), ("named", ":p1"), ("numeric", ":1")],
)
def test_every_style_of_parameters(small: Stage, style: str, mark: str) -> None:
    """Drivers and frameworks differ in how they write parameters; each is served."""
    outbox = Outbox(SQLITE, paramstyle=style)
    with small.work() as connection:
        driver = Driver(connection, style)
        outbox.add(driver, "t", b"v", "k")

    assert mark in driver.texts[-1]
    small.relay().turn()
    assert small.topics.values == [b"v"]


def test_unknown_style() -> None:
    """A style that nobody knows is refused by name."""
    with pytest.raises(UsageError, match="paramstyle is one of qmark"):
        Statements("dollar")


def test_ids_rise() -> None:
    """Ids of one process sort as they were made, also when the clock stands or goes back."""
    times = iter([5.0] * 5000 + [4.0] * 10 + [6.0] * 10)
    ids = Ids(lambda: next(times))
    made = [ids.new() for _ in range(5020)]

    assert made == sorted(made)
    assert len({*made}) == 5020
    assert {len(each) for each in made} == {16}
    assert (made_ms(made[0]), made_ms(made[-1])) == (5000, 6000)


# --- what becomes of it ----------------------------------------------------------------


def test_order_of_a_key(stage: Stage) -> None:
    """Messages of one key come in the order of their writing, batch by batch."""
    values = [b"%d" % number for number in range(10)]
    stage.add(*values, key="k")
    relay = stage.relay(RelayConfig(batch=3))
    while relay.turn():
        pass

    assert stage.topics.values == values


def test_an_outage_is_sat_out(small: Stage) -> None:
    """While no broker is reached rows stay as they are, and go when there is one again."""
    small.add(b"1", b"2", key="k")
    small.topics.refuse = lambda row: UnreachableError()
    relay = small.relay()
    for _ in range(10):
        with pytest.raises(UnreachableError):
            relay.turn()
    small.topics.refuse = lambda row: None

    assert relay.turn() == 2
    assert (small.topics.values, relay.parked) == ([b"1", b"2"], 0)


def test_an_error_that_time_heals_parks_nothing(small: Stage) -> None:
    """A topic that is full is tried again and again, with longer waits; others go on."""
    small.add(b"full", topic="full", key="k")
    small.topics.refuse = lambda row: StorageFull() if row.topic == "full" else None
    relay = small.relay(RelayConfig(park_after=2, retry_s=1, most_retry_s=4))
    tries = []
    small.topics.before = lambda: tries.append(small.time)
    for _ in range(40):
        relay.turn()
        small.time += 0.5

    assert [round(after - before, 1) for before, after in pairwise(tries)][:5] == [
        1.0,
        2.0,
        4.0,
        4.0,
        4.0,
    ]
    small.add(b"other", topic="other", key="k")
    assert relay.turn() == 1
    small.topics.refuse = lambda row: None
    small.time += 5
    assert relay.turn() == 1


def test_poison_is_parked(stage: Stage) -> None:
    """A message that its topic never takes holds its key up for a while, nobody else, and ends
    with its error beside it.
    """
    poison, _ = stage.add(b"poison", b"after", key="k")
    stage.add(*[b"other"] * 20)
    stage.topics.refuse = lambda row: (
        InvalidRequest("it is bad") if row.value == b"poison" else None
    )
    relay = stage.relay(RelayConfig(park_after=3, retry_s=1))
    relay.turn()

    assert stage.topics.values == [b"other"] * 20
    for _ in range(10):
        stage.time += 10
        relay.turn()
    assert stage.topics.values[20:] == [b"after"]
    with stage.work() as connection:
        (parked,) = stage.outbox.parked(connection)
        assert stage.outbox.depth(connection)[:2] == (0, 1)
    assert (parked.id, parked.topic, parked.key, parked.attempts) == (poison, "t", b"k", 3)
    assert parked.error == "InvalidRequest: it is bad"
    assert relay.parked == 1


def test_parked_messages_get_another_chance(stage: Stage) -> None:
    """One that was parked can be tried anew, or thrown away; others cannot."""
    one, two, three = stage.add(b"1", b"2", b"3")
    stage.topics.refuse = lambda row: InvalidRequest() if row.value in {b"1", b"2"} else None
    relay = stage.relay(RelayConfig(park_after=1))
    relay.turn()
    with stage.work() as connection:
        assert stage.outbox.release(connection, one)
        assert stage.outbox.discard(connection, two)
        assert not stage.outbox.release(connection, three)
        assert not stage.outbox.discard(connection, one)
    stage.topics.refuse = lambda row: None
    relay.turn()

    assert (stage.topics.values, stage.left) == ([b"3", b"1"], 0)


def test_two_relays_keep_order_and_disturb_nobody(stage: Stage) -> None:
    """While one relay is at a key, another one sends other keys, and none of the same."""
    stage.add(b"1", b"2", key="slow")
    slow = lane_of("t", b"slow", b"")
    quick = next(f"k{n}" for n in range(99) if lane_of("t", b"k%d" % n, b"") != slow)
    other = stage.relay()

    def meanwhile() -> None:
        stage.topics.before = lambda: None
        stage.add(b"3", key="slow")
        stage.add(b"quick", key=quick)
        assert other.turn() == 1

    stage.topics.before = meanwhile
    first = stage.relay(RelayConfig(batch=1))
    while first.turn():
        pass

    assert [row.value for row in stage.topics.stored] == [b"quick", b"1", b"2", b"3"]


def test_a_lane_whose_relay_died_is_taken_over(small: Stage) -> None:
    """After the lease another relay sends what the dead one had in hand."""
    small.add(b"1", key="k")

    def dies() -> None:
        raise KeyboardInterrupt

    small.topics.before = dies
    with pytest.raises(KeyboardInterrupt):
        small.relay().turn()
    small.topics.before = lambda: None
    relay = small.relay(RelayConfig(lease_s=15))

    assert relay.turn() == 0
    small.time += 14
    assert relay.turn() == 0
    small.time += 1.1
    assert relay.turn() == 1


def test_a_relay_that_is_late_begins_no_further_send(small: Stage) -> None:
    """What would be sent when the lease may be over is sent under the next one."""
    lane = lane_of("a", b"k", b"")
    same = next(f"k{n}" for n in range(999) if lane_of("b", b"k%d" % n, b"") == lane)
    small.add(b"a", topic="a", key="k")
    small.add(b"b", topic="b", key=same)

    def slow() -> None:
        small.time += 8

    small.topics.before = slow
    steps: list[Step] = []
    small.relay(RelayConfig(lease_s=15), on_step=steps.append).turn()

    assert small.topics.values == [b"a", b"b"]
    assert steps == [*Step, *Step, Step.TAKING]


@pytest.mark.parametrize("step", list(Step))
def test_a_failure_at_every_step(stage: Stage, step: Step) -> None:
    """Whatever a relay fails at, each message is stored once, and in the end none is left."""
    stage.add(b"1", b"2", key="k")
    armed = [step]

    def fail(now: Step) -> None:
        if now in armed:
            armed.clear()
            raise OSError("the power of this step is gone")

    broken = stage.relay(on_step=fail)
    with pytest.raises(OSError, match="power"):
        broken.turn()
    stage.time += 20
    stage.relay().turn()

    assert (stage.topics.values, stage.left) == ([b"1", b"2"], 0)


@pytest.mark.parametrize("window", [0, None, 1000])
def test_a_topic_without_dedup_is_warned_of(
    small: Stage, window: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Who relies on exactly once hears that the topic does not do its part, once."""
    small.topics.window = window
    relay = small.relay()
    for _ in range(2):
        small.add(b"v")
        relay.turn()

    told = [record.getMessage() for record in caplog.records]
    warning = (
        "topic t has no dedup window: after a crash a message may be in it twice; "
        "set dedup.ms, and dedup.by to header:message-id or id"
    )
    assert told == ([warning] if window == 0 else [])


@given(sizes=st.lists(st.integers(0, 50), max_size=30), most=st.integers(1, 100))
def test_chunks(sizes: list[int], most: int) -> None:
    """Rows are cut into runs, in order, none too large but a single row."""
    rows = [Row(n, "", "t", None, bytes(size), (), 0) for n, size in enumerate(sizes)]
    runs = [*chunks(rows, most)]

    assert [row for run in runs for row in run] == rows
    assert all(len(run) == 1 or sum(row.size for row in run) <= most for run in runs)
    assert all(run for run in runs)


# --- threads ---------------------------------------------------------------------------


def until(true: Callable[[], object]) -> None:
    """Wait for something that a thread does."""
    event = threading.Event()
    for _ in range(2000):
        if true():
            return
        event.wait(0.005)
    raise AssertionError("it never happened")


def test_a_poke_wakes_it(stage: Stage) -> None:
    """A relay that sleeps for an hour sends at once when it is told, and stops at once."""
    relay = stage.relay(RelayConfig(poll_s=3600)).start()
    stage.add(b"1")
    relay.poke()
    until(lambda: stage.topics.values == [b"1"])
    relay.stop()

    assert relay.start() is relay
    stage.close()
    assert stage.topics.closed


def test_it_rests_after_failures_and_goes_on(
    small: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A database or a broker that is away for a moment ends nothing."""
    small.add(b"1")
    errors = [OSError("no database"), UnreachableError("no broker")]
    resting = RelayConfig(poll_s=0.001, retry_s=0.001, most_retry_s=0.001)

    def fails(step: Step) -> None:
        if step is Step.TAKING and errors:
            raise errors.pop()

    small.relay(resting, on_step=fails).start()
    until(lambda: small.topics.values == [b"1"])
    small.close()

    told = [record.getMessage() for record in caplog.records]
    assert "no broker is reached; next attempt in 0.0 s: no broker" in told
    assert "the outbox cannot be read or written; next attempt in 0.0 s: no database" in told


def test_a_closed_client_ends_it(small: Stage) -> None:
    """There is nothing to wait for when the client was closed."""
    small.add(b"1")
    small.topics.refuse = lambda row: None

    def closed() -> None:
        raise ClosedError("closed")

    small.topics.before = closed
    with pytest.raises(ClosedError):
        small.relay().run()


@pytest.mark.parametrize("field", ["batch", "poll_s", "lease_s", "park_after"])
def test_settings_are_checked(field: str) -> None:
    """Nothing of a relay is 0."""
    wrong: dict[str, Any] = {field: 0}
    with pytest.raises(UsageError):
        RelayConfig(**wrong)


def test_rows_are_plain(small: Stage) -> None:
    """Other programs can read the table: the id is text, headers are msgpack."""
    (made,) = small.add(b"v", key="k")
    with small.work() as connection:
        ((found, headers),) = connection.execute("SELECT id, headers FROM tinymq_outbox")

    assert found == made
    assert msgpack.unpackb(headers) == [[MESSAGE_ID, made.encode()]]
