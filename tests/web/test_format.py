"""Numbers, sizes, spans and times read well and never lie about the unit."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web.fakes import NOW
from tinymq.web.format import (
    Times,
    duration,
    number,
    percent,
    plural,
    rate,
    setting_hint,
    size,
    size_of,
    zone,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (38_200_000_000, "38.2 GB"),
        (10**18, "1,000.0 PB"),
        (None, "\N{EN DASH}"),
    ],
)
def test_size(value: int | None, text: str) -> None:
    """Bytes have the unit that leaves few digits, never 1000.0 of one."""
    assert text == str(size(value))


def test_parts_of_a_whole_share_a_unit() -> None:
    """A person compares two numbers, not two units; tiny parts keep their own."""
    assert size_of(301e9, 500e9) == "301 of 500 GB"
    assert size_of(5.1e9, 8e9) == "5.1 of 8.0 GB"
    assert size_of(3e6, 500e9) == "3.0 MB of 500.0 GB"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 ms"),
        (14, "14 ms"),
        (59_999, "59.9 s"),
        (192_000, "3 m 12 s"),
        (3_600_000, "1 h"),
        (3_660_000, "1 h 1 m"),
        (600_000, "10 m"),
        (86_400_000 * 2 + 3_600_000, "2 d 1 h"),
        (86_400_000 * 2, "2 d"),
        (86_400_000 * 41 + 3_600_000, "41 d"),
        (None, "\N{EN DASH}"),
    ],
)
def test_duration(ms: int | None, text: str) -> None:
    """Spans have their two largest units and are never rounded up to sixty."""
    assert text == duration(ms)


@given(st.integers(0, 10**15))
def test_duration_never_says_sixty(ms: int) -> None:
    """No field of a span reaches its next unit; days have none."""
    assert " 60 " not in f" {duration(ms)} ".replace(" 60 d ", " ")
    assert duration(ms) != "60.0 s"


def test_plain_numbers() -> None:
    """Counts are exact, rates have a digit where it matters."""
    assert (number(1_234_567), number(None)) == ("1,234,567", "\N{EN DASH}")
    assert (rate(251), rate(14_206.4), rate(None)) == ("251.0", "14,206", "\N{EN DASH}")
    assert (percent(64, 100), percent(1, 0)) == ("64 %", "\N{EN DASH}")
    assert (
        plural(1, "topic"),
        plural(2, "topic"),
        plural(0, "box", "boxes"),
    ) == ("1 topic", "2 topics", "0 boxes")


def test_times_name_their_zone() -> None:
    """Every written time says what zone it is in."""
    utc, berlin = Times(NOW), Times(NOW, zone("Europe/Berlin"))

    assert utc.full(NOW) == "2026-11-29 14:32:06.000 UTC"
    assert berlin.full(NOW) == "2026-11-29 15:32:06.000 CET"
    assert berlin.clock(NOW) == "15:32:06"
    assert utc.clock(NOW - 86_400_000 + 7, millis=True) == "2026-11-28 14:32:06.007"
    assert (
        berlin.zone_name(),
        utc.minute(NOW),
        utc.date(NOW),
    ) == ("CET", "14:32", "29 November 2026")
    assert berlin.iso(NOW) == "2026-11-29T14:32:06.000Z"
    assert utc.age(NOW - 5000) == "5.0 s"


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), 10**17])
def test_absurd_times_are_written_as_numbers(ms: int) -> None:
    """A producer may say any time; a page shows it and does not fail."""
    times = Times(NOW)

    assert f"{ms} ms since 1970" == times.full(ms)
    assert f"{ms} ms since 1970" == times.clock(ms)
    assert times.iso(ms) == ""
    assert times.minute(ms)
    times.age(ms)


def test_unknown_times_are_dashes() -> None:
    """What never happened has no time."""
    times = Times(NOW)

    assert (
        times.full(None),
        times.clock(None),
        times.age(None),
        times.iso(None),
    ) == ("\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}", "")


@pytest.mark.parametrize(
    "name", ["", None, "UTC", "utc", "No/Where", "../../etc/passwd", "x" * 100, "a\0b", "Europe"]
)
def test_unusable_zones_are_utc(name: str | None) -> None:
    """A cookie can hold anything."""
    assert UTC is zone(name)


def test_local_zone_is_the_machines() -> None:
    """Without scripts, local is where the broker runs; it is named all the same."""
    assert Times(NOW, zone("local")).zone_name()


def test_settings_are_explained_where_that_helps() -> None:
    """Milliseconds and bytes are said as a person would; the rest speaks for itself."""
    hints = [
        setting_hint(name, value)
        for name, value in (
            ("retention.ms", "604800000"),
            ("segment.bytes", "134217728"),
            ("retention.bytes", "5000000"),
            ("sync.interval.ms", "200"),
            ("retention.bytes", "none"),
            ("min.in.sync", "100000"),
        )
    ]

    assert hints == ["7 d", "128 MiB", "5.0 MB", "", "", ""]
