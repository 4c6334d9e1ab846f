"""
Judges what became of the messages of channels, when nobody publishes any more.

First consumers finish what is left. Then each acknowledged record must have been
finished, or lie in the dead-letter topic with its reason, once. What was settled
with confirmation must not have come again, and all else must have come.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tinymq.errors import TinyMQError, UnknownTopic
from tinymq.verify.jobs import LOOSE
from tinymq.verify.journal import Journal
from tinymq.verify.numbered import Mark, Place, mark_of
from tinymq.verify.reading import read_all
from tinymq.verify.report import Report
from tinymq.verify.threads import Threads
from tinymq.verify.workbook import Workbook
from tinymq.verify.workers import Worker, finish_all

if TYPE_CHECKING:
    from tinymq.sync import Client

#: Seconds in which consumers must come to the end of what there is.
_PATIENCE: Final = 60.0
_GLANCE: Final = 0.1
#: Headers of a dead letter say where it comes from and why it is there.
ORIGIN: Final = "tinymq-"
#: Where messages are that are not settled.
_LEFT: Final = ("ready", "in_flight", "waiting", "parked", "given_up")


class Inspector:
    """
    Judges channels.

    Args:
        books: Their accounts.
        journal: What was promised to those who published.
        report: Takes the findings.
    """

    def __init__(self, books: Sequence[Workbook], journal: Journal, report: Report) -> None:
        self._books = books
        self._journal = journal
        self._report = report

    def close(
        self, connect: Callable[[], Client], ends: Mapping[Place, int], *, after_cut: bool
    ) -> None:
        """
        Let the rest be finished, and judge everything.

        Args:
            connect: Makes clients.
            ends: Where a power cut took the end of a partition.
            after_cut: Whether there was one.
        """
        self._drain(connect)
        client = connect()
        try:
            for book in self._books:
                self._judge(client, book, ends, after_cut=after_cut)
        finally:
            client.close()

    # --- what is left -----------------------------------------------------------------

    def _drain(self, connect: Callable[[], Client]) -> None:
        threads = Threads(self._journal.broken)
        for book in self._books:
            worker = Worker(book, finish_all, random.Random(0))  # noqa: S311 - nothing secret
            threads.begin(
                f"last worker of {book.job.name}",
                connect,
                worker.until(threads.stopping),
            )
        client = connect()
        try:
            deadline = time.monotonic() + _PATIENCE
            while left := [text for book in self._books for text in _left(client, book)]:
                if time.monotonic() > deadline:
                    for text in left:
                        self._report.problem(f"not settled within {_PATIENCE:.0f} s: {text}")
                    break
                time.sleep(_GLANCE)
        finally:
            client.close()
            threads.join()

    # --- one channel -------------------------------------------------------------------

    def _judge(
        self, client: Client, book: Workbook, ends: Mapping[Place, int], *, after_cut: bool
    ) -> None:
        figures = self._report.figures
        figures["delivered"] += book.delivered
        figures["confirmed"] += book.confirmed
        # What was settled may come again where nothing was synced, and histories are lost.
        loose = after_cut and book.job.topic == LOOSE[0]
        if not loose:
            figures.update(book.counts)
            for text in book.found:
                self._report.problem(text)
        letters = self._letters(client, book, loose=loose)
        cut = ends if loose else {}
        for partition in self._partitions(book):
            self._judge_receipts(book, partition, letters, cut)
        if not loose:
            self._judge_letters(book, letters)

    def _partitions(self, book: Workbook) -> list[Place]:
        return [place for place in self._journal.places() if place.topic == book.job.topic]

    def _judge_receipts(
        self,
        book: Workbook,
        place: Place,
        letters: Mapping[tuple[Place, Mark], int],
        cut: Mapping[Place, int],
    ) -> None:
        named, end = book.named(place.partition), cut.get(place)
        for receipt in self._journal.receipts(place):
            for step in range(receipt.count):
                if end is not None and receipt.offset + step >= end:
                    continue  # it went with the end of the log, or lies where that was
                mark = Mark(receipt.producer, receipt.first + step)
                card = book.card(named, mark)
                if book.job.once:
                    self._report.figures["missed"] += not card.deliveries
                elif not (card.tried or (named, mark) in letters):
                    self._wrong(book, "abandoned", f"{place}: {mark} was never settled: {card}")

    # --- dead letters ------------------------------------------------------------------

    def _letters(
        self, client: Client, book: Workbook, *, loose: bool
    ) -> Mapping[tuple[Place, Mark], int]:
        """Count the dead letters of a channel, and see that each says where it is from."""
        found: dict[tuple[Place, Mark], int] = {}
        try:
            for record in read_all(client, book.job.dead):
                self._report.figures["letters"] += 1
                facts = {name: value.decode() for name, value in record.headers}
                named = book.named(int(facts.get(f"{ORIGIN}partition", "-1")))
                mark = mark_of(named, record.value)
                if mark is not None:
                    found[named, mark] = found.get((named, mark), 0) + 1
                if (mark is None and not loose) or not _says_why(book, facts):
                    self._wrong(
                        book, "misburied", f"a letter with {facts} and {record.value!r:.80}"
                    )
        except UnknownTopic:
            pass  # nothing was given up
        return found

    def _judge_letters(self, book: Workbook, letters: Mapping[tuple[Place, Mark], int]) -> None:
        for what, count in letters.items():
            card = book.card(*what)
            if count > 1:
                self._wrong(book, "misburied", f"{what} is there {count} times")
            if card.closed and not card.rejected:
                self._wrong(book, "misburied", f"{what} was finished: {card}")
        for what, card in book.cards.items():
            if card.rejected and what not in letters:
                self._wrong(book, "misburied", f"{what} was rejected, and is not there: {card}")

    def _wrong(self, book: Workbook, kind: str, text: str) -> None:
        self._report.figures[kind] += 1
        self._report.problem(f"channel {book.job.name}: {kind}: {text}")


def _says_why(book: Workbook, facts: Mapping[str, str]) -> bool:
    reason, failures = facts.get(f"{ORIGIN}reason"), int(facts.get(f"{ORIGIN}failures", "0"))
    attempts = int(book.job.config.get("attempts", 10))
    told = facts.get(f"{ORIGIN}topic") == book.job.topic
    told = told and facts.get(f"{ORIGIN}channel") == book.job.name
    if reason == "rejected":
        return told and facts.get(f"{ORIGIN}text") == "no good"
    return told and reason in {"failed", "timeout", "lost"} and failures >= attempts


def _left(client: Client, book: Workbook) -> list[str]:
    """Say where messages of a channel are that are not settled."""
    job = book.job
    try:
        found: dict[str, Any] = client.admin.channel(job.topic, job.name)["channel"]
    except TinyMQError as error:
        return [f"{job.topic}/{job.name}: {error!r}"]
    left = {
        name: row[name]
        for row in found["partitions"]
        for name in _LEFT
        if row[name] is None or row[name]
    }
    return [f"{job.topic}/{job.name}: {left}"] if left or found["silent"] else []
