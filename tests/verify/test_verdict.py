"""The verdict on a cluster, and the report of it."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from tinymq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InternalError,
    MetaUnavailable,
    OutOfOrderSequence,
    UnreachableError,
)
from tinymq.verify.beats import Beats
from tinymq.verify.checker import Checker
from tinymq.verify.clusterreport import CLUSTER_FIGURES, TITLES, ClusterReport, Entry
from tinymq.verify.crowd import Lead, Stage, named
from tinymq.verify.journal import Journal, Receipt
from tinymq.verify.numbered import Mark, Place, value_of
from tinymq.verify.verdict import judge_calls, judge_records, judge_topics

FIRST, SECOND = Place("safe", 0), Place("safe", 1)


def judged(journal: Journal, found: dict[Place, list[int]]) -> ClusterReport:
    """Judge records of one writer without keys, by their numbers."""
    checkers = {}
    for place, numbers in found.items():
        checker = checkers[place] = Checker(place, journal.tried, named=named(place.topic))
        for offset, number in enumerate(numbers):
            checker.read(offset, value_of(named(place.topic), Mark(7, number)))
    report = ClusterReport(1)
    judge_records(report, journal, checkers)
    for checker in checkers.values():
        report.add(checker)
    return report


def wrote(*receipts: tuple[Place, int, int]) -> Journal:
    """Keep receipts: place, number and offset; ten records were tried."""
    journal = Journal()
    journal.begin(named("safe"), 7, 10)
    for place, number, offset in receipts:
        journal.acknowledge(place, Receipt(7, number, 1, offset))
    return journal


def test_numbers_spread_over_partitions() -> None:
    """Records without keys go anywhere: numbers that are missing in one partition are no loss."""
    journal = wrote((FIRST, 0, 0), (SECOND, 1, 0), (FIRST, 2, 1))
    report = judged(journal, {FIRST: [0, 2], SECOND: [1, 5]})
    assert report.problems == []
    assert report.held
    assert (report.figures["recovered"], report.figures["surplus"]) == (3, 1)


def test_a_record_that_is_lost() -> None:
    """An acknowledged record that is not there is lost, wherever others are."""
    report = judged(wrote((FIRST, 0, 0), (FIRST, 1, 1)), {FIRST: [0], SECOND: []})
    assert report.figures["lost"] == 1
    assert not report.held


def test_a_record_in_two_partitions() -> None:
    """A record must not be in a second partition, acknowledged or not."""
    journal = wrote((FIRST, 0, 0))
    report = judged(journal, {FIRST: [0, 3], SECOND: [0, 3]})
    assert report.figures["duplicated"] == 2
    assert "duplicated" in report.problems[0]


def test_topics() -> None:
    """Topics that were acknowledged must be there, and no others but those that were tried."""
    journal, report = Journal(), ClusterReport(1)
    journal.topics |= {"kept", "gone"}
    journal.topics_tried |= {"kept", "gone", "perhaps"}
    judge_topics(report, journal, {"kept", "perhaps", "strange"})
    assert report.problems == [
        "topic gone was acknowledged and is gone",
        "topic strange was never made",
    ]


@pytest.mark.parametrize(
    ("error", "allowed"),
    [
        (ConnectionLost(), True),
        (DeadlineExceeded(), True),
        (UnreachableError(), True),
        (MetaUnavailable(), True),
        (OutOfOrderSequence(), False),
        (InternalError(), False),
    ],
)
def test_calls(error: Exception, allowed: bool) -> None:
    """What may pass may be heard while processes die; calls that hang may not."""
    clock = Clock()
    stage = Stage(lambda first: "", Journal(), Beats(clock.seconds), Lead({}), 1)
    stage.refused("safe", error)
    report = ClusterReport(1)
    judge_calls(report, stage)
    assert report.held is allowed
    assert report.figures["refused"] == 1
    clock.advance(100)
    stage.beats.took("read", 0, 1)
    stage.journal.broken.append("a thread died")
    judge_calls(report, stage)
    assert "a thread died" in report.problems
    assert "a call (read) took 100.0 s, longer than its deadline" in report.problems
    assert report.calls == {"read": 100.0}


def test_report() -> None:
    """The report has every figure and a row for each case."""
    report = ClusterReport(3, seconds=1.25)
    entry = Entry("SIGKILL b1", away=6.04)
    entry.worst("writes", 1.0)
    entry.worst("writes", 0.5)
    report.entries.append(entry)
    report.calls["read"] = 0.5
    document = report.document()
    assert document["held"] is True
    assert set(document) >= {name for name, _ in CLUSTER_FIGURES}
    assert document["cases_tried"][0]["writes"] == 1.0
    assert document["cases_tried"][0]["reads"] is None
    titles, row = report.table()
    assert len(titles) == len(row) == len(TITLES)
    assert row[:3] == ["SIGKILL b1", "6.0", "-"]
    assert row[titles.index("writes")] == "1.0"
    assert ("longest call: read", "0.5 s") in report.lines()
