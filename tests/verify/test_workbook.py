"""The judges of channels: they must see every way in which a promise can be broken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from tinymq.client.core.message import QueueMessage
from tinymq.errors import UnknownTopic
from tinymq.verify.inspector import Inspector
from tinymq.verify.jobs import JOBS, LOOSE, WORK, Act, Job, key_of
from tinymq.verify.journal import Journal, Receipt
from tinymq.verify.numbered import Mark, Place, value_of
from tinymq.verify.report import Report
from tinymq.verify.workbook import Workbook
from tinymq.verify.workers import finish_all
from tinymq.wire.records import Headers, Record

PLACE = Place("work", 0)
JOB = Job(topic="work", name="free", config={"attempts": 4})


def leased(lease: int, attempt: int, failures: int) -> Any:
    """Give a lease, as far as messages tell of it."""
    return SimpleNamespace(
        topic="work", partition=0, lease_id=lease, base=0, attempt=attempt, failures=failures
    )


def message(number: int = 0, lease: int = 1, attempt: int = 1, failures: int = 0) -> QueueMessage:
    """Give a message as it is handed out; its offset is its number."""
    mark = Mark(7, number)
    record = Record(number, 0, key_of(mark), value_of(PLACE, mark), (), None)
    return QueueMessage(record, leased(lease, attempt, failures), 0)


def settle(book: Workbook, one: QueueMessage, act: Act, *, late: bool = False) -> None:
    """Hand a message out, and settle it with confirmation."""
    mark = book.hand_out(one)
    assert mark is not None
    book.begin(one, mark, act)
    (book.late if late else book.confirm)(one, mark, act)


@pytest.mark.parametrize("act", ["finish", "reject"])
def test_what_was_settled_must_not_come_again(act: Act) -> None:
    """Two leases of one message cannot both be confirmed, in whatever order they were heard of."""
    for leases in ((5, 6), (6, 5)):
        book = Workbook(JOB)
        settle(book, message(lease=leases[0]), act)
        settle(book, message(lease=leases[1]), "finish")
        assert book.counts == {"returned": 1}
        assert "was settled with confirmation" in book.found[0]


def test_a_lost_message_may_be_handed_out_late() -> None:
    """It is looked at closely, and nothing is wrong when its settle is late."""
    book = Workbook(JOB)
    settle(book, message(lease=5), "finish")
    late = message(lease=6)
    settle(book, late, "finish", late=True)
    assert book.is_suspicious(late, Mark(7, 0))
    assert not book.counts


def test_attempts_and_failures_must_not_be_forgotten() -> None:
    """After a confirmed return the next delivery has one more of both."""
    book = Workbook(JOB)
    settle(book, message(lease=1, attempt=2, failures=1), "requeue")
    book.hand_out(message(lease=2, attempt=3, failures=2))
    assert not book.counts
    book.hand_out(message(lease=3, attempt=2, failures=2))
    book.hand_out(message(lease=4, attempt=3, failures=1))
    assert book.counts == {"forgotten": 2}


def test_what_is_given_back_keeps_its_number() -> None:
    """It counts as not delivered, and not as less."""
    book = Workbook(JOB)
    settle(book, message(lease=1, attempt=2, failures=1), "give_back")
    book.hand_out(message(lease=2, attempt=2, failures=1))
    assert not book.counts
    book.hand_out(message(lease=3, attempt=1))
    assert book.counts == {"forgotten": 1}


def test_at_most_once_is_not_twice() -> None:
    """A message without a lease comes once, and one with a lease once in each."""
    once = Workbook(Job(topic="work", name="once", config={"delivery": "at_most_once"}))
    for _ in range(2):
        once.hand_out(message(lease=0))
    book = Workbook(JOB)
    for _ in range(2):
        book.hand_out(message(lease=1))
    assert once.counts == book.counts == {"twice": 1}


@pytest.mark.parametrize(
    ("order", "numbers", "wrong"),
    [
        ("none", [1, 0], 0),
        ("strict", [0, 1, 0, 2], 0),
        ("strict", [1, 0], 1),
        ("key", [1, 0, 6, 5], 0),
        ("key", [6, 0, 1], 1),
    ],
)
def test_first_deliveries_are_in_order(order: str, numbers: list[int], wrong: int) -> None:
    """Of a partition, or of each key; what comes again may come later."""
    book = Workbook(Job(topic="work", name="c", config={"order": order}))
    for lease, number in enumerate(numbers):
        book.hand_out(message(number, lease=lease + 1))
    assert book.counts["disordered"] == wrong


def test_a_message_that_nobody_wrote() -> None:
    """It is a finding, and has no mark."""
    book = Workbook(JOB)
    record = Record(0, 0, None, b"foreign", (), None)
    one = QueueMessage(record, leased(1, 1, 0), 0)
    assert book.hand_out(one) is None
    assert book.counts == {"foreign": 1}


# --- at the end ---------------------------------------------------------------------------


class Channels:
    """A client of a broker with dead letters, whose channels are empty."""

    def __init__(self, letters: list[tuple[bytes, Headers]], left: int = 0) -> None:
        self.admin = self
        self._letters = letters
        self._left = left
        self._read = False

    def channel(self, topic: str, name: str) -> dict[str, Any]:
        """Describe a channel."""
        names = ("ready", "in_flight", "waiting", "parked", "given_up")
        row = {**dict.fromkeys(names, 0), "waiting": self._left}
        return {"channel": {"partitions": [row], "silent": []}}

    def operate(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Describe the dead-letter topic."""
        if not self._letters:
            raise UnknownTopic
        return {"topic": {"partitions": [{"partition": 0, "end": len(self._letters)}]}}

    def subscription(self, *given: Any) -> Self:
        """Subscribe."""
        return self

    def consumer(self) -> Self:
        """Read."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        """End."""

    def next(self, timeout: float) -> None:
        """Have no message."""

    def assign(self, *given: Any) -> None:
        """Read from the start."""

    def position(self, topic: str, partition: int) -> int:
        """Tell the next offset."""
        return len(self._letters) if self._read else 0

    def next_batch(self, timeout: float) -> Iterator[Record]:
        """Give all letters."""
        self._read = True
        for offset, (value, headers) in enumerate(self._letters):
            yield Record(offset, 0, None, value, headers, None)

    def close(self) -> None:
        """End."""


def letter(number: int = 0, /, **facts: str) -> tuple[bytes, Headers]:
    """Give a dead letter."""
    given = {"topic": "work", "partition": "0", "channel": "free", "failures": "1", **facts}
    headers = [(f"tinymq-{name}", value.encode()) for name, value in given.items()]
    return value_of(PLACE, Mark(7, number)), headers


REJECTED = {"reason": "rejected", "text": "no good"}


def inspect(
    book: Workbook, *letters: tuple[bytes, Headers], count: int = 1, **given: Any
) -> Report:
    """Judge a channel of a topic to which some records were published."""
    journal, report = Journal(), Report(1)
    journal.begin(PLACE, 7, count)
    journal.acknowledge(PLACE._replace(topic=book.job.topic), Receipt(7, 0, count, 0))
    given = {"ends": {}, "after_cut": False, **given}
    inspector = Inspector([book], journal, report)
    inspector.close(lambda: cast("Any", Channels([*letters])), **given)
    return report


def test_all_was_done() -> None:
    """What was finished, or rejected and is buried, is fine."""
    book = Workbook(JOB)
    settle(book, message(0), "finish")
    settle(book, message(1), "reject")
    settle(book, message(2), "requeue")
    report = inspect(book, letter(1, **REJECTED), letter(2, reason="failed", failures="4"), count=3)
    assert report.problems == []
    figures = report.figures
    assert (figures["delivered"], figures["confirmed"], figures["letters"]) == (3, 3, 2)


@pytest.mark.parametrize(
    ("acts", "letters", "wrong"),
    [
        ([], [], "abandoned"),
        (["requeue"], [], "abandoned"),
        (["reject"], [], "misburied"),
        (["reject"], [letter(**REJECTED)] * 2, "misburied"),
        (["finish"], [letter(**REJECTED)], "misburied"),
        (["reject"], [letter(reason="rejected")], "misburied"),
        (["requeue"], [letter(reason="failed", failures="3")], "misburied"),
        (["reject"], [(b"changed", letter(**REJECTED)[1])], "misburied"),
        (["reject"], [letter(**REJECTED, channel="other")], "misburied"),
    ],
)
def test_something_is_wrong(
    acts: list[Act], letters: list[tuple[bytes, Headers]], wrong: str
) -> None:
    """A message that nobody settled, and dead letters that are not as they must be."""
    book = Workbook(JOB)
    for act in acts:
        settle(book, message(), act)
    report = inspect(book, *letters)
    assert report.figures[wrong] > 0
    assert not report.held
    assert report.problems


def test_what_was_late_settles_nothing() -> None:
    """Who was told so knows that the message comes again."""
    book = Workbook(JOB)
    settle(book, message(), "finish", late=True)
    assert inspect(book).figures["abandoned"] == 1


def test_at_most_once_may_miss_some() -> None:
    """They are counted."""
    report = inspect(Workbook(JOBS[3]), count=2)
    assert report.held
    assert report.figures["missed"] == 2


@pytest.mark.parametrize(("end", "lost"), [(0, 0), (1, 1)])
def test_a_power_cut_excuses_what_was_not_synced(end: int, lost: int) -> None:
    """Only in the topic that does not sync, and only behind the end that is left."""
    book = Workbook(JOBS[4])
    place = Place(LOOSE[0], 0)
    report = inspect(book, ends={place: end}, after_cut=True)
    assert report.figures["abandoned"] == lost
    work = inspect(Workbook(JOBS[0]), ends={Place(WORK[0], 0): 0}, after_cut=True)
    assert work.figures["abandoned"] == 1


def test_what_is_never_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial does not wait for ever."""
    monkeypatch.setattr("tinymq.verify.inspector._PATIENCE", 0.0)
    report = Report(1)
    client = cast("Any", Channels([], left=3))
    Inspector([Workbook(JOB)], Journal(), report).close(lambda: client, {}, after_cut=False)
    assert report.problems == ["not settled within 0 s: work/free: {'waiting': 3}"]


# --- what consumers do --------------------------------------------------------------------


def test_everything_is_done_sometimes() -> None:
    """Each act has its share, with confirmation and without."""
    chance = random.Random(1)
    chosen = {JOBS[0].choose(chance) for _ in range(2000)}
    acts: list[Act] = ["finish", "requeue", "reject", "give_back", "hold"]
    assert chosen == {(act, wanted) for act in acts for wanted in (False, True)}
    assert finish_all(chance) == ("finish", True)
    assert JOBS[0].dead == "work.free.dead"
