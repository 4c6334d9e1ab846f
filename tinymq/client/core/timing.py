"""
When records come, how long they live, and their ids, as callers say it and as a batch has it.

A due time is one whole number, as on the wire: milliseconds since the epoch, or,
below 0, a delay of so many milliseconds; 0 is at once. A delay is counted from
`since`, the time of the call; what passes until its batch is written is taken off
then. Everything is rounded up, for nothing may come early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, floor, isfinite
from typing import Any, Final, NamedTuple

from tinymq.client.core.messageids import ID_OVERHEAD, message_id, message_ids
from tinymq.errors import InvalidDelay, UsageError
from tinymq.limits import LATEST_MS

#: A span of time: seconds, or a timedelta.
Span = float | timedelta
#: A point in time: milliseconds since the epoch, or a datetime with its zone.
Moment = int | datetime

#: Bytes that a due time, a time to live and an id need at most.
TIMES_OVERHEAD: Final = 18 + ID_OVERHEAD

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_BEYOND: Final = f"the end of the year 9999 ({LATEST_MS} ms since the epoch)"


def wall_ms() -> int:
    """Tell the time of this machine, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Timing(NamedTuple):
    """
    When one record comes, how long it lives, and its id.

    Attributes:
        due: As on the wire; 0 for a record that is not delayed.
        ttl: Milliseconds from when it comes, or None.
        since: From when a delay counts.
        id: Its message id, or None.
    """

    due: int
    ttl: int | None
    since: float
    id: bytes | None = None


class Timings(NamedTuple):
    """
    The same of many records; a column is None when no record has any.

    Attributes:
        dues: As on the wire, 0 for those that are not delayed.
        ttls: Milliseconds from when each comes, or None.
        since: From when delays count.
        ids: Message ids, or None.
    """

    dues: list[int] | None
    ttls: list[int | None] | None
    since: float
    ids: list[bytes | None] | None = None

    def pick(self, places: Sequence[int]) -> Timings:
        """
        Take those of some records.

        Args:
            places: Which, in order.
        """
        dues, ttls, since, ids = self
        return Timings(
            None if dues is None else [dues[place] for place in places],
            None if ttls is None else [ttls[place] for place in places],
            since,
            None if ids is None else [ids[place] for place in places],
        )

    def cut(self, start: int, end: int) -> Timings:
        """
        Take those of a run of records.

        Args:
            start: The first.
            end: The one behind the last.
        """
        dues, ttls, since, ids = self
        return Timings(
            dues and dues[start:end], ttls and ttls[start:end], since, ids and ids[start:end]
        )


def timing_of(delay: Any, at: Any, ttl: Any, now: float, given: Any = None) -> Timing | None:
    """
    Read when one record comes, how long it lives, and its id.

    Args:
        delay: Seconds or a timedelta, or None.
        at: A datetime with its zone, milliseconds since the epoch, or None.
        ttl: Seconds or a timedelta, or None.
        now: The time of the call.
        given: Its message id, or None.

    Returns:
        None for a record that comes at once, lives on, and has no id.

    Raises:
        InvalidDelay: One is out of its range, which the error names.
        UsageError: One is of the wrong type, or both delay and at are given.
    """
    _only_one(delay, at)
    due = 0
    if delay is not None:
        due = -delay_ms(delay)
    elif at is not None:
        due = at_ms(at)
    life = None if ttl is None else ttl_ms(ttl)
    known = None if given is None else message_id(given)
    return Timing(due, life, now, known) if due or life or known else None


def timings_of(
    delay: Any, at: Any, ttl: Any, now: float, ids: Any = None
) -> Callable[[int], Timings | None] | None:
    """
    Put off reading the same for many records until it is known how many they are.

    Args:
        delay: As for one record, or as many, where None is at once.
        at: As for one record, or as many, where None is at once.
        ttl: As for one record, or as many.
        now: The time of the call.
        ids: As many message ids, or None.

    Returns:
        None when nothing is said.
    """
    if delay is None and at is None and ttl is None and ids is None:
        return None
    return lambda count: _timings(delay, at, ttl, ids, count, now)


def _timings(delay: Any, at: Any, ttl: Any, ids: Any, count: int, now: float) -> Timings | None:
    """Read one for all, or a sequence with one for each."""
    _only_one(delay, at)
    dues = None
    if delay is not None:
        delays = _column("delay", delay, delay_ms, count)
        dues = [-one if one else 0 for one in delays]
    elif at is not None:
        dues = [one or 0 for one in _column("at", at, at_ms, count)]
    if dues is not None and not any(dues):
        dues = None
    ttls = None if ttl is None else _column("ttl", ttl, ttl_ms, count)
    known = None if ids is None else message_ids(ids, count)
    if dues is None and ttls is None and known is None:
        return None
    return Timings(dues, ttls, now, known)


def delay_ms(delay: Any) -> int:
    """
    Read a delay; the result is in milliseconds, rounded up.

    Args:
        delay: Seconds or a timedelta.

    Raises:
        InvalidDelay: It is negative, not finite, or ends beyond the year 9999.
        UsageError: It is something else.
    """
    found = span_ms("delay", delay)
    if found < 0:
        raise InvalidDelay(f"a delay cannot be negative: {shown(delay)}; 0 is at once")
    if found > LATEST_MS - wall_ms():
        raise InvalidDelay(f"a delay of {shown(delay)} ends beyond {_BEYOND}")
    return found


def at_ms(at: Any) -> int:
    """
    Read a due time; the result is milliseconds since the epoch, above 0.

    Args:
        at: A datetime with its zone, or milliseconds since the epoch.

    Raises:
        InvalidDelay: It lies before 1970 or beyond the year 9999.
        UsageError: It is something else, such as a datetime without a zone.
    """
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise UsageError(
                f"at is a datetime without a time zone: {shown(at)}; give it one, "
                "such as datetime.now(UTC), or use .astimezone() for local time"
            )
        found = _whole_ms(at - _EPOCH)
    elif type(at) is int:
        found = at
    else:
        raise UsageError(
            "at is a datetime with its time zone, or milliseconds since the epoch as a whole "
            f"number, not {shown(at)}"
        )
    if found < 0:
        raise InvalidDelay(f"at cannot lie before 1970: {shown(at)}")
    if found > LATEST_MS:
        raise InvalidDelay(f"at lies beyond {_BEYOND}: {shown(at)}")
    return max(1, found)


def ttl_ms(ttl: Any) -> int:
    """
    Read a time to live; the result is in milliseconds, rounded up.

    Args:
        ttl: Seconds or a timedelta.

    Raises:
        InvalidDelay: It is not above zero, not finite, or too long.
        UsageError: It is something else.
    """
    found = span_ms("ttl", ttl)
    if found <= 0:
        raise InvalidDelay(f"a time to live is above zero, not {shown(ttl)}")
    if found > LATEST_MS:
        raise InvalidDelay(f"a time to live is at most {LATEST_MS} ms, not {shown(ttl)}")
    return found


def span_ms(name: str, span: Any) -> int:
    """
    Read a span of time; the result is in milliseconds, rounded up.

    Args:
        name: What the caller calls it.
        span: Seconds or a timedelta.

    Raises:
        InvalidDelay: It is not a number, or infinite.
        UsageError: It is of another type.
    """
    if isinstance(span, timedelta):
        return _whole_ms(span)
    if type(span) is bool or not isinstance(span, (int, float)):
        raise UsageError(f"{name} is a number of seconds or a timedelta, not {shown(span)}")
    if isinstance(span, int):
        return span * 1000
    if not isfinite(span):
        raise InvalidDelay(f"{name} is a number of seconds, not {shown(span)}")
    return ceil(span * 1000)


def later(due: int, since: float, base: float) -> int:
    """
    Count a due time from another point in time.

    Args:
        due: As on the wire.
        since: From when it counts if it is a delay.
        base: From when it shall.
    """
    return due if due >= 0 else min(0, due - ceil((since - base) * 1000))


def on_the_wire(dues: list[int], since: float, now: float) -> list[int]:
    """
    Take off delays what has passed.

    Args:
        dues: As on the wire, counted from `since`.
        since: From when delays count.
        now: The time.
    """
    waited = floor((now - since) * 1000)
    if waited <= 0:
        return dues
    return [min(0, due + waited) if due < 0 else due for due in dues]


def shown(value: Any) -> str:
    """Write what a caller gave, however long it is."""
    try:
        return f"{value!r:.100}"
    except ValueError:  # a number of thousands of digits
        return "that number"


def _whole_ms(span: timedelta) -> int:
    whole, rest = divmod(span, _MS)
    return whole + bool(rest)


def _only_one(delay: Any, at: Any) -> None:
    if delay is not None and at is not None:
        raise UsageError("give delay or at, not both")


def _column(name: str, given: Any, read: Callable[[Any], int], count: int) -> list[int | None]:
    """Read one for all, or one for each."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        return [read(given)] * count
    if len(given) != count:
        raise UsageError(f"{count} values need as many of {name}, or one, not {len(given)}")
    return [None if one is None else read(one) for one in given]
