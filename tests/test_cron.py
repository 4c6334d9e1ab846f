"""Cron expressions in time zones, and what becomes of missed times."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.cron import (
    GRACE_MS,
    MOST_CAUGHT_UP,
    MOST_COUNTED,
    MOST_EXPRESSION,
    WORDS,
    Cron,
    Plan,
    plan,
    zone_of,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
EXPRESSIONS = (
    "30 2 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "0 0 1 * *",
    "0 9 * * MON-FRI",
    "5 1-4 * * *",
)


def ms(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    *,
    zone: str = "UTC",
    fold: int = 0,
) -> int:
    """Milliseconds of a time on the wall."""
    at = datetime(year, month, day, hour, minute, second, tzinfo=ZoneInfo(zone), fold=fold)
    return int(at.timestamp()) * 1000


def walls(cron: Cron, since: int, count: int) -> list[str]:
    """The next times, as the wall shows them."""
    zone = zone_of(cron.zone)
    found = cron.upcoming(since, count)
    return [datetime.fromtimestamp(due / 1000, zone).strftime("%m-%d %H:%M%z") for due in found]


class TestExpressions:
    """What can be said."""

    def test_next_times(self) -> None:
        """The next ten times are told in order, beginning after the time that is given."""
        cron = Cron.parse("0 3 * * *", "Europe/Berlin")
        first = ms(2026, 1, 1, 3, zone="Europe/Berlin")
        assert cron.after(first - 1) == first
        assert cron.upcoming(first) == [first + day * DAY for day in range(1, 11)]

    @pytest.mark.parametrize("word", WORDS)
    def test_words(self, word: str) -> None:
        """The words of crontab stand for expressions, in any case."""
        assert Cron.parse(word.upper()).upcoming(0) == Cron.parse(WORDS[word]).upcoming(0)

    def test_spaces(self) -> None:
        """Spaces more or less make no difference."""
        assert Cron.parse("  0\t3 * *  * ").expression == "0 3 * * *"

    @pytest.mark.parametrize(
        ("expression", "told"),
        [
            ("60 * * * *", "the minute '60' is wrong: it may be 0 to 59"),
            ("0 24 * * *", "the hour '24' is wrong: it may be 0 to 23"),
            ("0 0 0 * *", "the day of the month '0' is wrong: it may be 1 to 31"),
            ("0 0 * 13 *", "the month '13' is wrong: it may be 1 to 12 or JAN to DEC"),
            ("0 0 * * 8", "the day of the week '8' is wrong: it may be 0 to 7 or SUN to SAT"),
            ("0 0 * * \xb2L", "the day of the week"),
            ("*/0 * * * *", "the minute '*/0' is wrong"),
            ("5-1 * * * *", "the minute '5-1' is wrong"),
            ("0 0 * *", "five fields: minute, hour, day of the month, month, day of the week"),
            ("0 0 0 * * *", "has 6; seconds are not among them"),
            ("", "'' has 0"),
            ("@dayly", "the words are @yearly, @annually, @monthly"),
            ("0 0 30 2 *", "'0 0 30 2 *' never comes"),
            ("0 0 31 4,6,9,11 *", "never comes"),
            ("1" * 5000 + " * * * *", f"at most {MOST_EXPRESSION} characters"),
        ],
    )
    def test_errors(self, expression: str, told: str) -> None:
        """What is wrong is told with the field, and with what it may be."""
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is what matters
            Cron.parse(expression)
        assert told in str(caught.value)
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(
        ("zone", "told"),
        [
            ("Europe/Berln", "did you mean Europe/Berlin?"),
            ("berlin", "did you mean Europe/Berlin?"),
            ("../etc/passwd", "such as Europe/Berlin"),
            ("Europe", "there is no time zone 'Europe'"),
            ("localtime", "there is no time zone"),
            ("right/UTC", "there is no time zone"),
            ("", "there is no time zone ''"),
            ("x" * 500, "there is no time zone"),
            ("a\0b", "there is no time zone"),
        ],
    )
    def test_unknown_zones(self, zone: str, told: str) -> None:
        """A zone that is none, or another one on each machine, is refused with a hint."""
        with pytest.raises(ValueError, match=r"IANA database") as caught:
            Cron.parse("0 3 * * *", zone)
        assert told in str(caught.value)

    def test_leap_day(self) -> None:
        """29 February comes every fourth year, which is not never."""
        assert Cron.parse("0 0 29 2 *").after(ms(2026, 1, 1)) == ms(2028, 2, 29)

    def test_end_of_the_calendar(self) -> None:
        """Behind the last year that there is, nothing comes, and nothing fails."""
        cron = Cron.parse("0 0 1 1 *", "Asia/Tokyo")
        assert cron.after(ms(9999, 6, 1)) is None
        assert cron.after(1 << 62) is None

    @pytest.mark.parametrize(
        ("expression", "said"),
        [
            ("0 3 * * *", "At 03:00 every day"),
            ("@hourly", "At the start of every hour"),
            ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday"),
            ("0 0 13 * 5", "At 00:00 on the 13th day of month or on Friday"),
        ],
    )
    def test_words_for_people(self, expression: str, said: str) -> None:
        """Expressions are told in words; two kinds of days are alternatives."""
        assert Cron.parse(expression).text == said

    def test_no_words(self) -> None:
        """What cannot be read has no words."""
        assert Cron("nonsense").text == ""


class TestDaylightSaving:
    """Clocks that are put forward and back."""

    def test_skipped(self) -> None:
        """A time that does not exist comes right after the gap."""
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        assert walls(cron, ms(2026, 3, 28), 3) == [
            "03-28 02:30+0100",
            "03-29 03:00+0200",
            "03-30 02:30+0200",
        ]

    def test_doubled(self) -> None:
        """A time that there is twice comes once, at the first."""
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        assert walls(cron, ms(2026, 10, 24), 3) == [
            "10-24 02:30+0200",
            "10-25 02:30+0200",
            "10-26 02:30+0100",
        ]

    def test_between_the_two(self) -> None:
        """Asked within the second of two hours, the next time is that of the next day."""
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        within = ms(2026, 10, 25, 2, 10, zone="Europe/Berlin", fold=1)
        assert walls(cron, within, 1) == ["10-26 02:30+0100"]

    def test_every_quarter(self) -> None:
        """What goes by the clock on the wall comes in both hours, and not in the gap."""
        cron = Cron.parse("*/30 2 * * *", "Europe/Berlin")
        assert walls(cron, ms(2026, 10, 24, 12), 4) == [
            "10-25 02:00+0200",
            "10-25 02:30+0200",
            "10-25 02:00+0100",
            "10-25 02:30+0100",
        ]
        assert walls(cron, ms(2026, 3, 28, 12), 1) == ["03-30 02:00+0200"]

    @pytest.mark.parametrize("zone", ZONES)
    @pytest.mark.parametrize("expression", EXPRESSIONS)
    @given(hours=st.integers(0, 24 * 500), seconds=st.integers(0, 3599))
    def test_order(self, expression: str, zone: str, hours: int, seconds: int) -> None:
        """Wherever one begins, times rise, and the same ones are told."""
        cron = Cron(expression, zone)
        since = ms(2026, 1, 1) + hours * HOUR + seconds * 1000
        times = cron.upcoming(since, 6)
        assert times == sorted(set(times))
        assert times[0] > since
        assert cron.upcoming(times[0], 5) == times[1:]


class TestPlan:
    """What was missed."""

    cron = Cron("0 * * * *")
    start = ms(2026, 1, 1, 0, 30)

    def test_nothing_missed(self) -> None:
        """In time, the next one comes."""
        assert plan(self.cron, self.start, self.start + 1, "skip") == Plan(ms(2026, 1, 1, 1))

    @pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
    def test_a_little_late(self, catch_up: str) -> None:
        """A time that is over by less than a minute comes all the same."""
        due = ms(2026, 1, 1, 1)
        assert plan(self.cron, self.start, due + GRACE_MS - 1, catch_up) == Plan(due)

    def test_skip(self) -> None:
        """Missed times are counted, and the next one comes."""
        now = ms(2026, 1, 1, 5, 30)
        assert plan(self.cron, self.start, now, "skip") == Plan(ms(2026, 1, 1, 6), 5)

    def test_skip_but_for_the_last(self) -> None:
        """Of missed times, one that is over just now comes."""
        now = ms(2026, 1, 1, 5, 0, 30)
        assert plan(self.cron, self.start, now, "skip") == Plan(ms(2026, 1, 1, 5), 4)

    @pytest.mark.parametrize("minute", [0, 30])
    def test_once(self, minute: int) -> None:
        """One comes for all, with the last of their times."""
        now = ms(2026, 1, 1, 5, minute, 10)
        assert plan(self.cron, self.start, now, "once") == Plan(ms(2026, 1, 1, 5), 4)

    def test_all(self) -> None:
        """Each comes, the first one first."""
        now = ms(2026, 1, 1, 5, 30)
        assert plan(self.cron, self.start, now, "all") == Plan(ms(2026, 1, 1, 1))

    def test_all_has_an_end(self) -> None:
        """Of too many, the last thousand come."""
        now = self.start + 2000 * HOUR
        found = plan(self.cron, self.start, now, "all")
        assert found.missed == 2000 - MOST_CAUGHT_UP
        assert found.due == ms(2026, 1, 1) + (2001 - MOST_CAUGHT_UP) * HOUR

    @pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
    def test_counting_has_an_end(self, catch_up: str) -> None:
        """After years, no more than so many are counted, and what comes is right all the same."""
        cron, now = Cron("* * * * *"), self.start + 400 * DAY
        found = plan(cron, self.start, now, catch_up)
        assert MOST_COUNTED - MOST_CAUGHT_UP <= found.missed <= MOST_COUNTED
        due = {"skip": now, "once": now, "all": now - GRACE_MS - (MOST_CAUGHT_UP - 1) * MINUTE}
        assert found.due == due[catch_up]

    def test_never_again(self) -> None:
        """What never comes again has no next time."""
        end = ms(9999, 12, 31, 23, 59)
        assert plan(Cron("0 0 1 1 *"), end, end, "skip") == Plan(None)
