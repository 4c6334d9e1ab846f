"""Hears what was promised about one data folder, and what is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tinymq import errors
from tinymq.verify.checker import Checker
from tinymq.verify.journal import Journal
from tinymq.verify.load import LOSSY, Connect
from tinymq.verify.numbered import Place
from tinymq.verify.reading import feed, list_topics
from tinymq.verify.report import Report

#: What a caller may hear while its broker dies and comes back.
_ALLOWED: Final = (errors.ClientError, errors.StateError)
#: What the producers of a topic that lost its end may hear too.
_ALLOWED_AFTER_CUT: Final = (
    errors.OutOfOrderSequence,
    errors.UnknownProducer,
    errors.ProducerFenced,
)


class Court:
    """
    Judges one data folder: now and then what is new, and at the end everything.

    Attributes:
        journal: What was promised.

    Args:
        connect: Makes clients.
        report: Takes the findings.
    """

    def __init__(self, connect: Connect, report: Report) -> None:
        self.journal = Journal()
        self._connect = connect
        self._report = report
        self._checkers: dict[Place, Checker] = {}
        self._heard: dict[Place, int] = {}
        self._before_cut: dict[Place, int] | None = None

    def power_failed(self) -> None:
        """Remember that what was promised so far comes from before a power cut."""
        self._before_cut = self.journal.counts()
        self.journal.power_cuts += 1

    def hear(self, url: str) -> None:
        """Judge what was promised since the last time; figures come with `close`."""
        topics = set(self.journal.topics)
        counts = self.journal.counts()
        fresh = [place for place, count in counts.items() if count > self._heard.get(place, 0)]
        for place in fresh:
            checker = self._checkers.setdefault(place, Checker(place, self.journal.tried))
            for receipt in self.journal.receipts(place, self._heard.get(place, 0), counts[place]):
                checker.owe(receipt)
            self._heard[place] = counts[place]
        checkers = [self._checkers[place] for place in fresh]
        self._read(url, checkers, topics)
        for checker in checkers:
            checker.settle()
            self._report.tell(checker)

    def close(self, url: str) -> dict[Place, int]:
        """
        Judge everything from its start, when nobody publishes any more.

        Returns:
            By partition, where a power cut took the end.
        """
        checkers = [self._owing(place) for place in self.journal.places()]
        self._read(url, checkers, self.journal.topics)
        for checker in checkers:
            checker.settle()
            self._report.add(checker)
        self._judge_calls()
        self._report.figures["acknowledged"] += self.journal.acknowledged
        self._report.figures["topics"] += len(self.journal.topics)
        ends = ((checker.place, checker.cut_from) for checker in checkers)
        return {place: end for place, end in ends if end is not None}

    def _owing(self, place: Place) -> Checker:
        """Make a checker that knows everything promised of a place."""
        after_cut = self._before_cut is not None
        checker = Checker(place, self.journal.tried, after_cut=after_cut)
        cut = (self._before_cut or {}).get(place, 0) if place.topic in LOSSY else 0
        for number, receipt in enumerate(self.journal.receipts(place)):
            checker.owe(receipt, may_cut=number < cut)
        return checker

    def _read(self, url: str, checkers: Iterable[Checker], topics: set[str]) -> None:
        by_topic: dict[str, dict[int, Checker]] = defaultdict(dict)
        for checker in checkers:
            by_topic[checker.place.topic][checker.place.partition] = checker
        client = self._connect(url)
        try:
            there = list_topics(client)
            self._judge_topics(there, topics)
            for topic, parts in by_topic.items():
                if topic in there:
                    for problem in feed(client, topic, parts):
                        self._report.problem(problem)
        finally:
            client.close()

    def _judge_topics(self, there: set[str], promised: set[str]) -> None:
        for topic in sorted(promised - there):
            self._report.figures["topics_lost"] += 1
            self._report.problem(f"topic {topic} was acknowledged and is gone")
        for topic in sorted(there - self.journal.topics_tried):
            self._report.problem(f"topic {topic} was never made")

    def _judge_calls(self) -> None:
        """Look at the calls that failed: a broker's death excuses only some errors."""
        for (topic, kind), count in self.journal.refused.items():
            self._report.figures["refused"] += count
            cut = self._before_cut is not None and topic in LOSSY
            if not issubclass(kind, _ALLOWED + (_ALLOWED_AFTER_CUT if cut else ())):
                self._report.problem(f"{count} calls on {topic} failed with {kind.__name__}")
        for text in self.journal.broken:
            self._report.problem(text)
