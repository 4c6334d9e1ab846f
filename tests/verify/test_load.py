"""The producers of verify-crash, and what they take for a promise."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tinymq.client.core.results import Sent
from tinymq.sync import Client
from tinymq.verify.journal import Journal
from tinymq.verify.load import Sender
from tinymq.verify.numbered import Place


class Producer:
    """A producer whose call spans a power cut, if it is told so."""

    def __init__(self, journal: Journal, cuts: int, runs: list[tuple[int, int, int]]) -> None:
        self._journal = journal
        self._cuts = cuts
        self._runs = runs

    def send_batch(
        self, topic: str, values: list[bytes], keys: list[bytes] | None, partition: int
    ) -> Sent:
        """Answer with the runs, after the cut."""
        self._journal.power_cuts += self._cuts
        return Sent(len(values), self._runs)


def receipts(topic: str, cuts: int, runs: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Numbers and offsets that a call of four records leaves in the journal."""
    journal, place = Journal(), Place(topic, 0)

    class Connection:
        """A client with that producer."""

        def producer(self, config: Any) -> Producer:
            """Give the producer."""
            return Producer(journal, cuts, runs)

    Sender(1, cast("Client", Connection()), journal).send(place, 4)
    count = journal.counts().get(place, 0)
    return [(each.first, each.offset) for each in journal.receipts(place, 0, count)]


@pytest.mark.parametrize("topic", ["safe", "timed"])
def test_receipts(topic: str) -> None:
    """Every run of a call is a receipt, in order."""
    assert receipts(topic, 0, [(0, 5, 2), (0, 9, 2)]) == [(0, 5), (2, 9)]


def test_receipts_over_a_cut() -> None:
    """Over a power cut the runs of an unsynced topic tell nothing; those of a synced one do."""
    assert receipts("timed", 1, [(0, 5, 2), (0, 9, 2)]) == []
    assert receipts("timed", 1, [(0, 5, 4)]) == [(0, 5)]
    assert receipts("safe", 1, [(0, 5, 2), (0, 9, 2)]) == [(0, 5), (2, 9)]
