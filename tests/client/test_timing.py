"""Delays, due times and times to live, as callers say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from math import inf, nan
from typing import Any

import pytest

from tinymq.client.core.timing import (
    Timing,
    Timings,
    later,
    on_the_wire,
    timing_of,
    timings_of,
    wall_ms,
)
from tinymq.errors import InvalidDelay, TinyMQError, UsageError
from tinymq.limits import LATEST_MS

EAST = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("delay", "at", "ttl", "expected"),
    [
        (None, None, None, None),
        (0, None, None, None),
        (0.0, None, 5, (0, 5000)),
        (1.5, None, None, (-1500, None)),
        (2, None, timedelta(microseconds=1), (-2000, 1)),
        (1e-9, None, None, (-1, None)),
        (timedelta(minutes=30), None, None, (-1_800_000, None)),
        (timedelta(microseconds=1001), None, None, (-2, None)),
        (None, 0, None, (1, None)),
        (None, 1_900_000_000_000, None, (1_900_000_000_000, None)),
        (None, LATEST_MS, None, (LATEST_MS, None)),
        (None, datetime(2027, 1, 1, 9, tzinfo=EAST), None, (1_798_790_400_000, None)),
        (None, datetime(2027, 1, 1, 8, 0, 0, 1, tzinfo=UTC), None, (1_798_790_400_001, None)),
    ],
)
def test_times_are_read(delay: Any, at: Any, ttl: Any, expected: Any) -> None:
    """Seconds, timedeltas, datetimes and milliseconds are whole milliseconds, rounded up."""
    found = timing_of(delay, at, ttl, 7.0)

    assert found == (None if expected is None else Timing(expected[0], expected[1], 7.0))


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"delay": -1}, InvalidDelay, "negative"),
        ({"delay": timedelta(seconds=-1)}, InvalidDelay, "negative"),
        ({"delay": -0.5}, InvalidDelay, "negative"),
        ({"delay": nan}, InvalidDelay, "nan"),
        ({"delay": inf}, InvalidDelay, "inf"),
        ({"delay": True}, UsageError, "number of seconds or a timedelta, not True"),
        ({"delay": "5m"}, UsageError, "number of seconds or a timedelta, not '5m'"),
        ({"delay": 253_402_300_799}, InvalidDelay, "year 9999 .253402300799999 ms"),
        ({"delay": 10**400}, InvalidDelay, "year 9999"),
        ({"delay": 10**5000}, InvalidDelay, "year 9999"),
        ({"at": 10**5000}, InvalidDelay, "year 9999"),
        ({"at": -(10**5000)}, InvalidDelay, "before 1970"),
        ({"ttl": -(10**5000)}, InvalidDelay, "above zero"),
        ({"delay": timedelta.max}, InvalidDelay, "year 9999"),
        ({"at": -1}, InvalidDelay, "before 1970"),
        ({"at": datetime(1969, 1, 1, tzinfo=UTC)}, InvalidDelay, "before 1970"),
        ({"at": LATEST_MS + 1}, InvalidDelay, "year 9999 .253402300799999 ms"),
        ({"at": datetime(2027, 1, 1, tzinfo=None)}, UsageError, "without a time zone"),  # noqa: DTZ001
        ({"at": 1.5}, UsageError, "whole number"),
        ({"at": True}, UsageError, "whole number"),
        ({"at": "2027-01-01"}, UsageError, "whole number"),
        ({"ttl": 0}, InvalidDelay, "above zero"),
        ({"ttl": -1}, InvalidDelay, "above zero"),
        ({"ttl": nan}, InvalidDelay, "nan"),
        ({"ttl": 10**18}, InvalidDelay, "at most 253402300799999 ms"),
        ({"ttl": False}, UsageError, "seconds or a timedelta"),
        ({"delay": 1, "at": 1}, UsageError, "not both"),
    ],
)
def test_nonsense_is_refused(given: dict[str, Any], kind: type[TinyMQError], words: str) -> None:
    """What cannot be meant is refused with a text that says what can."""
    filled = {"delay": None, "at": None, "ttl": None, **given}
    with pytest.raises(kind, match=words):
        timing_of(**filled, now=0.0)
    timing = timings_of(**filled, now=0.0)
    assert timing is not None
    with pytest.raises(kind, match=words):
        timing(2)


def test_the_longest_delay() -> None:
    """A delay may end in the last hour of the year 9999."""
    assert timing_of((LATEST_MS - wall_ms()) // 1000 - 3600, None, None, 0.0) is not None


def test_many_times() -> None:
    """One is for all; of a sequence each has its own, and None is at once and for ever."""
    both = timings_of([1, None, 0], None, (None, 2, 3), 5.0)
    one = timings_of(None, datetime(2027, 1, 1, 8, tzinfo=UTC), None, 5.0)
    none = timings_of([0, None], None, None, 5.0)
    assert both is not None
    assert one is not None
    assert none is not None

    assert both(3) == Timings([-1000, 0, 0], [None, 2000, 3000], 5.0)
    assert one(2) == Timings([1_798_790_400_000] * 2, None, 5.0)
    assert none(2) is None
    assert timings_of(None, None, None, 5.0) is None
    with pytest.raises(UsageError, match="2 values need as many of delay"):
        both(2)


def test_what_waited_is_taken_off() -> None:
    """Time that passed before writing shortens delays, never so that anything comes early."""
    dues = [-1000, -5, 1_900_000_000_000]

    assert on_the_wire(dues, 10.0, 10.0) == dues
    assert on_the_wire(dues, 10.0, 10.0094) == [-991, 0, 1_900_000_000_000]
    assert on_the_wire(dues, 10.0, 9.0) == dues


def test_delays_of_one_batch_count_from_its_first() -> None:
    """A record that came to a batch later is due so much later."""
    assert later(-1000, 10.0005, 10.0) == -1001
    assert later(-1000, 10.0, 10.0) == -1000
    assert later(1_900_000_000_000, 11.0, 10.0) == 1_900_000_000_000
