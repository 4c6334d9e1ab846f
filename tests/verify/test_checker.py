"""The judge of verify-crash: it must see every way in which a promise can be broken."""

from __future__ import annotations

import pytest

from tinymq.verify.checker import MOST_TOLD, Checker
from tinymq.verify.journal import Receipt
from tinymq.verify.numbered import Mark, Place, mark_of, value_of
from tinymq.verify.report import Report

PLACE = Place("safe", 0)
Records = list[tuple[int, bytes]]


def value(number: int, producer: int = 1) -> bytes:
    """Give the value of one record."""
    return value_of(PLACE, Mark(producer, number))


def records(*numbers: int, producer: int = 1) -> Records:
    """Give the log that holds these numbers from offset 0 on."""
    return [(offset, value(number, producer)) for offset, number in enumerate(numbers)]


def judge(found: Records, *receipts: Receipt, cut: int = 0, tried: int = 100) -> Checker:
    """Read a log; the first `cut` receipts are from before a power cut."""
    checker = Checker(PLACE, lambda place, producer: tried)
    for number, receipt in enumerate(receipts):
        checker.owe(receipt, may_cut=number < cut)
    for offset, content in found:
        checker.read(offset, content)
    checker.settle()
    return checker


def test_all_is_well() -> None:
    """What was promised and is there, in order, is recovered."""
    checker = judge(records(0, 1, 2, 3), Receipt(1, 0, 4, 0))
    assert (dict(checker.counts), checker.recovered, checker.surplus) == ({}, 4, 0)


def test_what_was_not_promised_may_be_there_or_not() -> None:
    """Records without a receipt are counted, and missing ones are no fault."""
    checker = judge(records(0, 1, 3), Receipt(1, 0, 1, 0))
    assert (dict(checker.counts), checker.recovered, checker.surplus) == ({}, 1, 2)


def test_a_lost_record() -> None:
    """An acknowledged record that is not there is lost, at the end and in the middle."""
    assert judge(records(0, 1), Receipt(1, 0, 3, 0)).counts == {"lost": 1}
    middle = judge([(0, value(0)), (1, value(2))], Receipt(1, 0, 2, 0))
    assert middle.counts == {"lost": 1}
    assert middle.findings[0].text == "safe/0: number 1 of producer 1, acknowledged at 1, is gone"


def test_a_duplicated_record() -> None:
    """A record that comes twice is found, whether it was acknowledged or not."""
    assert judge(records(0, 1, 1), Receipt(1, 0, 2, 0)).counts == {"duplicated": 1}
    assert judge(records(0, 1, 0)).counts == {"duplicated": 1}


def test_a_reordered_record() -> None:
    """A record behind a later one of its producer is found."""
    assert judge(records(0, 2, 1)).counts == {"reordered": 1}


def test_producers_do_not_disturb_one_another() -> None:
    """Order holds for each producer by itself."""
    found = [(0, value(0, 1)), (1, value(0, 2)), (2, value(1, 1)), (3, value(1, 2))]
    assert judge(found, Receipt(1, 0, 1, 0), Receipt(2, 1, 1, 3)).counts == {}


def test_a_moved_record() -> None:
    """A record must be where its receipt says, read before or after it came."""
    assert judge(records(0, 1), Receipt(1, 1, 1, 0)).counts == {"moved": 1}
    checker = judge(records(0, 1))
    checker.owe(Receipt(1, 1, 1, 5))
    assert checker.counts == {"moved": 1}


def test_a_changed_record() -> None:
    """One wrong byte, a tombstone, another partition's record: all were never sent."""
    spoiled = value(0)[:-1] + b"!"
    assert judge([(0, spoiled)]).counts == {"foreign": 1}
    assert judge([(0, b"")]).counts == {"foreign": 1}
    elsewhere = value_of(Place("safe", 1), Mark(1, 0))
    assert judge([(0, elsewhere)]).counts == {"foreign": 1}


def test_a_record_that_was_never_tried() -> None:
    """A number that no producer has reached is foreign."""
    assert judge(records(7), tried=7).counts == {"foreign": 1}


def test_a_gap() -> None:
    """Offsets follow one another."""
    assert judge([(0, value(0)), (2, value(1))]).counts == {"gap": 1}


def test_a_cut_end_is_allowed_where_it_was_not_synced() -> None:
    """After a power cut an unsynced topic may lose its end."""
    checker = judge(records(0, 1), Receipt(1, 0, 2, 0), Receipt(1, 2, 3, 2), cut=2)
    assert (dict(checker.counts), checker.recovered, checker.cut) == ({}, 2, 3)


def test_a_cut_middle_is_not() -> None:
    """What is lost must lie behind all that is kept."""
    found = [(0, value(0)), (1, value(1)), (2, value(5))]
    receipts = [Receipt(1, 0, 2, 0), Receipt(1, 2, 1, 2), Receipt(1, 5, 1, 2)]
    assert judge(found, *receipts[:2], cut=2).counts == {}
    found = [(0, value(0)), (1, value(2)), (2, value(3))]
    assert judge(found, Receipt(1, 1, 1, 1), Receipt(1, 3, 1, 2), cut=2).counts == {"lost": 1}


@pytest.mark.parametrize("cut", [True, False])
def test_a_hole_after_a_cut(cut: bool) -> None:
    """The disk may keep later bytes without earlier ones: the broker must not show that."""
    checker = Checker(PLACE, lambda place, producer: 100, after_cut=True)
    checker.owe(Receipt(1, 0, 5, 0), may_cut=cut)
    for offset, content in [(0, value(0)), (3, value(3)), (4, value(4))]:
        checker.read(offset, content)
    checker.settle()
    assert checker.counts == {"hole": 1, "lost": 2}
    report = Report(1)
    report.add(checker)
    assert not report.held
    assert report.problems[0].startswith("hole: safe/0: offset 3 comes where 1 was due")


def test_a_hole_without_receipts() -> None:
    """A hole is forbidden too where nothing in it was acknowledged."""
    checker = Checker(PLACE, lambda place, producer: 100, after_cut=True)
    checker.read(0, value(0))
    checker.read(2, value(2))
    checker.settle()
    report = Report(1)
    report.add(checker)
    assert not report.held


def test_offsets_may_be_given_anew_after_a_cut() -> None:
    """What comes after a cut takes the offsets of what was lost, and must stay."""
    found = [(0, value(0)), (1, value(3))]
    before, after = Receipt(1, 0, 3, 0), Receipt(1, 3, 1, 1)
    assert judge(found, before, after, cut=1).counts == {}
    assert judge(found[:1], before, after, cut=1).counts == {"lost": 1}


def test_reading_goes_on() -> None:
    """A checker can be told more, read more and settle again."""
    checker = judge(records(0, 1, 2), Receipt(1, 0, 2, 0))
    checker.owe(Receipt(1, 2, 1, 2))
    checker.owe(Receipt(1, 3, 1, 3))
    checker.read(3, value(3))
    checker.settle()
    assert (dict(checker.counts), checker.recovered, checker.position) == ({}, 4, 4)


def test_findings_are_bounded() -> None:
    """A thousand losses are counted, and a few are told."""
    checker = judge([], Receipt(1, 0, 1000, 0), tried=1000)
    assert checker.counts == {"lost": 1000}
    assert len(checker.findings) == MOST_TOLD


def test_values_are_their_own_proof() -> None:
    """Each value gives its mark back, whatever its size."""
    for number in range(300):
        assert mark_of(PLACE, value(number)) == Mark(1, number)
    assert max(len(value(number)) for number in range(300)) > 1000


@pytest.mark.parametrize("content", [None, b"", b"1 2 3", b"a b c d", b"1 safe/0 x rest"])
def test_other_values_have_no_mark(content: bytes | None) -> None:
    """What is no numbered value has no mark."""
    assert mark_of(PLACE, content) is None
