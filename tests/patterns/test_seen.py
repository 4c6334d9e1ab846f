"""Messages that were handled are known again; the filter in front of the table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from tests.patterns.conftest import Base
from tests.patterns.messages import KINDS, Message, run
from tinymq.client.core.handling import Reject, Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence import (
    BloomFilter,
    SeenConfig,
    SeenStore,
    by_key,
    header,
    message_id,
    number_header,
    place,
)
from tinymq.patterns.idempotence.calling import Handler
from tinymq.patterns.idempotence.identity import as_text
from tinymq.patterns.sql import SQLITE


class Stage:
    """A database with a table for work, and stores on it."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.time = 1_800_000_000.0
        self.stores: list[SeenStore] = []
        with closing(base.connect()) as connection:
            self.store().create(connection)
            connection.execute("CREATE TABLE work (value VARCHAR(9))")
            connection.commit()

    def store(self, consumer: str = "c", **settings: Any) -> SeenStore:
        """Make a store, as a new process would."""
        config = SeenConfig(**settings)
        # The test's clock rules, where otherwise that of a server does.
        dialect = evolve(self.base.dialect, now="")
        made = SeenStore(self.base.connect, dialect, consumer, config, lambda: self.time)
        self.stores.append(made)
        return made

    @property
    def work(self) -> list[str]:
        """The work that was done and committed."""
        with closing(self.base.connect()) as connection:
            return [row[0] for row in connection.execute("SELECT value FROM work").fetchall()]

    def do(self, message: Message, connection: Any) -> None:
        """Do the work of a message."""
        connection.execute(f"INSERT INTO work VALUES ('{message.offset}')")


@pytest.fixture
def stage(base: Base) -> Iterator[Stage]:
    """Return a database of each kind."""
    stage = Stage(base)
    yield stage
    for store in stage.stores:
        store.close()


@pytest.fixture
def small(lite: Base) -> Iterator[Stage]:
    """Return a database of SQLite."""
    stage = Stage(lite)
    yield stage
    for store in stage.stores:
        store.close()


# --- in a transaction ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_once_in_a_transaction(stage: Stage, kind: Callable[[Handler], Handler]) -> None:
    """A repeat does nothing, in this process and in the next one."""
    store = stage.store()
    handler = store.in_transaction(kind(stage.do))
    for offset in (1, 2, 1, 2, 3):
        run(handler, Message(offset))
    run(stage.store().in_transaction(kind(stage.do)), Message(3))

    assert stage.work == ["1", "2", "3"]
    assert (store.handled, store.repeats) == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_leaves_nothing(stage: Stage, kind: Callable[[Handler], Handler]) -> None:
    """When the handler raises, neither its work nor the mark stays, and it is tried again."""
    failing = [True]

    def work(message: Message, connection: Any) -> None:
        stage.do(message, connection)
        if failing:
            failing.clear()
            raise ZeroDivisionError

    handler = stage.store().in_transaction(kind(work))
    with pytest.raises(ZeroDivisionError):
        run(handler, Message(1))
    assert stage.work == []

    run(handler, Message(1))
    assert stage.work == ["1"]


def test_two_consumers_at_once(stage: Stage) -> None:
    """Of two that have the same messages at the same time each does what the other does not."""
    barrier = threading.Barrier(2, timeout=20)
    errors: list[BaseException] = []

    def consume() -> None:
        handler = stage.store().in_transaction(stage.do)
        try:
            for offset in range(10):
                barrier.wait()
                handler(Message(offset))
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert Counter(stage.work) == Counter(map(str, range(10)))


def test_consumers_have_ids_of_their_own(small: Stage) -> None:
    """What one consumer has handled is new to another."""
    for consumer in ("one", "two"):
        small.store(consumer).in_transaction(small.do)(Message(1))

    assert small.work == ["1", "1"]
    with pytest.raises(UsageError):
        SeenStore(small.base.connect, SQLITE, "")


def test_no_second_transaction_within_one_that_waits(small: Stage) -> None:
    """A message that comes while another one's handler waits is put off, instead of waiting
    for a transaction that could not end then.
    """
    gate: Deferred[None] = Deferred()
    handler = small.store().in_transaction(lambda message, connection: gate)
    first = handler(Message(1))
    for offset in (1, 2):
        with pytest.raises(Requeue) as put_off:
            handler(Message(offset))
        assert not put_off.value.failure
    gate.callback(None)
    assert run(lambda: first) is None


# --- after success ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alone", [True, False])
def test_once_after_success(small: Stage, kind: Callable[[Handler], Handler], alone: bool) -> None:
    """A repeat does nothing, in this process and in the next one; a failure is no success."""
    done: list[int] = []
    failing = [True]

    def work(message: Message) -> str:
        if message.offset == 2 and failing:
            failing.clear()
            raise ZeroDivisionError
        done.append(message.offset)
        return "result"

    handler = small.store(alone=alone).once(kind(work))
    assert run(handler, Message(1)) == "result"
    assert run(handler, Message(1)) is None
    with pytest.raises(ZeroDivisionError):
        run(handler, Message(2))
    run(handler, Message(2))
    run(small.store(alone=alone).once(kind(work)), Message(2))

    assert done == [1, 2]


def test_a_crash_between_work_and_mark(small: Stage) -> None:
    """At least once: work that was done before a crash is done again, and then no more."""
    done: list[int] = []
    store = small.store()

    class Crash(BaseException):
        pass

    def crashing(message: Message) -> None:
        done.append(message.offset)
        raise Crash

    with pytest.raises(Crash):
        store.once(crashing)(Message(1))
    handler = small.store().once(lambda message: done.append(message.offset))
    handler(Message(1))
    handler(Message(1))

    assert done == [1, 1]


def test_the_same_message_twice_at_once(small: Stage) -> None:
    """While a message is in hand, the same one is put off."""
    gate: Deferred[None] = Deferred()
    handler = small.store().once(lambda message: gate)
    first = handler(Message(1))
    with pytest.raises(Requeue) as put_off:
        handler(Message(1))
    gate.callback(None)

    assert not put_off.value.failure
    assert run(lambda: first) is None
    assert handler(Message(1)) is None


def test_no_batches(small: Stage) -> None:
    """A list of messages is refused, with a word on what to leave out."""
    with pytest.raises(UsageError, match="leave out batch="):
        small.store().once(print)([Message(1)])


# --- time ------------------------------------------------------------------------------


def test_ids_expire(stage: Stage) -> None:
    """After its time a message counts as new again, whether its row was deleted or not."""
    store = stage.store(keep_s=1000)
    handler = store.in_transaction(stage.do)
    handler(Message(1))
    stage.time += 999
    handler(Message(1))
    assert stage.work == ["1"]

    stage.time += 2
    assert not store.known(place(Message(1)))
    handler(Message(1))
    assert stage.work == ["1", "1"]
    stage.time += 2000
    assert (store.expire(), store.expire()) == (1, 0)


def test_rows_go_by_themselves(small: Stage) -> None:
    """While messages come, old rows are deleted now and then."""
    store = small.store(keep_s=30)
    handler = store.once(lambda message: None)
    for offset in range(90):
        handler(Message(offset))
        small.time += 1
    with closing(small.base.connect()) as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM tinymq_seen").fetchall()

    assert 30 <= count <= 32


def test_forgetting_by_hand(small: Stage) -> None:
    """An id that is forgotten is new again."""
    store = small.store(identity=header("id"))
    done: list[int] = []
    handler = store.once(lambda message: done.append(message.offset))
    handler(Message(1, headers=[("id", b"x")]))
    assert store.forget("x")
    assert not store.forget("x")
    handler(Message(2, headers=[("id", b"x")]))
    handler(Message(3, headers=[("id", b"x")]))

    assert done == [1, 2]


# --- filter ----------------------------------------------------------------------------


@given(ids=st.sets(st.text(max_size=9), max_size=120), rate=st.floats(0.001, 0.5))
def test_a_filter_forgets_nothing(ids: set[str], rate: float) -> None:
    """What was added is always found."""
    made = BloomFilter(100, rate)
    for each in ids:
        made.add(each)

    assert all(each in made for each in ids)
    assert (made.count, made.full) == (len(ids), len(ids) >= 100)


def test_a_filter_errs_as_promised() -> None:
    """Of ids that were not added about as many are taken for known as was said."""
    made = BloomFilter(1000, 0.01)
    for number in range(1000):
        made.add(f"known {number}")
    wrong = sum(f"new {number}" in made for number in range(5000))

    assert wrong < 2 * 50
    with pytest.raises(UsageError):
        BloomFilter(0)


def test_the_filter_saves_questions(small: Stage) -> None:
    """A message that is new costs no question; one that may be known costs one; a filter that
    is full is made anew from the table, and larger.
    """
    store = small.store(expected=4, alone=True)
    asked: list[Any] = []
    known = store.known

    def asking(identity: Any) -> bool:
        asked.append(identity)
        return known(identity)

    store.known = asking  # type: ignore[method-assign]
    handler = store.once(lambda message: None)
    for offset in range(20):
        handler(Message(offset))
    few = len(asked)
    for offset in range(20):
        handler(Message(offset))

    assert few <= 5
    assert len(asked) == few + 20
    assert store._filter is not None
    assert store._filter.capacity > 20


@given(
    orders=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["works", "fails", "restarts"])), max_size=15
    )
)
def test_random_repeats_and_crashes(
    orders: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In whatever order messages, repeats, failures and restarts come, work is done once."""
    from tests.patterns.conftest import sqlite_base  # noqa: PLC0415 - one database an example

    stage = Stage(sqlite_base(tmp_path_factory.mktemp("seen") / "base.db"))
    failing = [False]

    def work(message: Message, connection: Any) -> None:
        stage.do(message, connection)
        if failing[0]:
            raise ZeroDivisionError

    handler = stage.store().in_transaction(work)
    done: set[int] = set()
    for offset, what in orders:
        failing[0] = what == "fails"
        if what == "restarts":
            handler = stage.store(expected=2).in_transaction(work)
        try:
            handler(Message(offset))
        except ZeroDivisionError:
            assert offset not in done
        else:
            done.add(offset)
    assert sorted(stage.work) == sorted(map(str, done))
    stage.base.close()


# --- identity --------------------------------------------------------------------------


def test_what_a_message_is_known_by() -> None:
    """The header of an outbox, or its place and since when it is there."""
    message = Message(7)
    assert message_id(message) == "t/0@7/1800000000000" == place(message)
    assert message_id(Message(7, headers=[("message-id", b"ab")])) == "ab"


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (header("id"), "it has no header id"),
        (number_header("n"), "its header n is no whole number: b'x'"),
        (by_key, "it has no key"),
    ],
)
def test_a_message_that_lacks_it_is_rejected(read: Callable[[Any], Any], reason: str) -> None:
    """It can never be handled, so it goes to the dead-letter topic at once, with the reason."""
    with pytest.raises(Reject, match=reason):
        read(Message(1, None, [("n", b"x")]))


def test_texts_of_ids() -> None:
    """Bytes and texts become texts that fit a column, different ones differently."""
    given = [b"\xff", b"a", "é", "n\0n", "x" * 1000, "x" * 1001, b"", b"\n", 5]
    texts = [as_text(each) for each in given]

    assert len({*texts}) == len(given)
    assert max(map(len, texts)) <= 150
    assert texts[1:3] == ["a", "é"]
