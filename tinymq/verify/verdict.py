"""What is wrong with what was found at the end of a trial of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tinymq.errors import DeadlineExceeded
from tinymq.verify.checker import Checker
from tinymq.verify.clusterreport import ClusterReport
from tinymq.verify.crowd import Stage
from tinymq.verify.journal import Journal
from tinymq.verify.numbered import Mark, Place


def judge_records(
    report: ClusterReport, journal: Journal, checkers: Mapping[Place, Checker]
) -> None:
    """
    Compare what was read of all partitions with all receipts.

    A record that was acknowledged in one partition must not be in another one: its
    client chose another place while the first was still possible.
    """
    promised: dict[tuple[str, Mark], Place] = {}
    for place, checker in checkers.items():
        for receipt in journal.receipts(place):
            checker.owe(receipt)
            for number in range(receipt.first, receipt.first + receipt.count):
                promised[place.topic, Mark(receipt.producer, number)] = place
        checker.settle()
    for place, checker in checkers.items():
        report.tell(checker)
        for mark, offset in checker.unexpected.items():
            other = promised.setdefault((place.topic, mark), place)
            if other != place:
                report.figures["duplicated"] += 1
                report.problem(f"duplicated: {mark} is in {other}, and at {offset} of {place}")


def judge_topics(report: ClusterReport, journal: Journal, there: AbstractSet[str]) -> None:
    """Compare the topics that are there with those that were made."""
    for topic in sorted(journal.topics - there):
        report.figures["topics_lost"] += 1
        report.problem(f"topic {topic} was acknowledged and is gone")
    for topic in sorted(there - journal.topics_tried):
        report.problem(f"topic {topic} was never made")


def judge_calls(report: ClusterReport, stage: Stage) -> None:
    """Look at the calls that failed, or took too long."""
    for (topic, kind), count in stage.journal.refused.items():
        report.figures["refused"] += count
        if not excused(kind):
            report.problem(
                f"{count} calls on {topic} failed with {kind.__name__}: {stage.words.get(kind)}"
            )
    for text in stage.journal.broken:
        report.problem(text)
    for what, took in stage.beats.overruns:
        report.problem(f"a call ({what}) took {took:.1f} s, longer than its deadline")
    report.calls = dict(stage.beats.longest)


def excused(error: type[Exception]) -> bool:
    """Whether a caller may hear this while processes die and come back."""
    return issubclass(error, DeadlineExceeded) or bool(getattr(error, "retriable", False))
