"""Messages with a time to live of their own: what producers may say, and where there are some."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from tinymq.errors import CorruptBatch, InvalidDelay
from tinymq.limits import LATEST_MS
from tinymq.wire.batch import BatchHeader
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch

#: Milliseconds by which append times and the channels' time may differ without a reason.
TOLERANCE_MS: Final = 1000
#: Steps of the wall clock that are remembered.
_MOST_STEPS: Final = 10_000

_offset_of: Final = attrgetter("offset")


def check_ttls(batch: Bytes, header: BatchHeader, now_ms: int) -> None:
    """
    Check the times to live of a batch that a producer sent.

    Args:
        batch: The batch.
        header: Its header; it says that there are some.
        now_ms: The wall clock.

    Raises:
        CorruptBatch: They cannot be read.
        InvalidDelay: One is not above zero, or ends beyond the year 9999.
    """
    ttls = RecordBatch(batch, header).ttls
    if len(ttls) != header.records:
        raise CorruptBatch(f"{header.records} records have {len(ttls)} times to live")
    given = [ttl for ttl in ttls if ttl is not None]
    if given and min(given) <= 0:
        raise InvalidDelay(f"a time to live of {min(given)} ms is not above zero")
    if given and now_ms + max(given) > LATEST_MS:
        raise InvalidDelay(
            f"a time to live of {max(given)} ms ends beyond the year 9999: from now on it may be "
            f"at most {LATEST_MS - now_ms} ms; leave it out for no end"
        )


class Mortal:
    """
    The part of a log in which there are messages with a time to live.

    Attributes:
        first: No message below has one.
        end: No message from here on has one.
    """

    def __init__(self) -> None:
        self.first = self.end = 0

    def __bool__(self) -> bool:
        return self.end > 0

    def add(self, start: int, end: int) -> None:
        """
        Take a batch into account.

        Args:
            start: Its first offset.
            end: The offset behind it.
        """
        self.first = min(self.first, start) if self.end else start
        self.end = max(self.end, end)

    def to_list(self) -> list[int]:
        """As plain numbers."""
        return [self.first, self.end]

    def restore(self, numbers: Sequence[int]) -> None:
        """
        Take over what `to_list` gave.

        Args:
            numbers: Two.
        """
        first, end = numbers
        self.first, self.end = int(first), int(end)


class Step(NamedTuple):
    """From an offset on the channels' time is so much more than the append time there."""

    offset: int
    delta: int
    time: int


#: Below the first step.
_NO_STEP: Final = Step(0, 0, 0)


class Steps:
    """
    What was done to the wall clock while batches were appended.

    Args:
        clock: The channels' time.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._steps: list[Step] = []

    def note(self, offset: int, time: int) -> None:
        """
        Compare clocks: a batch is appended.

        Args:
            offset: Its first offset.
            time: Its append time.
        """
        steps = self._steps
        while steps and steps[-1].offset >= offset:
            steps.pop()  # what was there could not be written
        delta = self._clock() - time
        delta = 0 if abs(delta) <= TOLERANCE_MS else delta
        before = steps[-1].delta if steps else 0
        if abs(delta - before) > TOLERANCE_MS or (before and not delta):
            steps.append(Step(offset, delta, time))
            del steps[:-_MOST_STEPS]

    def find(self, offset: int) -> tuple[Step, int | None]:
        """
        Return the step that counts at an offset, and where the next one is.

        Args:
            offset: The offset.
        """
        at = bisect_right(self._steps, offset, key=_offset_of)
        following = self._steps[at].offset if at < len(self._steps) else None
        return self._steps[at - 1] if at else _NO_STEP, following

    def delta(self, offset: int) -> int:
        """
        Return what is to be added to an append time to have the channels' time.

        Args:
            offset: Of the message.
        """
        return self.find(offset)[0].delta if self._steps else 0
