"""What is remembered of single messages, beside the history of their run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tinymq.broker.channel.runs import Run, Runs

#: Marks are looked through when there are so many more than unsettled messages.
_STALE: Final = 1000


class Mark(NamedTuple):
    """
    What is remembered of one message.

    Attributes:
        failed: When it failed first; 0 if it did not.
        redriven: How often it was sent back from the dead-letter topic.
    """

    failed: int
    redriven: int


#: Of a message of which nothing is remembered.
UNMARKED: Final = Mark(0, 0)


class Marks:
    """
    Marks of messages that failed or were sent back.

    They are let go when their messages were given up, or some time after they were
    settled: settling must not cost more because of them.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def __iter__(self) -> Iterator[tuple[int, Mark]]:
        return iter(self._marks.items())

    def of(self, offset: int) -> Mark:
        """
        Return what is remembered of a message.

        Args:
            offset: Its offset.
        """
        return self._marks.get(offset, UNMARKED)

    def put(self, offset: int, mark: Mark) -> None:
        """
        Remember something of a message.

        Args:
            offset: Its offset.
            mark: What.
        """
        self._marks[offset] = mark

    def fail(self, runs: Iterable[Run], now: int) -> None:
        """
        Remember when messages failed that never did before.

        Args:
            runs: Which.
            now: The time.
        """
        marks = self._marks
        for start, end in runs:
            for offset in range(start, end):
                mark = marks.get(offset, UNMARKED)
                if not mark.failed:
                    marks[offset] = mark._replace(failed=now)

    def revive(self, runs: Iterable[Run], redriven: int) -> None:
        """
        Remember that messages were sent back, as if they had never failed.

        Args:
            runs: Which.
            redriven: How often they were.
        """
        mark = Mark(0, redriven)
        for start, end in runs:
            self._marks.update(dict.fromkeys(range(start, end), mark))

    def forget(self, runs: Iterable[Run]) -> None:
        """
        Forget messages.

        Args:
            runs: Which.
        """
        for start, end in runs if self._marks else ():
            for offset in range(start, end):
                self._marks.pop(offset, None)

    def redriven(self, start: int, end: int) -> list[int]:
        """
        Return which messages of a run were sent back from the dead-letter topic, in order.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        marks = self._marks
        if not marks:
            return []
        if end - start < len(marks):
            return [each for each in range(start, end) if marks.get(each, UNMARKED).redriven]
        return sorted(each for each, mark in marks.items() if mark.redriven and start <= each < end)

    def too_many(self, unsettled: int) -> bool:
        """
        Whether most of the messages that are remembered must be settled.

        Args:
            unsettled: How many are not.
        """
        return len(self._marks) > _STALE + 2 * unsettled

    def keep(self, runs: Runs, cursor: int, ahead: Runs) -> None:
        """
        Forget what is settled.

        Args:
            runs: What is not settled below the cursor.
            cursor: The next offset that was not given out yet.
            ahead: What is settled at or behind it.
        """
        self._marks = {
            offset: mark
            for offset, mark in self._marks.items()
            if offset in runs or (offset >= cursor and offset not in ahead)
        }
