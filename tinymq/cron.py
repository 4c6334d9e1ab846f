"""
When recurring messages come: cron expressions in a time zone, and what was missed.

Five fields, as crontab has them: minute, hour, day of the month, month, day of the week.
When the clocks of a zone are put forward or back, Debian's cron is followed:

- An expression that names its minutes and its hours (neither begins with ``*``) comes once
  for each time that it names: a time that is skipped comes right after the gap, and one
  that there is twice comes at the first of the two.
- One whose minutes or hours begin with ``*`` is about the clock on the wall: what it says
  for a skipped hour does not come, and for a doubled hour it comes in both.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from attrs import frozen
from cronsim import CronSim, CronSimError

#: What may become of runs that were missed.
CATCH_UPS: Final = ("skip", "once", "all")
DEFAULT_CATCH_UP: Final = "skip"

#: Most characters of an expression and of a zone, and bytes of a message's value.
MOST_EXPRESSION: Final = 200
MOST_ZONE: Final = 64
MOST_VALUE: Final = 64 * 1024

#: A run that is so late comes all the same: a broker that is started again misses nothing.
GRACE_MS: Final = 60_000
#: Most runs that ``all`` catches up with, and most that are counted at a time.
MOST_CAUGHT_UP: Final = 1000
MOST_COUNTED: Final = 10_000

#: Words for expressions, as crontab has them.
WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

#: The fields in order: the library's name of each, what it says, and what it may hold.
_FIELDS: Final = (
    ("minute", "minute", "0 to 59"),
    ("hour", "hour", "0 to 23"),
    ("day-of-month", "day of the month", "1 to 31, L for the last day, LW for the last weekday"),
    ("month", "month", "1 to 12 or JAN to DEC"),
    (
        "day-of-week",
        "day of the week",
        "0 to 7 or SUN to SAT, with #1 to #5 for the first to the fifth of a month",
    ),
)
_ORDER: Final = "a cron expression has five fields: " + ", ".join(name for _, name, _ in _FIELDS)
#: Files among those of zones that mean another thing on every machine, or none.
_NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_NO_FOLDERS: Final = ("posix/", "right/")


@lru_cache(maxsize=1000)
def zone_of(name: str) -> ZoneInfo:
    """
    Return a time zone.

    Args:
        name: As the time zone database of IANA calls it.

    Raises:
        ValueError: There is none of this name.
    """
    try:
        found = None if name in _NO_ZONES or name.startswith(_NO_FOLDERS) else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        found = None
    if found is None:
        raise ValueError(_no_zone(name))
    return found


def _no_zone(name: str) -> str:
    known = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name[:MOST_ZONE].lower(), folded, 1)
    ends = [each for each in known if each.lower().endswith(f"/{name.lower()}")]
    maybe = (ends or [folded[each] for each in near])[:1]
    hint = f"; did you mean {maybe[0]}?" if maybe else ", such as Europe/Berlin"
    return f"there is no time zone {name[:MOST_ZONE]!r} in the IANA database{hint}"


@frozen
class Cron:
    """
    A cron expression in a time zone.

    Attributes:
        expression: Five fields, or a word such as ``@daily``.
        zone: The zone.
    """

    expression: str
    zone: str = "UTC"

    @classmethod
    def parse(cls, expression: str, zone: str = "UTC") -> Cron:
        """
        Read an expression.

        Args:
            expression: Five fields, or a word such as ``@daily``.
            zone: The zone's name.

        Raises:
            ValueError: One of them is wrong, or the time never comes; it says what may be.
        """
        cron = cls(" ".join(expression.split()), zone)
        zone_of(zone)
        fields = cron.fields
        if len(expression) > MOST_EXPRESSION:
            raise ValueError(f"a cron expression has at most {MOST_EXPRESSION} characters")
        if len(fields) != len(_FIELDS):
            raise ValueError(f"{_ORDER}; {cron.expression!r} has {len(fields)}{_hint(fields)}")
        for index, field in enumerate(fields):
            _check_field(index, field)
        if cron.after(0) is None:
            raise ValueError(
                f"{cron.expression!r} never comes: no month that it names has such a day"
            )
        return cron

    @property
    def fields(self) -> list[str]:
        """The five fields; a word stands for some."""
        return WORDS.get(self.expression.lower(), self.expression).split()

    @property
    def text(self) -> str:
        """The expression in words; empty if there are none for it."""
        fields = self.fields
        try:
            _, _, day, _, weekday = fields
            said = CronSim(" ".join(fields), datetime(2000, 1, 1)).explain()  # noqa: DTZ001
        except (CronSimError, ValueError, LookupError, TypeError):
            return ""
        either = not day.startswith("*") and not weekday.startswith("*")
        return said.replace(" and on ", " or on ") if either else said

    def after(self, time_ms: int) -> int | None:
        """
        Return the first time after another.

        Args:
            time_ms: In milliseconds since 1970.

        Returns:
            A whole minute, in milliseconds; None if it does not come again.
        """
        return next(self.times(time_ms), None)

    def times(self, time_ms: int) -> Iterator[int]:
        """
        Yield the times after another, in order.

        Args:
            time_ms: In milliseconds since 1970.
        """
        try:
            begins = datetime.fromtimestamp(time_ms // 1000, zone_of(self.zone))
            for found in CronSim(" ".join(self.fields), begins):
                due = int(found.timestamp()) * 1000
                # A doubled hour is told of at its first time, which may lie behind.
                if due > time_ms:
                    yield due
                    time_ms = due
        except (CronSimError, OverflowError, ValueError, OSError):
            return  # the end of the calendar, or a day that no month has

    def before(self, time_ms: int, count: int) -> list[int]:
        """
        Return the last times up to one, in order.

        Args:
            time_ms: In milliseconds since 1970.
            count: How many at most.
        """
        ends = datetime.fromtimestamp(time_ms // 1000 + 1, zone_of(self.zone))
        back = CronSim(" ".join(self.fields), ends, reverse=True)
        found = [int(each.timestamp()) * 1000 for each, _ in zip(back, range(count), strict=False)]
        return sorted(found)

    def upcoming(self, time_ms: int, count: int = 10) -> list[int]:
        """
        Return the next times.

        Args:
            time_ms: After when, in milliseconds since 1970.
            count: How many at most.
        """
        return [due for due, _ in zip(self.times(time_ms), range(count), strict=False)]


@frozen
class Plan:
    """
    What comes next of a schedule.

    Attributes:
        due: When, in milliseconds since 1970; maybe in the past. None if never.
        missed: How many runs before it do not come any more.
    """

    due: int | None
    missed: int = 0


def plan(cron: Cron, done_ms: int, now_ms: int, catch_up: str) -> Plan:
    """
    Say what comes next, and what was missed.

    Args:
        cron: When it comes.
        done_ms: All times up to this one are dealt with.
        now_ms: What time it is.
        catch_up: What becomes of the times between.

    Returns:
        The next time. A run that is late by less than `GRACE_MS` is not missed.
    """
    first = cron.after(done_ms)
    late = now_ms - GRACE_MS
    if first is None or first > late:
        return Plan(first)
    if catch_up == "skip":
        _, count = _over(cron, done_ms, late, 0)
        return Plan(cron.after(late), count)
    until, most = (now_ms, 1) if catch_up == "once" else (late, MOST_CAUGHT_UP)
    latest, count = _over(cron, done_ms, until, most)
    return Plan(latest[0], count - len(latest))


def _over(cron: Cron, done_ms: int, until_ms: int, most: int) -> tuple[list[int], int]:
    """Return the last times after one up to another, so many at most, and how many there are."""
    over: list[int] = []
    for due in cron.times(done_ms):
        if due > until_ms:
            return over[-most:] if most else [], len(over)
        if len(over) == MOST_COUNTED:
            break
        over.append(due)
    return cron.before(until_ms, most), MOST_COUNTED


def _check_field(index: int, field: str) -> None:
    """
    Check one field by itself, so that the right one is named.

    Raises:
        ValueError: It is wrong.
    """
    fields = ["*"] * len(_FIELDS)
    fields[index] = field
    _, name, allowed = _FIELDS[index]
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1))  # noqa: DTZ001 - only to be read
    except (CronSimError, ValueError):
        raise ValueError(
            f"the {name} {field[:40]!r} is wrong: it may be {allowed}; "
            "* for all, lists with commas, ranges such as 1-5 and steps such as */15"
        ) from None


def _hint(fields: list[str]) -> str:
    if len(fields) == 1 and fields[0].startswith("@"):
        return f"; the words are {', '.join(WORDS)}"
    if len(fields) == len(_FIELDS) + 1:
        return "; seconds are not among them"
    return ""
