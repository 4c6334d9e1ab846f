"""Where reading starts: an end of the log, an offset, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from attrs import frozen

from tinymq.errors import UsageError
from tinymq.wire.fields import I32
from tinymq.wire.messages import EARLIEST, LATEST


@frozen
class At:
    """
    Start with the first record appended at or after a time.

    Attributes:
        ms: Milliseconds since the epoch.
    """

    ms: int


class Mark(NamedTuple):
    """
    A position to be stored, from which it can be told whether records before it were lost.

    Attributes:
        offset: The offset to be read next.
        epoch: The leader epoch of the record before it, or -1 if it is not known:
            then nobody is told.
    """

    offset: int
    epoch: int = -1


#: A start as the client works with it: `EARLIEST`, `LATEST`, an offset, `At` or `Mark`.
Place: TypeAlias = int | At | Mark
#: A start as callers may give it: a word stands for `EARLIEST` or `LATEST`, a pair for a `Mark`.
Start: TypeAlias = Place | Literal["earliest", "latest"] | tuple[int, int]

WORDS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}


def read_start(given: Any) -> Place:
    """
    Check a start.

    Args:
        given: As the caller gave it.

    Raises:
        UsageError: It is none.
    """
    if isinstance(given, str) and given in WORDS:
        return WORDS[given]
    if type(given) is int and given >= EARLIEST:
        return given
    if isinstance(given, At) and type(given.ms) is int and given.ms >= 0:
        return given
    if isinstance(given, tuple) and len(given) == len(Mark._fields):
        offset, epoch = given
        if type(offset) is type(epoch) is int and offset >= 0 and -1 <= epoch <= I32:
            return Mark(offset, epoch)
    raise UsageError(
        f"a start is EARLIEST or 'earliest', LATEST or 'latest', an offset from 0, a pair of "
        f"offset and epoch, or At(milliseconds), not {given!r:.100}"
    )


@frozen
class Starts:
    """
    Where each partition of one assignment starts.

    Attributes:
        named: Those that have a start of their own.
        others: The start of all others.
    """

    named: Mapping[int, Place]
    others: Place

    @classmethod
    def read(cls, given: Any) -> Starts:
        """
        Check what `assign` was given.

        Args:
            given: One start for all, or a mapping from partitions to starts;
                those that it does not name start at `EARLIEST`.

        Raises:
            UsageError: One is no start, or a partition is no number.
        """
        if not isinstance(given, Mapping):
            return cls({}, read_start(given))
        for partition in given:
            if type(partition) is not int or partition < 0:
                raise UsageError(f"starts are given by partition, a number, not {partition!r:.100}")
        return cls({number: read_start(one) for number, one in given.items()}, EARLIEST)

    def of(self, partition: int) -> Place:
        """
        Give the start of a partition.

        Args:
            partition: Its number.
        """
        return self.named.get(partition, self.others)


__all__ = ["EARLIEST", "LATEST", "At", "Mark", "Place", "Start", "Starts", "read_start"]
