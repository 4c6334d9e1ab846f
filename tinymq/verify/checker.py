"""
The judge: compares one partition with what was promised about it.

What must hold of the records of one partition, read from its start:

- offsets follow one another without a gap;
- every record is one that somebody sent, byte for byte;
- the numbers of each producer rise: none twice, none out of order;
- every acknowledged record is there, at the offset that its receipt names.

A record whose receipt never came may be there or not. A topic that is synced
only now and then may lose an end of its logs in a power cut: then what is lost
must lie behind everything that is kept. A hole, offsets missing before others,
is forbidden whatever the policy: the disk may keep later writes without earlier
ones, the broker may not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from attrs import frozen

from tinymq.verify.journal import Receipt
from tinymq.verify.numbered import Mark, Place, mark_of

Kind = Literal["lost", "duplicated", "reordered", "moved", "foreign", "gap", "hole"]

#: Findings of one partition that are told in words; the count goes on.
MOST_TOLD: Final = 20


@frozen
class Finding:
    """
    Something that must not be.

    Attributes:
        kind: What was done to the record.
        place: In which partition.
        text: The sentence for people.
    """

    kind: Kind
    place: Place
    text: str


class _Promise(NamedTuple):
    """At which offset a record must be, and whether a power cut may have taken it."""

    offset: int
    may_cut: bool


class Checker:
    """
    Judges one partition; reading may go on from where it ended before.

    Attributes:
        place: The partition.
        position: The next offset to be read.
        findings: What must not be.
        counts: How many findings there are of each kind.
        recovered: Acknowledged records that were found where they should be.
        surplus: Records found that nobody has a receipt for.
        cut: Acknowledged records that a power cut took, where that is allowed.
        cut_from: The first offset of a lost end; None when no end was lost.

    Args:
        place: The partition.
        tried: Tells how many records a producer has sent here.
        after_cut: Whether a power cut came before the reading.
        named: The place that the values bear, when their writers could not know
            the partition; then numbers may be missing here.
    """

    def __init__(
        self,
        place: Place,
        tried: Callable[[Place, int], int],
        *,
        after_cut: bool = False,
        named: Place | None = None,
    ) -> None:
        self.place = place
        self._named = named or place
        self.position = 0
        self.findings: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self.recovered = 0
        self.cut = 0
        self.cut_from: int | None = None
        self._after_cut = after_cut
        self._tried = tried
        self._owed: dict[Mark, _Promise] = {}
        self._early: dict[Mark, int] = {}
        self._last: dict[int, int] = {}
        self._skipped: dict[int, set[int]] = defaultdict(set)
        self._kept_to = -1

    @property
    def surplus(self) -> int:
        """Records found that nobody has a receipt for."""
        return len(self._early)

    @property
    def unexpected(self) -> Mapping[Mark, int]:
        """Where the records are that nobody has a receipt for."""
        return self._early

    def owe(self, receipt: Receipt, *, may_cut: bool = False) -> None:
        """
        Take note of what was promised.

        Args:
            receipt: The promise.
            may_cut: A power cut came behind it, and the topic may lose its end.
        """
        for step in range(receipt.count):
            mark = Mark(receipt.producer, receipt.first + step)
            promise = _Promise(receipt.offset + step, may_cut)
            found = self._early.pop(mark, None)
            if found is None:
                self._owed[mark] = promise
            else:
                self._match(mark, promise, found)

    def read(self, offset: int, value: bytes | None) -> None:
        """Judge the next record of the partition."""
        if offset != self.position:
            text = f"offset {offset} comes where {self.position} was due"
            self._find("hole" if self._after_cut else "gap", text)
        self.position = offset + 1
        mark = mark_of(self._named, value)
        if mark is None or mark.number >= self._tried(self._named, mark.producer):
            self._find("foreign", f"the record at {offset} was never sent: {value!r:.80}")
        elif self._in_order(mark, offset):
            due = self._owed.pop(mark, None)
            if due is None:
                self._early[mark] = offset
            else:
                self._match(mark, due, offset)

    def settle(self) -> None:
        """Judge what was promised and not found, at the end of the partition."""
        cuttable = [each.offset for each in self._owed.values() if each.may_cut]
        self.cut_from = min(cuttable, default=None)
        at_end = self.cut_from is not None and self.cut_from > self._kept_to
        for mark, promise in self._owed.items():
            if promise.may_cut and at_end:
                self.cut += 1
            else:
                self._find("lost", f"{_who(mark)}, acknowledged at {promise.offset}, is gone")
        self._owed.clear()

    def _in_order(self, mark: Mark, offset: int) -> bool:
        last = self._last.get(mark.producer, -1)
        if mark.number > last:
            self._skipped[mark.producer].update(range(last + 1, mark.number))
            self._last[mark.producer] = mark.number
            return True
        if mark.number in self._skipped[mark.producer]:
            self._skipped[mark.producer].discard(mark.number)
            self._find("reordered", f"{_who(mark)} at {offset} comes behind number {last}")
            self._owed.pop(mark, None)
        else:
            self._find("duplicated", f"{_who(mark)} is at {offset} once more")
        return False

    def _match(self, mark: Mark, due: _Promise, found: int) -> None:
        if due.offset != found:
            self._find("moved", f"{_who(mark)}, acknowledged at {due.offset}, is at {found}")
            return
        self.recovered += 1
        if due.may_cut:
            self._kept_to = max(self._kept_to, found)

    def _find(self, kind: Kind, text: str) -> None:
        self.counts[kind] += 1
        if len(self.findings) < MOST_TOLD:
            self.findings.append(Finding(kind, self.place, f"{self.place}: {text}"))


def _who(mark: Mark) -> str:
    return f"number {mark.number} of producer {mark.producer}"
